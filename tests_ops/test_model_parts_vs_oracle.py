"""Parts of the product's model against the oracle's: formats, constants, names, loading."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41.model import engram, names, quant, rope, topk, vocabulary
from dsv41.model.config import ModelConfig
from dsv41.model.loader import CheckpointError, load_official
from tests_ops.oracle import build_model, checkpoint, numerics, tensors, token_map
from tests_ops.oracle import engram as oracle_engram
from tests_ops.oracle import forward as oracle_forward
from tests_ops.oracle import quant as oracle_quant
from tests_ops.oracle import rope as oracle_rope
from tests_ops.oracle.config import Config
from tests_ops.oracle.strategies import text_configs
from tests_ops.oracle.tiny import RELEASED, TINY, VISION, random_tensors
from tests_ops.product import harness

pytestmark = pytest.mark.ops
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
STORAGE = {"BF16": "BF16", "F32": "F32", "F8": "FP8", "FP4": "FP4"}


def product_config(text: dict) -> ModelConfig:
    return ModelConfig.from_dict({"text_config": text})


def spread(seed: int) -> torch.Tensor:
    """Values over many magnitudes, with zeros, and ties of every format among them."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 64, generator=source) * 2.0 ** torch.randint(-20, 20, (8, 1)).float()
    x[0] = 0
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    x[1] = torch.cat((ties, -ties)).repeat(4)
    return x


@QUICK
@given(seed=st.integers(0, 10**6))
def test_roundings_are_the_oracles_to_the_bit(seed: int) -> None:
    x = spread(seed)

    assert torch.equal(oracle_quant.fp8_act(x), quant.round_fp8(x))
    assert torch.equal(oracle_quant.fp4_index(x), quant.round_fp4(x))
    assert torch.equal(oracle_quant.fp4_latent(x), quant.round_fp4_e4m3(x))


@QUICK
@given(seed=st.integers(0, 10**6), width=st.sampled_from([5, 64, 65, 300]), k=st.integers(1, 5))
def test_top_k_is_the_oracles_with_ties_and_infinities(seed: int, width: int, k: int) -> None:
    source = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (4, width), generator=source).float()
    scores[scores == 2] = -torch.inf
    scores[scores == 1] = -0.0

    index = topk.top_k(scores, k)
    picked = torch.zeros_like(scores, dtype=torch.bool).scatter(1, index, True)

    assert torch.equal(numerics.top_k_mask(scores, k), picked & (scores > -torch.inf))


@QUICK
@given(text=text_configs())
def test_rope_tables_are_the_oracles(text: dict) -> None:
    cfg, config = Config.from_text_config(text), product_config(text)

    for ratio in (0, 1, 2):
        expected = oracle_rope.frequencies(cfg, ratio)
        assert torch.allclose(expected, rope.frequencies(config, compressed=ratio > 0), rtol=1e-12)


def test_rope_tables_of_the_release_are_the_oracles() -> None:
    cfg, config = Config.from_text_config(RELEASED), product_config(RELEASED)

    for ratio in (0, 2):
        expected = oracle_rope.frequencies(cfg, ratio)
        assert torch.allclose(expected, rope.frequencies(config, compressed=ratio > 0), rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "layers"), [(RELEASED, (1, 14)), (TINY, (1, 4))], ids=["released", "tiny"]
)
def test_hash_rows_are_the_oracles(text: dict, layers: tuple[int, ...]) -> None:
    cfg, config = Config.from_text_config(text), product_config(text)
    ids = torch.tensor([10, 20, 30, 40, 7, 7, 391, 0])
    history = oracle_engram.lookback(ids, 2, cfg.engram_max_ngram_size)

    for layer in layers:
        rows = engram.hash_rows(history, engram.hash_plans(config)[layer])
        assert torch.equal(oracle_engram.hash_rows(cfg, layer, ids, 2), rows)


