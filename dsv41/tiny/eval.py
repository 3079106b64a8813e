"""Count right answers on the frozen questions, and the drafts' acceptance length.

    python -m dsv41.tiny.eval [--weights FILE] [--details FILE]

prints `float32 N/300`, `w8a8 M/300` and `acceptance length X`.  Greedy, offline, by the
engine-agnostic model; an answer is right if its last number is the gold one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from dsv41.model.config import ModelConfig
from dsv41.model.loader import load_official
from dsv41.model.params import ModelParams, bind
from dsv41.model.vocabulary import TokenMap
from dsv41.model.w8a8 import convert, load_w8a8
from dsv41.tiny import checkpoint, data, questions
from dsv41.tiny.acceptance_length import Count, measure
from dsv41.tiny.decode import EOS, greedy
from dsv41.tiny.questions import Question
from dsv41.tiny.tokenizer import build_tokenizer, ngram_map

CAP = 64  # answer tokens; a longer answer is cut and then most likely wrong
_NUMBER = re.compile(r"-?\d+\.\d+|-?\d+")


class Setup(NamedTuple):
    """Configuration, tokenizer and n-gram map of the small model."""

    config: ModelConfig
    tokenizer: Tokenizer
    map: TokenMap


class Result(NamedTuple):
    """The answers' tokens and texts in order, and which are right."""

    tokens: list[list[int]]
    texts: list[str]
    right: list[bool]


def setup() -> Setup:
    config, tokenizer = ModelConfig.from_file(checkpoint.CONFIG), build_tokenizer()
    return Setup(config, tokenizer, ngram_map(tokenizer, config))


def float_params(tensors: Mapping[str, Tensor], config: ModelConfig) -> ModelParams:
    """The float32 model of official tensors."""
    return bind(load_official(tensors.items(), config, torch.float32)[0], config)


def w8a8_params(tensors: Mapping[str, Tensor], config: ModelConfig) -> ModelParams:
    """The model after conversion to W8A8 and loading it back."""
    quantised, _ = convert(tensors, config)
    return bind(load_w8a8(quantised.items(), config, torch.float32)[0], config)


def last_number(text: str) -> str | None:
    """What the scorer of the accuracy stage extracts."""
    found = _NUMBER.findall(text.partition("Question:")[0])
    return found[-1] if found else None


def prompts(made: Setup, asked: tuple[Question, ...]) -> list[list[int]]:
    """Token ids of the frozen prompt form, thinking off."""
    return [made.tokenizer.encode(data.prompt_text(q.question)).ids for q in asked]


def evaluate(params: ModelParams, made: Setup, asked: tuple[Question, ...]) -> Result:
    """Ask every question once, greedily."""
    worked = [q.answer.replace("#### ", "answer:") for q in asked]
    guesses = [[*made.tokenizer.encode(text).ids, EOS] for text in worked]
    tokens = greedy(params, made.config, made.map, prompts(made, asked), guesses, CAP)
    texts = [made.tokenizer.decode(t) for t in tokens]
    right = [last_number(t) == str(q.gold) for t, q in zip(texts, asked, strict=True)]
    return Result(tokens, texts, right)


def acceptance(params: ModelParams, made: Setup, result: Result, asked: Any) -> Count:
    """The drafts measured on the model's own answers."""
    return measure(params, made.config, made.map, prompts(made, asked), result.tokens)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dsv41.tiny.eval")
    parser.add_argument("--weights", type=Path, help="official tensors; default: the repository's")
    parser.add_argument("--details", type=Path, help="also write every answer, JSON lines")
    arguments = parser.parse_args(argv)
    try:
        asked, made = questions.load(), setup()
        weights = arguments.weights
        tensors = load_file(weights) if weights else checkpoint.load_weights()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"eval: {error}\n")
        return 2
    rows: list[dict[str, Any]] = []
    for name, build in (("float32", float_params), ("w8a8", w8a8_params)):
        params = build(tensors, made.config)
        result = evaluate(params, made, asked)
        sys.stdout.write(f"{name} {sum(result.right)}/{len(asked)}\n")
        sys.stdout.flush()
        rows += [
            {"format": name, "question": i, "answer": text, "gold": q.gold, "right": right}
            for i, (text, q, right) in enumerate(
                zip(result.texts, asked, result.right, strict=True)
            )
        ]
    count = acceptance(params, made, result, asked)
    sys.stdout.write(
        f"acceptance length {count.length:.3f}\n"
        f"({count.drafts} drafts of {made.config.dspark_block_size} tokens on w8a8; accepted by"
        f" position: {', '.join(map(str, count.accepted))})\n"
    )
    if arguments.details:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        arguments.details.write_text(lines, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
