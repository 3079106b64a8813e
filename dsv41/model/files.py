"""Checkpoint files read tensor by tensor: one safetensors file, or shards under an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from dsv41.model.loader import CheckpointError

INDEX = "model.safetensors.index.json"


def read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Every `(name, tensor)` of a file or of a directory; a shard that is absent is an error.

    With an index, each name is read from the shard that the index gives.
    """
    if path.is_file():
        yield from _read_file(path, None)
        return
    index = path / INDEX
    if not index.is_file():
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise CheckpointError(f"{path}: no {INDEX} and no *.safetensors file")
        for file in files:
            yield from _read_file(file, None)
        return
    try:
        weight_map: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{index}: not a shard index: {error!r}") from None
    for shard in sorted(set(weight_map.values())):
        names = {name for name, where in weight_map.items() if where == shard}
        if not (path / shard).is_file():
            raise CheckpointError(f"{path / shard}: missing shard with {len(names)} tensors")
        yield from _read_file(path / shard, names)


def _read_file(path: Path, names: set[str] | None) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            held = list(file.keys())
            absent = sorted((names or set()) - set(held))
            if absent:
                raise CheckpointError(f"{path}: lacks {absent[0]}, which the index puts there")
            for name in held:
                yield name, file.get_tensor(name)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: not a safetensors file: {error}") from None