@QUICK
@given(text=text_configs())
def test_names_shapes_and_storage_are_the_oracles(text: dict) -> None:
    expected = {e.name: e for e in tensors.text_entries(text)}
    found = {s.name: s for s in names.text_tensors(product_config(text))}

    assert expected.keys() == found.keys()
    for name, spec in found.items():
        assert expected[name].shape == tuple(spec.shape)
        assert expected[name].scale_shape == spec.scale_shape
        assert spec.storage.name.startswith(STORAGE[expected[name].storage])


# Minimum list 8.8.11, on the product's own table.
def test_the_products_table_of_the_release_has_the_released_totals() -> None:
    text = list(names.text_tensors(product_config(RELEASED)))
    vision = tensors.vision_entries(RELEASED, VISION)

    assert sum(s.count for s in text) + len(vision) == 96_085
    assert sum(s.numel for s in text) + sum(e.parameters for e in vision) == 763_205_315_794


def test_a_checkpoint_in_the_released_formats_gives_the_oracles_logits(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "m", TINY, checkpoint.pack(TINY, random_tensors(TINY, 3)))
    stored = checkpoint.read_tensors(tmp_path / "m")
    tokens = torch.randint(4, 512, (40,), generator=torch.Generator().manual_seed(2)).tolist()

    run = harness.whole(harness.pair_of_stored(TINY, stored), tokens)

    expected = oracle_forward(checkpoint.load(tmp_path / "m", dtype=torch.float64), tokens)
    assert (run.logits - expected.logits).abs().max() < harness.TOLERANCE


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda s: s.pop("layers.2.attn.compressor.norm.weight"), r"missing.*compressor\.norm"),
        (lambda s: s.pop("layers.0.attn.wkv.scale"), r"missing.*layers\.0\.attn\.wkv\.scale"),
        (lambda s: s.update({"layers.0.attn.q.weight": torch.ones(2)}), r"surplus.*attn\.q\."),
        (
            lambda s: s.update({"norm.weight": torch.ones(127)}),
            r"norm\.weight: shape \[127\], expected \[128\]",
        ),
        (
            lambda s: s.update({"layers.0.attn.wkv.scale": torch.ones(1, 1).byte()}),
            r"wkv\.scale: shape \[1, 1\], expected \[2, 4\]",
        ),
    ],
    ids=["missing-weight", "missing-scale", "surplus", "misshapen-weight", "misshapen-scale"],
)
def test_a_wrong_tensor_is_named_in_one_line(change, line: str) -> None:
    stored = checkpoint.pack(TINY, random_tensors(TINY, 3))
    change(stored)

    with pytest.raises(CheckpointError, match=line) as caught:
        load_official(stored.items(), product_config(TINY), torch.float32)

    assert "\n" not in str(caught.value)


def test_rounding_on_is_nearer_to_the_rounded_oracle_than_to_the_exact_one() -> None:
    """Codes flip on the last bit of a sum (8.5), so this holds on average, not per value."""
    plain = random_tensors(TINY, 0)
    pair = harness.pair(TINY, plain)
    tokens = torch.randint(4, 512, (64,), generator=torch.Generator().manual_seed(1)).tolist()
    rounded = oracle_forward(build_model(TINY, plain, rounding=True), tokens)
    exact = oracle_forward(build_model(TINY, plain), tokens)

    run = harness.whole(pair, tokens, rounding=True)

    first = (run.streams[0] - rounded.streams[0]).abs().mean()
    near = (run.logits - rounded.logits).abs().mean()
    assert float(first) < 0.01 * float((exact.streams[0] - rounded.streams[0]).abs().mean())
    assert float(near) < 0.5 * float((exact.logits - rounded.logits).abs().mean())


@pytest.mark.parametrize(
    "text",
    [" The", "ÉTÉ", "ﬁ", "\n", "a\t b", "ΟΔΟΣ", "\x1f", "का", "ทำ", "ா"],
    ids=[
        "space", "accents", "ligature", "newline", "run", "sigma", "separator", "hindi", "thai",
        "tamil",
    ],
)  # fmt: skip
def test_token_text_is_normalised_as_the_tokenizers_library_does(text: str) -> None:
    assert (token_map.normalise(text) or text) == (vocabulary.normalise(text) or text)
