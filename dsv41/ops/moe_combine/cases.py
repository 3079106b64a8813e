"""Cases of the combine: what the dispatch made, with rows that were never sent."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, generator, normal
from dsv41.ops.exactness import Bitwise
from dsv41.ops.moe_combine.native import OP
from dsv41.ops.moe_dispatch import cases as dispatch
from dsv41.ops.moe_dispatch.native import moe_dispatch


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int, experts: int, k: int) -> Args:
    x, index, active, experts = dispatch.make(rows, dtype, g, d, experts, k)
    return _sent(x, index, active, experts, normal(g, rows, k).abs(), g)


def _sent(x, index, active, experts, weight, g) -> Args:
    _, source, _ = moe_dispatch.native(x, index, active, experts)
    # What experts gave back: every row its own values, and rubbish where nothing was sent.
    rows = normal(g, index.numel(), x.shape[1], dtype=x.dtype)
    rows[source < 0] = torch.nan
    return rows, source, weight


def specials(dtype: torch.dtype) -> dict[str, Args]:
    g = generator("combine")
    x, index, active, experts = dispatch.make(12, dtype, g, 16, 8, 3)
    weight = normal(g, 12, 3).abs()
    rows, source, _ = _sent(x, index, active | True, experts, weight, g)
    large = rows.clone()
    large[:, 0] = 2.0**30 * (-1.0) ** torch.arange(len(rows)).to(dtype)
    return {
        "all-active": (rows, source, weight),
        "none-active": _sent(x, index, active & False, experts, weight, g),
        "zero-weights": (rows, source, weight * 0),
        "cancelling": (large, source, weight),
        "negative-zeros": (-rows * 0, source, weight),
    }


def other_order(rows: Tensor, source: Tensor, weight: Tensor) -> Tensor:
    k = weight.shape[1]
    swapped = source // k * k + (k - 1 - source % k)
    return OP.native(rows, torch.where(source < 0, -1, swapped), weight.flip(1))


CASES = Cases(
    make=make,
    dims={"d": (16, 1, 33), "experts": (8, 16), "k": (3, 1, 6)},
    inputs=(0, 1, 2),
    specials=specials,
    consumers={
        "stream": Consumer(
            apply=lambda out, args: out[0].cumsum(-1),
            exactness=Bitwise(because="the same bits go in"),
        )
    },
    faults={
        "summed in the other order": other_order,
        "summed in bfloat16": lambda r, s, w: OP.native(r, s, w).to(torch.bfloat16).float(),
        "not weighted": lambda r, s, w: OP.native(r, s, torch.ones_like(w)),
        "unsent rows read": lambda r, s, w: OP.native(r, torch.where(s < 0, 0, s), w),
        "origin ignored": lambda r, s, w: OP.native(
            r, torch.where(s < 0, -1, torch.arange(len(s))), w
        ),
    },
    timing={"d": 5120, "experts": 24, "k": 6},
    bound=lambda args: (
        args[0].numel() * args[0].element_size() + 4 * args[0].numel() // args[2].shape[1],
        2 * args[0].numel(),
    ),
)
