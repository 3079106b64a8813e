"""Cases of the clipped SwiGLU: both halves beyond the limit, limit 0, every bit pattern."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, normal, special_rows
from dsv41.ops.clipped_swiglu.native import OP
from dsv41.ops.exactness import Close


def make(rows: int, dtype: torch.dtype, g: torch.Generator, inter: int, limit: float) -> Args:
    joined = normal(g, rows, 2 * inter, dtype=dtype, scale=8.0)
    return joined, normal(g, rows, 1).abs(), limit


def specials(dtype: torch.dtype) -> dict[str, Args]:
    rows = torch.cat(list(special_rows(32, dtype).values()))
    beyond = torch.tensor([9.9, 10.0, 10.1, 500.0, -9.9, -10.0, -10.1, -500.0], dtype=dtype)
    named = {
        "beyond-the-limit": torch.cartesian_prod(beyond, beyond).repeat(1, 16).view(64, 16, 2),
        "specials-in-gate": torch.stack((rows, torch.ones_like(rows)), -1),
        "specials-in-value": torch.stack((torch.ones_like(rows), rows), -1),
    }
    return {
        f"{name}-limit-{limit:g}": (pairs.transpose(1, 2).flatten(1), None, limit)
        for name, pairs in named.items()
        for limit in (0.0, 10.0)
    }


def patterns(values: Tensor) -> dict[str, Args]:
    every = values.view(1024, 64)
    named = {}
    for other in (1.0, -3.0, 20.0):
        fixed = torch.full_like(every, other)
        for limit in (0.0, 10.0):
            gates, ups = torch.cat((every, fixed), 1), torch.cat((fixed, every), 1)
            named[f"gates-beside-{other:g}-limit-{limit:g}"] = (gates, None, limit)
            named[f"values-beside-{other:g}-limit-{limit:g}"] = (ups, None, limit)
    return named


def clipped_after_silu(joined: Tensor, weight: Tensor | None, limit: float) -> Tensor:
    gate, up = joined.double().chunk(2, dim=-1)
    hidden = gate / (1 + (-gate).exp())
    if limit > 0:
        hidden, up = hidden.clamp(max=limit), up.clamp(-limit, limit)
    return (hidden * up * (1.0 if weight is None else weight.double())).float()


def gate_clipped_below(joined: Tensor, weight: Tensor | None, limit: float) -> Tensor:
    gate, up = joined.chunk(2, dim=-1)
    if limit > 0:
        gate = gate.clamp(min=-limit)
    return OP.native(torch.cat((gate, up), -1), weight, limit)


CASES = Cases(
    make=make,
    dims={"inter": (48, 1, 33, 2304), "limit": (10.0, 0.0, 0.5)},
    inputs=(0, 1),
    specials=specials,
    patterns=patterns,
    consumers={
        "down projection": Consumer(
            apply=lambda out, args: out[0] @ torch.ones(out[0].shape[1], 2),
            exactness=Close(rtol=1e-4, atol=1e-2, because="sums of 48 values of up to 100"),
        )
    },
    faults={
        "limit 0 clips to zero": lambda j, w, limit: OP.native(j, w, max(limit, 1e-30)),
        "limit forgotten": lambda j, w, limit: OP.native(j, w, 0.0),
        "halves swapped": lambda j, w, limit: OP.native(
            torch.cat(j.chunk(2, -1)[::-1], -1), w, limit
        ),
        "clipped after silu": clipped_after_silu,
        "gate clipped from below": gate_clipped_below,
        "no weight": lambda j, w, limit: OP.native(j, None, limit),
        "NaN dropped": lambda j, w, limit: OP.native(j, w, limit).nan_to_num(),
    },
    timing={"inter": 2304},
    bound=lambda args: (
        args[0].numel() * (args[0].element_size() + 2),
        10 * args[0].numel() // 2,
    ),
)
