"""Write a seeded checkpoint directory: config, weights under official names, tokenizer.

    python -m dsv41.model.make_checkpoint --out DIR [--config FILE] [--seed N] [--init bigram]
        [--format released] [--shards N]

The same arguments give the same bytes.  `--init plain` draws weights at full strength, where
nothing is learnt and drafts are never right; `bigram` (the default) makes a weak model whose
drafts are often accepted.  `--format released` stores FP8, FP4 and bfloat16 tensors with their
scales as the release does; `--shards N` splits them over N files under an index.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from dsv41.model.byte_tokenizer import build_tokenizer, tokenizer_settings
from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.files import INDEX
from dsv41.model.init import init_weights
from dsv41.model.names import Storage, text_tensors
from dsv41.model.params import stacked_name
from dsv41.model.quant import quantise_fp4, quantise_fp8_rows, quantise_fp8_tiles
from dsv41.model.vocabulary import compressed_ids

SMALL_CONFIG = Path(__file__).with_name("small_config.json")


def write_checkpoint(
    out: Path,
    raw: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    *,
    released: bool = False,
    shards: int = 0,
) -> None:
    """A directory that vLLM can serve; it must not exist and appears at once, complete."""
    config = ModelConfig.from_dict(raw)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as name:
        work = Path(name) / "checkpoint"
        work.mkdir()
        (work / "config.json").write_text(_json(raw), encoding="utf-8")
        build_tokenizer().save(str(work / "tokenizer.json"))
        settings = tokenizer_settings(config.max_position_embeddings)
        (work / "tokenizer_config.json").write_text(_json(settings), encoding="utf-8")
        official = official_tensors(weights, config)
        _save(work, released_tensors(official, config) if released else official, shards)
        for file in work.iterdir():
            file.chmod(0o644)
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        os.rename(work, out)


def official_tensors(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """The flat dictionary with its experts taken apart, in the order of the table."""
    official = {}
    for spec in text_tensors(config):
        stacked = stacked_name(spec.name)
        tensor = weights[spec.name] if stacked is None else weights[stacked[0]][stacked[1]]
        official[spec.name] = tensor.detach().clone().contiguous()
    return official


def released_tensors(official: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Every tensor in the storage of the release, its scale after it."""
    stored: dict[str, Tensor] = {}
    for spec in text_tensors(config):
        tensor = official[spec.name]
        if spec.scale_name is None:
            stored[spec.name] = tensor.to(_PLAIN[spec.storage])
        else:
            stored[spec.name], stored[spec.scale_name] = _QUANTISERS[spec.storage](tensor)
    return stored


_PLAIN = {Storage.BF16: torch.bfloat16, Storage.F32: torch.float32}
_QUANTISERS = {
    Storage.FP8: quantise_fp8_tiles,
    Storage.FP8_ROWS: quantise_fp8_rows,
    Storage.FP4: quantise_fp4,
}
RELEASED_QUANTIZATION = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [32, 32],
    "scale_fmt": "ue8m0",
    "expert_dtype": "fp4",
}


def _save(work: Path, tensors: Mapping[str, Tensor], shards: int) -> None:
    """One file, or `shards` of them with the index that names each tensor's file."""
    if not shards:
        save_file(dict(tensors), str(work / "model.safetensors"))
        return
    names, weight_map = list(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[i::shards]}
        save_file(part, str(work / file))
        weight_map |= dict.fromkeys(part, file)
    size = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    (work / INDEX).write_text(_json(index), encoding="utf-8")


def small_raw_config() -> dict[str, Any]:
    """The built-in small configuration: every layer kind, the byte tokenizer's vocabulary."""
    return json.loads(SMALL_CONFIG.read_text(encoding="utf-8"))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _with_tokenizer(raw: dict[str, Any]) -> dict[str, Any]:
    """Fill in what the byte tokenizer decides, and refuse a vocabulary that is too small."""
    if "text_config" not in raw:
        raise ConfigError("the config is flat: put the model's keys under text_config")
    tokenizer = build_tokenizer()
    text = {**raw["text_config"]}
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if text["vocab_size"] < size:
        raise ConfigError(f"vocab_size {text['vocab_size']} is below the tokenizer's {size}")
    text["engram_compressed_vocab_size"] = max(compressed_ids(tokenizer)) + 1
    return {**raw, "text_config": text}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dsv41.model.make_checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="directory to create")
    parser.add_argument("--config", type=Path, help="config.json; default: the small one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--init", choices=("bigram", "plain"), default="bigram")
    parser.add_argument("--format", choices=("float32", "released"), default="float32")
    parser.add_argument("--shards", type=int, default=0, help="0: one file without an index")
    arguments = parser.parse_args(argv)
    try:
        if arguments.out.exists():
            raise ConfigError(f"{arguments.out}: exists already; choose another directory")
        if arguments.config is None:
            raw = small_raw_config()
        else:
            ModelConfig.from_file(arguments.config)
            raw = json.loads(arguments.config.read_text(encoding="utf-8"))
        raw = _with_tokenizer(raw)
        config = ModelConfig.from_dict(raw)
        weights = init_weights(config, arguments.seed, bigram=arguments.init == "bigram")
        released = arguments.format == "released"
        if released:
            raw |= {"dtype": "bfloat16", "quantization_config": RELEASED_QUANTIZATION}
        write_checkpoint(arguments.out, raw, weights, released=released, shards=arguments.shards)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"make_checkpoint: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
