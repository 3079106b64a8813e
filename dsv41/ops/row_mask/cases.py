"""Cases of the row mask: half, all and no rows kept, every bit pattern under each."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, integers, normal, special_rows
from dsv41.ops.exactness import Bitwise
from dsv41.ops.row_mask.native import OP


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int) -> Args:
    return normal(g, rows, d, dtype=dtype), integers(g, 0, 2, rows).bool()


def masks(x: Tensor) -> dict[str, Args]:
    n = x.shape[0]
    return {
        "all-kept": (x, torch.ones(n, dtype=torch.bool)),
        "none-kept": (x, torch.zeros(n, dtype=torch.bool)),
        "every-other": (x, torch.arange(n) % 2 == 0),
        "first-only": (x, torch.arange(n) == 0),
    }


def canonical_nan(x: Tensor, keep: Tensor) -> Tensor:
    out = OP.native(x, keep)
    return torch.where(out.isnan(), torch.full_like(out, torch.nan), out)


CASES = Cases(
    make=make,
    dims={"d": (64, 1, 33, 5120)},
    inputs=(0, 1),
    specials=lambda dtype: masks(torch.cat(list(special_rows(64, dtype).values()))),
    patterns=lambda values: masks(values.view(1024, 64)),
    consumers={
        "sum": Consumer(
            apply=lambda out, args: out[0].float().cumsum(0),
            exactness=Bitwise(because="the same bits go in"),
        )
    },
    faults={
        "product with the mask": lambda x, keep: x * keep.unsqueeze(-1).to(x.dtype),
        "inverted": lambda x, keep: OP.native(x, ~keep),
        "NaN made canonical": canonical_nan,
        "first row always kept": lambda x, keep: OP.native(x, keep | (torch.arange(len(x)) == 0)),
    },
    timing={"d": 5120},
    bound=lambda args: (2 * args[0].numel() * args[0].element_size(), 0),
)
