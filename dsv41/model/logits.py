"""Logits of a prompt, from a config and weights, as JSON; the same bytes on every run.

    python -m dsv41.model.logits --config FILE --weights FILE|DIR|seed:N --tokens 1,2,3

`--weights` takes one safetensors file, a directory with an index, or `seed:N` for the seeded
weights of `make_checkpoint --init plain`.  `--all` prints every position instead of the last.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.files import read_tensors
from dsv41.model.full import forward_full
from dsv41.model.init import init_weights
from dsv41.model.loader import load_official
from dsv41.model.quant import Rounding
from dsv41.model.vocabulary import token_map


def compute(
    config: ModelConfig, weights: str, tokens: list[int], rounding: Rounding, tokenizer: Path
) -> tuple[Tensor, int]:
    """Logits `[S, vocab]` float32, and how many distinct ids the n-gram hash sees."""
    if weights.startswith("seed:"):
        flat = init_weights(config, int(weights.removeprefix("seed:")))
    else:
        flat, _ = load_official(read_tensors(Path(weights)), config, torch.float32)
    mapping = token_map(config, tokenizer)
    with torch.inference_mode():
        out = forward_full(flat, config, torch.tensor([tokens]), mapping, rounding)[0]
    return out, len(mapping.ids.unique())


def report(logits: Tensor, tokens: list[int], distinct: int, *, every: bool) -> dict[str, Any]:
    """What is printed: float32 values as shortest decimals that read back the same."""
    rows = logits if every else logits[-1:]
    return {
        "schema": 1,
        "tokens": tokens,
        "argmax": logits.argmax(-1).tolist(),
        "engram_distinct_ids": distinct,
        "positions": list(range(len(tokens)))[-len(rows) :],
        "logits": [[float(f"{v:.9g}") for v in row] for row in rows.tolist()],
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dsv41.model.logits")
    parser.add_argument("--config", type=Path, required=True, help="config.json")
    parser.add_argument("--weights", required=True, help="safetensors file, directory or seed:N")
    parser.add_argument("--tokens", required=True, help="comma-separated ids")
    parser.add_argument("--tokenizer", type=Path, help="directory; default: the config's own")
    parser.add_argument("--rounding", action="store_true", help="round as the release does")
    parser.add_argument("--all", action="store_true", help="every position, not the last only")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    try:
        config = ModelConfig.from_file(arguments.config)
        tokens = _tokens(arguments.tokens, config)
        tokenizer = arguments.tokenizer or arguments.config.parent
        rounding = Rounding(arguments.rounding)
        logits, distinct = compute(config, arguments.weights, tokens, rounding, tokenizer)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"logits: {error}\n")
        return 2
    sys.stdout.write(json.dumps(report(logits, tokens, distinct, every=arguments.all)) + "\n")
    return 0


def _tokens(text: str, config: ModelConfig) -> list[int]:
    try:
        tokens = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--tokens {text!r}: not a comma-separated list of ids") from None
    wrong = [t for t in tokens if not 0 <= t < config.vocab_size]
    if wrong:
        raise ConfigError(f"--tokens: id {wrong[0]} is outside 0..{config.vocab_size - 1}")
    if len(tokens) > config.max_position_embeddings:
        raise ConfigError(f"--tokens: more than {config.max_position_embeddings} ids")
    return tokens


if __name__ == "__main__":
    sys.exit(main())
