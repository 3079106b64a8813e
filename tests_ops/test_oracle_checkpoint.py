"""Names, shapes, storage and dequantisation of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests_ops.oracle import checkpoint, forward, quant, tensors
from tests_ops.oracle.config import build_model
from tests_ops.oracle.tiny import RELEASED, TINY, VISION, random_tensors

pytestmark = pytest.mark.ops


# Minimum list 8.8.11.
def test_the_released_shape_table_has_the_released_totals() -> None:
    text = tensors.text_entries(RELEASED)
    every = text + tensors.vision_entries(RELEASED, VISION)

    assert sum(1 + (e.scale_shape is not None) for e in every) == 96_085
    assert sum(e.parameters for e in every) == 763_205_315_794
    assert sum(e.payload_bytes for e in every) == 510_286_023_000


# Minimum list 8.8.11.
def test_the_groups_of_the_released_table_add_up() -> None:
    entries = tensors.text_entries(RELEASED)
    draft = [e for e in entries if e.name.startswith("mtp.")]
    tables = [e for e in entries if e.name.endswith("engram.embed.weight")]
    names = {e.name for e in draft + tables}
    rest = [e for e in entries if e.name not in names]

    def totals(group: list[tensors.Entry]) -> tuple[int, int]:
        count = sum(1 + (e.scale_shape is not None) for e in group)
        return sum(e.parameters for e in group), count

    assert totals(draft) == (14_225_362_530, 2_401)
    assert totals(tables) == (196_613_849_600, 4)
    assert totals(rest) == (551_880_835_184, 93_414)


def test_tiny_shapes_are_those_of_appendix_b() -> None:
    shapes = {e.name: e.shape for e in tensors.text_entries(TINY)}

    assert shapes["layers.0.hc_attn_fn"] == (24, 512)
    assert shapes["layers.3.attn.wo_a.weight"] == (64, 128)
    assert shapes["layers.2.attn.compressor.wgate.weight"] == (64, 128)
    assert "layers.5.attn.compressor.wgate.weight" not in shapes
    assert shapes["layers.7.attn.indexer.wq_b.weight"] == (512, 64)
    assert "layers.7.attn.indexer.wk.weight" not in shapes
    assert shapes["layers.4.engram.wkv.weight"] == (640, 128)
    assert shapes["layers.4.engram.embed.weight"] == (370, 32)
    assert shapes["mtp.0.main_proj.weight"] == (128, 384)
    assert shapes["mtp.2.confidence_head.proj.weight"] == (1, 160)


def test_e8m0_bytes_are_reinterpreted() -> None:
    scale = torch.tensor([[127, 128, 0, 254]], dtype=torch.uint8)

    assert quant.e8m0(scale).tolist() == [[1.0, 2.0, 2.0**-127, 2.0**127]]


def test_fp4_bytes_hold_the_even_column_in_the_low_nibble() -> None:
    packed = torch.zeros(1, 16, dtype=torch.uint8)
    packed[0, 0] = 0x5 | 0xF << 4  # codes 5 -> 3.0 and 15 -> -6.0

    values = quant.dequantise("w", packed.view(torch.int8), torch.full((1, 1), 128).byte())

    assert values[0, :3].tolist() == [6.0, -12.0, 0.0]


def test_fp8_scales_cover_tiles_of_32_by_32_and_a_ragged_edge() -> None:
    weight = torch.ones(33, 64).to(torch.float8_e4m3fn)
    scale = torch.tensor([[127, 128], [129, 130]], dtype=torch.uint8)

    values = quant.dequantise("layers.0.attn.wkv.weight", weight, scale)

    assert values[[0, 31, 32, 32], [0, 32, 31, 63]].tolist() == [1.0, 2.0, 4.0, 8.0]


def test_engram_scales_are_per_row() -> None:
    weight = torch.ones(2, 64).to(torch.float8_e4m3fn)
    scale = torch.tensor([[127, 128], [129, 130]], dtype=torch.uint8)

    values = quant.dequantise("layers.1.engram.embed.weight", weight, scale)

    assert values[:, [0, 63]].tolist() == [[1.0, 2.0], [4.0, 8.0]]


def test_a_written_checkpoint_reads_back_as_the_values_it_stores(tmp_path: Path) -> None:
    stored = checkpoint.pack(TINY, random_tensors(TINY, 3))
    checkpoint.write(tmp_path / "model", TINY, stored)

    model = checkpoint.load(tmp_path / "model")

    direct = build_model(TINY, quant.dequantise_all(stored))
    tokens = [5, 9, 200, 17, 300, 42]
    assert torch.equal(forward(direct, tokens).logits, forward(model, tokens).logits)


def test_packing_twice_changes_nothing() -> None:
    once = quant.dequantise_all(checkpoint.pack(TINY, random_tensors(TINY, 3)))

    twice = quant.dequantise_all(checkpoint.pack(TINY, once))

    assert all(torch.equal(once[name], twice[name]) for name in once)


def test_packing_keeps_each_value_within_its_format() -> None:
    plain = random_tensors(TINY, 3)
    stored = quant.dequantise_all(checkpoint.pack(TINY, plain))

    def worst(name: str) -> float:
        return float((stored[name] - plain[name]).abs().max() / plain[name].abs().max())

    assert worst("layers.0.attn.wkv.weight") < 2**-4
    assert worst("layers.0.ffn.experts.0.w1.weight") < 2**-2
    assert worst("head.weight") < 2**-8
    assert worst("layers.0.hc_attn_fn") == 0


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    stored = checkpoint.pack(TINY, random_tensors(TINY, 3))
    del stored["layers.2.attn.compressor.norm.weight"]
    checkpoint.write(tmp_path / "model", TINY, stored)

    with pytest.raises(ValueError, match=r"1 tensors missing .*layers\.2\.attn\.compressor\.norm"):
        checkpoint.load(tmp_path / "model")
