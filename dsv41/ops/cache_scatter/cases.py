"""Cases of the cache write: chunks across blocks, the first position, odd values around."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.cache_scatter.native import OP
from dsv41.ops.case import F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Bitwise

BLOCK = 8


def make(
    rows: int, dtype: torch.dtype, g: torch.Generator, width: int, column: int, requests: int
) -> Args:
    count = max(1, min(requests, rows))
    # Every request has a token at least; the rest fall as they may.
    cuts = 1 + torch.randperm(max(rows - 1, 0), generator=g)[: count - 1].sort().values
    start = torch.cat((torch.zeros(1).long(), cuts, torch.tensor([rows])))
    lengths = integers(g, 0, 20, count) + start.diff()
    blocks = int(lengths.max()) // BLOCK + 1
    table = torch.randperm(count * blocks + 2, generator=g)[: count * blocks].view(count, blocks)
    records = normal(g, (count * blocks + 2) * BLOCK, column + width + 3)
    # What stands around a row must survive bit by bit.
    records[::5], records[1::5] = torch.nan, -0.0
    return records, normal(g, rows, width, dtype=dtype), start, lengths, table, BLOCK, column


def specials(dtype: torch.dtype) -> dict[str, Args]:
    records, rows, start, lengths, table, block, column = make(
        12, dtype, generator("scatter"), 16, 3, 3
    )
    odd = rows.clone()
    odd[0], odd[1], odd[2] = torch.nan, -0.0, torch.inf
    return {
        "odd-values": (records, odd, start, lengths, table, block, column),
        "from-position-0": (records, rows, start, start.diff(), table, block, column),
        "blocks-in-the-other-order": (records, rows, start, lengths, table.flip(1), block, column),
    }


def one_position_late(*a) -> Tensor:
    records, rows, start, lengths, table, block, column = a
    wide = torch.cat((table, table[:, :1]), 1)
    return OP.native(records, rows, start, lengths + 1, wide, block, column)


def last_row_lost(*a) -> Tensor:
    out, without = OP.native(*a), OP.native(a[0], a[1] * torch.nan, *a[2:])
    lost = OP.native(a[0] * 0, (torch.arange(len(a[1])) == len(a[1]) - 1)[:, None] * 1.0, *a[2:])
    return torch.where(lost.bool() & without.isnan(), a[0], out)


CASES = Cases(
    make=make,
    dims={"width": (16, 1, 33), "column": (3, 0), "requests": (3, 1, 8)},
    inputs=(1,),
    specials=specials,
    declines={"no rows": make(0, F32, generator("none"), 16, 3, 1)},
    consumers={
        "read back": Consumer(
            apply=lambda out, args: out[0].nan_to_num().cumsum(0),
            exactness=Bitwise(because="the same bits go in"),
        )
    },
    faults={
        "one position late": one_position_late,
        "last row lost": last_row_lost,
        "neighbouring column": lambda *a: OP.native(*a[:6], a[6] + 1),
        "first block for all": lambda *a: OP.native(*a[:4], a[4][:, :1].expand_as(a[4]), *a[5:]),
        "rounded on the way": lambda *a: OP.native(a[0], a[1].half(), *a[2:]),
        "records cleared": lambda *a: OP.native(a[0] * 0, *a[1:]),
    },
    timing={"width": 512, "column": 64, "requests": 2},
    bound=lambda args: (2 * (args[0].numel() + args[1].numel()) * 4, 0),
)
