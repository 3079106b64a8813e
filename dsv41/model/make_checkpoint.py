"""Write a seeded checkpoint directory: config, weights under official names, tokenizer.

    python -m dsv41.model.make_checkpoint --out DIR [--config FILE] [--seed N] [--init bigram]

The same arguments give the same bytes.  `--init plain` draws weights at full strength, where
nothing is learnt and drafts are never right; `bigram` (the default) makes a weak model whose
drafts are often accepted.
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

from safetensors.torch import save_file
from torch import Tensor

from dsv41.model.byte_tokenizer import build_tokenizer, tokenizer_settings
from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.init import init_weights
from dsv41.model.names import text_tensors
from dsv41.model.params import stacked_name
from dsv41.model.vocabulary import compressed_ids

SMALL_CONFIG = Path(__file__).with_name("small_config.json")


def write_checkpoint(out: Path, raw: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
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
        save_file(official_tensors(weights, config), str(work / "model.safetensors"))
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


def small_raw_config() -> dict[str, Any]:
    """The built-in small configuration: every layer kind, the byte tokenizer's vocabulary."""
    return json.loads(SMALL_CONFIG.read_text(encoding="utf-8"))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _with_tokenizer(raw: dict[str, Any]) -> dict[str, Any]:
    """Fill in what the byte tokenizer decides, and refuse a vocabulary that is too small."""
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
        write_checkpoint(arguments.out, raw, weights)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"make_checkpoint: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
