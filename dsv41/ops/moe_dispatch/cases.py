"""Cases of the dispatch: every token to one expert, no token active, the last expert."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Bitwise
from dsv41.ops.moe_dispatch.native import OP


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int, experts: int, k: int) -> Args:
    index = torch.rand(rows, experts, generator=g).argsort(-1)[:, :k].contiguous()
    return normal(g, rows, d, dtype=dtype), index, integers(g, 0, 4, rows) > 0, experts


def specials(dtype: torch.dtype) -> dict[str, Args]:
    x, index, active, experts = make(12, dtype, generator("dispatch"), 16, 8, 3)
    odd = x.clone()
    odd[0], odd[1] = torch.nan, -0.0
    last = torch.tensor([7, 0, 6]).expand(12, 3).contiguous()
    return {
        "all-active": (x, index, active | True, experts),
        "none-active": (x, index, active & False, experts),
        "only-the-last-active": (x, index, torch.arange(12) == 11, experts),
        "full-capacity": (x, last, active | True, experts),
        "duplicate-routing": (x, torch.zeros_like(index), active, experts),
        "odd-values": (odd, index, active | True, experts),
    }


def unstable(x: Tensor, index: Tensor, active: Tensor, experts: int):
    rows, source, counts = OP.native(x.flip(0), index.flip(0), active.flip(0), experts)
    k = index.shape[1]
    mirrored = (len(x) - 1 - source // k) * k + source % k
    return rows, torch.where(source < 0, -1, mirrored), counts


CASES = Cases(
    make=make,
    dims={"d": (16, 1, 33), "experts": (8, 16), "k": (3, 1, 6)},
    inputs=(0, 1, 2),
    specials=specials,
    consumers={
        "experts": Consumer(
            apply=lambda out, args: out[0].float().cumsum(0),
            exactness=Bitwise(because="the same bits go in"),
        )
    },
    faults={
        "order inside an expert reversed": unstable,
        "prefix sums instead of counts": lambda *a: (
            *OP.native(*a)[:2],
            OP.native(*a)[2].cumsum(0),
        ),
        "masked rows sent": lambda x, i, a, e: OP.native(x, i, a | True, e),
        "last expert cut": lambda x, i, a, e: OP.native(x, i.clamp(max=e - 2), a, e),
        "unsent rows not cleared": lambda *a: (
            OP.native(*a)[0] + (OP.native(*a)[1] < 0).unsqueeze(1),
            *OP.native(*a)[1:],
        ),
        "source counts tokens": lambda *a: (
            OP.native(*a)[0],
            OP.native(*a)[1] // a[1].shape[1],
            OP.native(*a)[2],
        ),
    },
    timing={"d": 5120, "experts": 24, "k": 6},
    bound=lambda args: (
        2 * args[1].numel() * args[0].shape[1] * args[0].element_size(),
        0,
    ),
)
