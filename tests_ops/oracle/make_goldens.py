"""Checkpoint directory -> golden greedy outputs of prompts of mixed length, as one JSON file.

`python -m tests_ops.oracle.make_goldens CHECKPOINT --out FILE`
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests_ops.oracle import checkpoint
from tests_ops.oracle.generate import generate
from tests_ops.oracle.goldens import SCHEMA, Golden

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def prompt_lengths(count: int, window: int, longest: int, source: random.Random) -> list[int]:
    """Edges of groups, windows and cache blocks first, then a log-uniform mix."""
    edges = {1, 2, 3, window - 1, window, window + 1}
    edges |= {block + d for block in (8, 16, 32, 64, 128) for d in (-1, 0, 1)}
    lengths = sorted(n for n in edges if 1 <= n <= longest)[:count]
    while len(lengths) < count:
        lengths.append(round(longest ** source.random()))
    return lengths


def random_prompts(text: dict[str, Any], usable: int, args: argparse.Namespace) -> list[list[int]]:
    """Seeded token ids below `usable`, no special ones (0, 1, 2 and the noise id)."""
    source = random.Random(args.seed)
    special = {0, 1, 2, text["dspark_noise_token_id"]}
    ordinary = [i for i in range(usable) if i not in special]
    lengths = prompt_lengths(args.prompts, text["sliding_window"], args.longest, source)
    return [[source.choice(ordinary) for _ in range(n)] for n in lengths]


def text_prompts(tokenizer_json: Path, lines: Path, count: int) -> list[list[int]]:
    """The first `count` lines of a text file as token ids, no special tokens added."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    texts = [line for line in lines.read_text().splitlines() if line][:count]
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def golden(directory: Path, dtype: str, max_tokens: int, item: tuple[str, list[int]]) -> Golden:
    """One greedy run; loads the checkpoint once per process."""
    model = _loaded(directory, dtype)
    out = generate(model, item[1], max_tokens)
    return Golden(id=item[0], prompt=item[1], tokens=out.tokens, gaps=out.gaps)


_MODELS: dict[tuple[Path, str], Any] = {}


def _loaded(directory: Path, dtype: str) -> Any:
    if (directory, dtype) not in _MODELS:
        torch.set_num_threads(1)
        _MODELS[directory, dtype] = checkpoint.load(directory, dtype=DTYPES[dtype])
    return _MODELS[directory, dtype]


def file_hashes(directory: Path) -> dict[str, str]:
    """sha256 of what decides the outputs."""
    names = sorted(
        p.name
        for p in directory.iterdir()
        if p.suffix == ".safetensors" or p.name in ("config.json", "tokenizer.json")
    )
    return {n: hashlib.sha256((directory / n).read_bytes()).hexdigest() for n in names}


def write_new(path: Path, record: dict[str, Any]) -> None:
    """Temp name, fsync, link: an existing file is never replaced."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "x") as out:
        json.dump(record, out, separators=(",", ":"))
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests_ops.oracle.make_goldens")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--longest", type=int, default=160, help="longest random prompt, tokens")
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float64")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--text", type=Path, help="prompts from the lines of this file instead")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when the file was written, 2 on an unusable request."""
    args = parse(argv)
    try:
        if args.out.exists():
            raise FileExistsError(f"{args.out} exists; goldens are not overwritten, remove it")
        text = checkpoint.read_text_config(args.checkpoint)
        tokenizer = args.checkpoint / "tokenizer.json"
        model = _loaded(args.checkpoint, args.dtype)
        if args.text:
            prompts = text_prompts(tokenizer, args.text, args.prompts)
        else:
            usable = min(model.token_map.numel(), text["vocab_size"])
            prompts = random_prompts(text, usable, args)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"make_goldens: {error}\n")
        return 2
    items = [(f"p{i:03d}", prompt) for i, prompt in enumerate(prompts)]
    run = partial(golden, args.checkpoint, args.dtype, args.max_tokens)
    if args.jobs > 1:
        with ProcessPoolExecutor(args.jobs) as pool:
            goldens = list(pool.map(run, items))
    else:
        goldens = [run(item) for item in items]
    record = {
        "schema": SCHEMA,
        "checkpoint": file_hashes(args.checkpoint),
        "dtype": args.dtype,
        "max_tokens": args.max_tokens,
        "seed": args.seed,
        "least_gap": min(gap for g in goldens for gap in g.gaps),
        "prompts": [asdict(g) for g in goldens],
    }
    write_new(args.out, record)
    sys.stdout.write(f"{args.out}: {len(goldens)} prompts, least gap {record['least_gap']:.3g}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
