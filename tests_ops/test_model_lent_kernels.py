"""The model with the compiled kernels that the engine lends it, against the oracle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dsv41.model.kernels import lent
from tests_ops import test_model_vs_oracle as comparison
from tests_ops.oracle import forward
from tests_ops.oracle.tiny import TINY, random_tensors
from tests_ops.product import harness
from tests_ops.product.harness import Pair

pytestmark = pytest.mark.ops


@pytest.fixture(scope="module")
def borrowed() -> Iterator[dict[str, str]]:
    """The engine's kernels are installed while this module runs."""
    kernels = pytest.importorskip("dsv41.engine.kernels", reason="vLLM is not installed here")
    platforms = pytest.importorskip("vllm.platforms")
    # A served process has loaded them long before it builds the model.
    platforms.current_platform.import_kernels()
    before = dict(vars(lent))
    kernels.lend_kernels()
    yield dict(lent.names)
    for name, value in before.items():
        setattr(lent, name, value)


@pytest.fixture(scope="module")
def tiny() -> Pair:
    return harness.pair(TINY, random_tensors(TINY, 0))


def test_the_cpu_build_lends_its_kernels(borrowed: dict[str, str]) -> None:
    """Else the tests below would compare the native functions a second time."""
    taken = [name for name, source in borrowed.items() if source != "native"]
    if not taken:
        pytest.skip("this vLLM build has no compiled kernels; install the CPU wheel of vLLM")

    assert all(getattr(lent, name) is not None for name in taken)


@pytest.mark.parametrize("length", [1, 5, 64], ids=lambda n: f"{n}-tokens")
def test_every_layer_agrees_with_lent_kernels(
    tiny: Pair, borrowed: dict[str, str], length: int
) -> None:
    tokens = comparison.TOKENS[:length]

    comparison.assert_layers_agree(tiny, tokens, forward(tiny.oracle, tokens))


def test_more_tokens_than_the_kernels_serve_agree(tiny: Pair, borrowed: dict[str, str]) -> None:
    tokens = (comparison.TOKENS * 3)[:150]

    comparison.assert_layers_agree(tiny, tokens, forward(tiny.oracle, tokens))


@pytest.mark.parametrize(
    "test",
    [
        comparison.test_odd_chunks_over_pages_agree,
        comparison.test_drafts_after_chunks_are_those_after_one_piece,
        comparison.test_greedy_tokens_are_the_oracles,
    ],
    ids=["chunks", "drafts", "greedy"],
)
def test_the_comparisons_hold_with_lent_kernels(tiny: Pair, borrowed: dict[str, str], test) -> None:
    test(tiny)


def test_a_wrong_lent_kernel_fails_the_comparison(tiny: Pair, borrowed: dict[str, str]) -> None:
    right = lent.rms_norm
    lent.rms_norm = lambda x, weight, eps: torch.ones_like(x)
    try:
        with pytest.raises(AssertionError, match="layer 0"):
            comparison.assert_layers_agree(
                tiny, comparison.TOKENS[:5], forward(tiny.oracle, comparison.TOKENS[:5])
            )
    finally:
        lent.rms_norm = right
