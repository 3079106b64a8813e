"""Cases of the gather: fewer picks than groups, more, none, blocks in any order."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Close
from dsv41.ops.gather_selected.native import OP

BLOCK = 8


def make(
    rows: int,
    dtype: torch.dtype,
    g: torch.Generator,
    q: int,
    k: int,
    groups: int,
    ratio: int,
    width: int,
) -> Args:
    lengths = integers(g, q, groups * ratio + q, rows)
    if rows:
        lengths[0] = groups * ratio + q - 1
    blocks = -(-(groups * ratio + q) // BLOCK)
    table = torch.randperm(rows * blocks + 3, generator=g)[: rows * blocks].view(rows, blocks)
    records = normal(g, (rows * blocks + 3) * BLOCK, width)
    reach = (lengths // ratio).view(rows, 1, 1)
    order = torch.rand(rows, q, groups, generator=g)
    # Distinct picks in random order; those beyond a request's own groups are not valid.
    index = order.argsort(-1)[..., :k]
    valid = (index < reach) & (torch.rand(index.shape, generator=g) < 0.9)
    return records, table, lengths, index, valid, BLOCK, ratio


def specials(dtype: torch.dtype) -> dict[str, Args]:
    args = make(6, F32, generator("gather"), 2, 5, 40, 2, 16)
    records, table, lengths, index, valid, block, ratio = args
    full = make(6, F32, generator("gather all"), 2, 40, 40, 1, 16)
    odd = records.clone()
    odd[:, 1] = torch.nan
    odd[:, 2] = -0.0
    return {
        "none-valid": (records, table, lengths, index, valid & False, block, ratio),
        "every-group": full,
        "nan-and-negative-zero": (odd, table, lengths, index, valid, block, ratio),
        "two-queries-pick-alike": (
            records,
            table,
            lengths,
            index[:, :1].expand_as(index).contiguous(),
            valid[:, :1].expand_as(valid).contiguous(),
            block,
            ratio,
        ),
    }


def by_first_column(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Rows of a query in the order of their first value: the order itself is free."""
    (rows,) = outputs
    order = rows[..., 0].argsort(dim=-1, stable=True).unsqueeze(-1)
    return (rows.gather(2, order.expand_as(rows)),)


def off_by_one(records: Tensor, table: Tensor, lens: Tensor, index: Tensor, *rest) -> Tensor:
    return OP.native(records, table, lens, (index + 1).clamp(max=int(lens.min()) // 2), *rest)


CASES = Cases(
    make=make,
    dims={
        "q": (2, 1, 6),
        "k": (5, 1, 12),
        "groups": (40, 12, 13),
        "ratio": (2, 1),
        "width": (16, 1),
    },
    dtypes=(F32,),
    specials=specials,
    canonical=by_first_column,
    inputs=(0, 3, 4),
    declines={"no rows": make(0, F32, generator("none"), 2, 5, 40, 2, 16)},
    consumers={
        "attention": Consumer(
            apply=lambda out, args: out[0].sum(2),
            exactness=Close(rtol=1e-4, atol=1e-5, because="a sum in a free order"),
        )
    },
    faults={
        "first block for all": lambda r, t, *rest: OP.native(r, t[:, :1].expand_as(t), *rest),
        "group of the next token": off_by_one,
        "first token of the group": lambda r, t, n, i, v, b, ratio: (
            OP.native(r, t, n, i, v, b, ratio)
            if ratio == 1
            else OP.native(r.roll(1, 0), t, n, i, v, b, ratio)
        ),
        "invalid picks too": lambda r, t, n, i, v, *rest: OP.native(r, t, n, i, v | True, *rest),
        "last pick dropped": lambda r, t, n, i, v, *rest: OP.native(
            r, t, n, i, v & (torch.arange(v.shape[-1]) < v.shape[-1] - 1), *rest
        ),
    },
    timing={"q": 6, "k": 512, "groups": 2048, "width": 512},
    bound=lambda args: (
        2 * args[3].numel() * args[0].shape[1] * args[0].element_size(),
        0,
    ),
)
