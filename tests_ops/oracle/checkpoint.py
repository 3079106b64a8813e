"""Checkpoint directory <-> (text_config, plain tensors). Sections 4.1 and 5."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests_ops.oracle import quant, tensors, token_map
from tests_ops.oracle.config import Model, build_model

STORED = {"BF16": torch.bfloat16, "F32": torch.float32, "F8": torch.float8_e4m3fn}


def read_text_config(directory: Path) -> dict[str, Any]:
    """The text_config of config.json; the file must be there."""
    config = json.loads((directory / "config.json").read_text())
    text: dict[str, Any] = config.get("text_config", config)
    return text


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """Every stored tensor of every shard, scales included."""
    found: dict[str, Tensor] = {}
    for shard in sorted(directory.glob("*.safetensors")):
        found |= load_file(shard)
    if not found:
        raise FileNotFoundError(f"{directory}: no *.safetensors")
    return found


def load(directory: Path, *, dtype: torch.dtype = torch.float32, rounding: bool = False) -> Model:
    """Model of a checkpoint directory; the token map comes from its tokenizer.json if any."""
    text = read_text_config(directory)
    plain = quant.dequantise_all(read_tensors(directory))
    wanted = {entry.name: entry.shape for entry in tensors.text_entries(text)}
    wrong = [n for n, shape in wanted.items() if n not in plain or tuple(plain[n].shape) != shape]
    if wrong:
        raise ValueError(f"{directory}: {len(wrong)} tensors missing or misshapen: {wrong[:5]}")
    tokenizer = directory / "tokenizer.json"
    expected = text["engram_compressed_vocab_size"]
    ids = token_map.read_token_map(tokenizer, expected) if tokenizer.exists() else None
    return build_model(text, plain, ids, dtype=dtype, rounding=rounding)


def pack(text: Mapping[str, Any], plain: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as the released checkpoint stores them: bf16, F32, FP8 tiles, packed FP4."""
    stored: dict[str, Tensor] = {}
    for entry in tensors.text_entries(text):
        value = plain[entry.name].to(torch.float32)
        if entry.scale_shape is None:
            stored[entry.name] = value.to(STORED[entry.storage])
            continue
        rows = -(-value.shape[0] // entry.scale_shape[0])
        weight, scale = _pack_scaled(value, rows, fp4=entry.storage == "FP4")
        stored[entry.name] = weight
        stored[entry.name.removesuffix(".weight") + ".scale"] = scale
    return stored


def _pack_scaled(value: Tensor, row_block: int, fp4: bool) -> tuple[Tensor, Tensor]:
    """(codes, E8M0 bytes) with one scale per `row_block` rows and 32 columns."""
    rows, columns = value.shape
    padded = torch.zeros(-(-rows // row_block) * row_block, -(-columns // 32) * 32)
    padded[:rows, :columns] = value
    tiles = padded.unflatten(0, (-1, row_block)).unflatten(2, (-1, 32))
    amax = tiles.abs().amax((1, 3), keepdim=True).clamp_min(1e-20)
    scale = quant.pow2ceil(amax / (quant.E2M1_MAX if fp4 else quant.E4M3_MAX))
    scaled = (tiles / scale).flatten(2, 3).flatten(0, 1)[:rows, :columns]
    bytes_ = (torch.frexp(scale[:, 0, :, 0]).exponent - 1 + 127).to(torch.uint8)
    if not fp4:
        return scaled.to(torch.float8_e4m3fn), bytes_
    table = torch.tensor(quant.E2M1_VALUES)
    rounded = quant.to_e2m1(scaled)
    codes = torch.searchsorted(table, rounded.abs()) + 8 * (rounded < 0)
    low, high = codes[:, ::2], codes[:, 1::2]
    return (low | high << 4).to(torch.uint8).view(torch.int8), bytes_


def write(directory: Path, text: Mapping[str, Any], stored: Mapping[str, Tensor]) -> None:
    """config.json with nested text_config, two shards and their index."""
    directory.mkdir(parents=True)
    config = {
        "architectures": ["DeepseekV41ForCausalLM"],
        "model_type": "deepseek_v41",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "text_config": dict(text),
    }
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    names = sorted(stored)
    weight_map = {}
    for part, chosen in enumerate((names[::2], names[1::2]), start=1):
        shard = f"model-{part:05d}-of-00002.safetensors"
        save_file({n: stored[n].contiguous() for n in chosen}, directory / shard)
        weight_map |= dict.fromkeys(chosen, shard)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
