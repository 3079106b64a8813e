"""What the cases of an operator are made of: generators of arguments, special values, faults.

One list per operator drives correctness, bit patterns, replay, fall-back, consumers, mutation
runs and timings, so that no shape is tested in one of them and forgotten in another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dsv41.ops.exactness import Exactness

Args = tuple[Any, ...]
F32, BF16 = torch.float32, torch.bfloat16

# P7.2: none, the rows of service per TP rank (6, 12), and fall-backs.
ROWS = (0, 1, 6, 12, 64, 257)


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """What reads the output: `apply(outputs, args)` in plain torch, and how close it must be."""

    apply: Callable[[tuple[Tensor, ...], Args], Tensor]
    exactness: Exactness


@dataclass(frozen=True, kw_only=True)
class Cases:
    """The data of one operator.

    `make(rows, dtype, generator, **dims)` gives arguments; `dims` lists the values of each
    dimension, the usual one first.  `inputs` and `weights` are positions that a replay rewrites.
    `specials(dtype)` and `patterns(all BF16 values)` give named arguments.  `declines` maps each
    reason of a backend's rules to arguments that must be refused.  `faults` are wrong backends
    that the checks must find.  `canonical` orders outputs whose order is free.  `loads(model)`
    gives arguments from the checkpoint loader and the same from the official tensors.
    """

    make: Callable[..., Args]
    dims: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    dtypes: tuple[torch.dtype, ...] = (F32, BF16)
    rows: tuple[int, ...] = ROWS
    inputs: tuple[int, ...] = (0,)
    weights: tuple[int, ...] = ()
    specials: Callable[[torch.dtype], Mapping[str, Args]] = lambda dtype: {}
    patterns: Callable[[Tensor], Mapping[str, Args]] | None = None
    declines: Mapping[str, Args] = field(default_factory=dict)
    faults: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    consumers: Mapping[str, Consumer] = field(default_factory=dict)
    canonical: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]] | None = None
    loads: Callable[[Any], tuple[Args, Args]] | None = None
    timing: Mapping[str, Any] = field(default_factory=dict)
    bound: Callable[[Args], tuple[int, int]] | None = None

    def sample(self, rows: int, dtype: torch.dtype, seed: str, **dims: Any) -> Args:
        """Arguments that depend on nothing but these values."""
        chosen = {name: values[0] for name, values in self.dims.items()} | dims
        return self.make(rows, dtype, generator(seed), **chosen)


def generator(seed: str) -> torch.Generator:
    """A generator seeded by the name of a case."""
    digest = hashlib.sha256(seed.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def normal(g: torch.Generator, *shape: int, dtype: torch.dtype = F32, scale: float = 1.0) -> Tensor:
    """Normal values, rounded to `dtype`."""
    return (torch.randn(*shape, generator=g) * scale).to(dtype)


def integers(g: torch.Generator, low: int, high: int, *shape: int) -> Tensor:
    """Integers `low <= n < high`, int64."""
    return torch.randint(low, high, shape, generator=g)


def every_bf16() -> Tensor:
    """All 65536 BF16 bit patterns in order."""
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(BF16)


def finite_bf16(largest: float = torch.inf) -> Tensor:
    """The BF16 values within +-`largest`, padded with zeros to 65536."""
    x = every_bf16()
    return torch.where(x.isfinite() & (x.float().abs() <= largest), x, torch.zeros_like(x))


def special_rows(d: int, dtype: torch.dtype) -> Mapping[str, Tensor]:
    """Rows `[1, d]` of the values that break kernels, by name."""
    ramp = torch.linspace(-2, 2, d).to(dtype)
    tiny = torch.finfo(dtype).smallest_normal

    def with_one(value: float) -> Tensor:
        row = ramp.clone()
        row[d // 2] = value
        return row

    rows = {
        "zeros": torch.zeros(d, dtype=dtype),
        "negative-zeros": -torch.zeros(d, dtype=dtype),
        "one-infinity": with_one(torch.inf),
        "one-negative-infinity": with_one(-torch.inf),
        "one-nan": with_one(torch.nan),
        "smallest-normals": torch.full((d,), tiny, dtype=dtype),
        "large": ramp * 2.0**40,
        "small": ramp * 2.0**-40,
    }
    return {name: row.unsqueeze(0) for name, row in rows.items()}
