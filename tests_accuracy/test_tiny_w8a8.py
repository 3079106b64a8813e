"""W8A8: integer products, the Ascend layout, and what a wrong checkpoint is told."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41.model import w8a8
from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.files import read_tensors
from dsv41.model.full import forward_full
from dsv41.model.init import init_weights
from dsv41.model.loader import CheckpointError
from dsv41.model.make_checkpoint import official_tensors
from dsv41.model.params import bind
from dsv41.tiny import checkpoint

pytestmark = pytest.mark.accuracy

CONFIG = ModelConfig.from_file(checkpoint.CONFIG)


@pytest.fixture(scope="module")
def floats() -> dict[str, torch.Tensor]:
    return official_tensors(init_weights(CONFIG, 4), CONFIG)


@pytest.fixture(scope="module")
def quantised(floats):
    return w8a8.convert(floats, CONFIG)


def _by_integers(x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The same product the long way: int64 sums, then the two scales."""
    step = x.abs().amax(-1, keepdim=True) / 127
    step[step == 0] = 1.0
    rounded = (x / step).round().clamp(-128, 127).long()
    return (rounded @ codes.long().t()).float() * scale.t() * step


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 300), st.integers(1, 40), st.integers(0, 1000))
def test_a_product_is_that_of_the_integers(tokens, inputs, outputs, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, inputs, generator=generator) * 3
    codes, scale = w8a8.quantise_channels(torch.randn(outputs, inputs, generator=generator))
    found = x @ w8a8.Int8Weight(codes.float(), scale).t()
    assert found.equal(_by_integers(x, codes, scale))


def test_sums_too_long_for_float32_are_still_those_of_the_integers():
    inputs = 8193
    codes = torch.full((3, inputs), 127, dtype=torch.int8)
    codes[1, 0] = 126
    x = torch.ones(1, inputs)
    found = x @ w8a8.Int8Weight(codes.float(), torch.ones(3, 1)).t()
    assert found.equal(_by_integers(x, codes, torch.ones(3, 1)))


def test_a_token_of_zeros_gives_zeros():
    weight = w8a8.Int8Weight(torch.ones(4, 8), torch.ones(4, 1))
    assert (torch.zeros(2, 8) @ weight.t()).equal(torch.zeros(2, 4))


def test_the_error_of_a_channel_is_at_most_half_a_step():
    weight = torch.randn(16, 64)
    codes, scale = w8a8.quantise_channels(weight)
    assert ((codes * scale - weight).abs() <= scale / 2 * 1.0001).all()


def test_joined_picked_and_turned_weights_are_their_parts():
    codes, scale = w8a8.quantise_channels(torch.randn(6, 8))
    one = w8a8.Int8Weight(torch.stack([codes.float()] * 3), torch.stack([scale] * 3))
    joined = torch.cat((one, one), dim=-2).transpose(-1, -2)
    x = torch.randn(3, 5, 8)
    whole = torch.bmm(x, joined)
    assert whole[..., :6].equal(whole[..., 6:])
    assert whole[1:2].equal(torch.bmm(x[1:2], joined.index_select(0, torch.tensor([1]))))


def test_any_other_use_of_an_int8_weight_is_refused():
    with pytest.raises(TypeError, match="not defined for an int8 weight"):
        torch.add(torch.ones(2, 2), w8a8.Int8Weight(torch.ones(2, 2), torch.ones(2, 1)))


def test_the_layout_is_that_of_the_ascend_product(quantised):
    tensors, description = quantised
    dynamic = {n for n, kind in description.items() if kind == "W8A8_DYNAMIC"}
    for name in ("layers.0.attn.wq_a", "layers.3.attn.indexer.wq_b", "mtp.2.attn.wkv",
                 "layers.5.ffn.experts.3.w2", "mtp.0.ffn.shared_experts.w1"):  # fmt: skip
        assert tensors[name + ".weight"].dtype is torch.int8
        rows = len(tensors[name + ".weight"])
        assert tensors[name + ".weight_scale"].shape == (rows, 1)
        assert not tensors[name + ".weight_offset"].any()
        assert {name + ".weight", name + ".weight_scale", name + ".weight_offset"} <= dynamic
    for name in ("layers.0.attn.wo_a", "layers.0.attn.wo_b", "layers.1.attn.compressor.wkv",
                 "layers.3.attn.indexer.wk", "layers.3.attn.indexer.weights_proj",
                 "layers.0.ffn.gate", "layers.1.engram.wkv", "mtp.0.main_proj",
                 "mtp.2.markov_head.head", "head", "embed"):  # fmt: skip
        assert description[name + ".weight"] == "FLOAT"
        assert tensors[name + ".weight"].dtype is torch.float32
    assert tensors["layers.1.engram.embed.weight"].dtype is torch.int8
    assert tensors["layers.1.engram.embed.scale"].shape == (1060, 1)


def test_a_converted_directory_loads_and_stays_near_the_float_model(tmp_path, floats):
    checkpoint.write_directory(tmp_path / "float", floats)
    w8a8.convert_directory(tmp_path / "float", tmp_path / "w8a8")
    raw = json.loads((tmp_path / "w8a8/config.json").read_text())
    assert raw["quantization_config"]["quant_method"] == "ascend"
    assert w8a8.loader_of(tmp_path / "w8a8") is w8a8.load_w8a8
    assert w8a8.loader_of(tmp_path / "float") is not w8a8.load_w8a8
    assert (tmp_path / "w8a8/tokenizer.json").is_file()
    flat, names = w8a8.load_w8a8(read_tensors(tmp_path / "w8a8"), CONFIG, torch.float32)
    assert names == set(json.loads((tmp_path / "w8a8" / w8a8.DESCRIPTION).read_text())) - {
        "model_quant_type"
    }
    ids = torch.randint(4, CONFIG.vocab_size, (2, 40), generator=torch.Generator().manual_seed(1))
    exact = forward_full(init_weights(CONFIG, 4), CONFIG, ids)
    near = forward_full(bind(flat, CONFIG), CONFIG, ids)
    assert 0 < (near - exact).pow(2).mean() < 0.05 * exact.pow(2).mean()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        pytest.param(
            lambda t: t.pop("layers.0.attn.wkv.weight_scale"),
            r"layers.0.attn.wkv.weight_scale: missing, expected \[64, 1\]",
            id="scale-missing",
        ),
        pytest.param(
            lambda t: t.update({"layers.0.attn.wkv.weight_scale": torch.ones(64)}),
            r"weight_scale: shape \[64\], expected \[64, 1\]",
            id="scale-shape",
        ),
        pytest.param(
            lambda t: t.update({"layers.0.attn.wkv.weight_offset": torch.ones(64, 1)}),
            "weight_offset: not zero",
            id="asymmetric",
        ),
        pytest.param(
            lambda t: t.update({"layers.0.attn.wkv.weight": torch.ones(64, 128)}),
            "torch.float32, expected int8",
            id="float-weight",
        ),
        pytest.param(
            lambda t: t.update({"layers.0.attn.wo_b.weight_scale": torch.ones(128, 1)}),
            "surplus tensor.* layers.0.attn.wo_b.weight_scale",
            id="surplus-scale",
        ),
        pytest.param(lambda t: t.pop("norm.weight"), "norm.weight", id="tensor-missing"),
    ],
)
def test_a_wrong_checkpoint_is_named_in_one_line(quantised, change, line):
    tensors = dict(quantised[0])
    change(tensors)
    with pytest.raises(CheckpointError, match=line) as caught:
        w8a8.load_w8a8(tensors.items(), CONFIG, torch.float32)
    assert "\n" not in str(caught.value)


def test_converting_twice_is_refused(tmp_path, floats):
    checkpoint.write_directory(tmp_path / "float", floats)
    w8a8.convert_directory(tmp_path / "float", tmp_path / "w8a8")
    with pytest.raises(ConfigError, match="is W8A8 already"):
        w8a8.convert_directory(tmp_path / "w8a8", tmp_path / "again")
