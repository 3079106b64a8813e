"""Cases of the two-level choice: ties everywhere, nothing within reach, half-filled blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.candidate_selection.native import OP
from dsv41.ops.case import F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Bitwise


def make(
    rows: int,
    dtype: torch.dtype,
    g: torch.Generator,
    q: int,
    t: int,
    block: int,
    blocks_kept: int,
    k: int,
) -> Args:
    # Halves of small integers: many scores are equal.
    score = (normal(g, rows, q, t) * 4).round() / 2
    return score, integers(g, 0, t + 1, rows, q), block, blocks_kept, k


def specials(dtype: torch.dtype) -> dict[str, Args]:
    named = {}
    for t in (40, 150):
        score, reach, *sizes = make(6, F32, generator(f"candidates {t}"), 2, t, 8, 3, 10)
        full = torch.full_like(reach, t)
        falling = -torch.arange(t).float().expand_as(score).contiguous()
        named |= {
            f"nothing-reachable-{t}": (score, reach * 0, *sizes),
            f"one-reachable-{t}": (score, reach * 0 + 1, *sizes),
            f"all-equal-{t}": (score * 0, full, *sizes),
            f"both-zeros-{t}": (torch.where(score > 0, 0.0, -0.0), full, *sizes),
            f"newest-is-worst-{t}": (falling, full, *sizes),
            f"reach-inside-a-block-{t}": (falling, full - 3, *sizes),
            f"all-blocks-kept-{t}": (score, full, 8, 100, 10),
            f"more-picks-than-positions-{t}": (score, full, 8, 3, 200),
            f"infinite-scores-{t}": (torch.where(score > 1, torch.inf, score), full, *sizes),
        }
    return named


def newest_not_pinned(score: Tensor, reach: Tensor, block: int, kept: int, k: int):
    far = torch.cat((score, torch.full((*score.shape[:2], block), -1e30)), -1)
    mask, index, valid = OP.native(far, torch.full_like(reach, far.shape[-1]), block, kept, k)
    t = score.shape[-1]
    return mask[..., :t].contiguous(), index[..., : min(k, t)], valid[..., : min(k, t)]


CASES = Cases(
    make=make,
    dims={
        "q": (2, 1),
        "t": (40, 37, 1, 150),
        "block": (8, 4),
        "blocks_kept": (3, 1),
        "k": (10, 1, 16),
    },
    dtypes=(F32,),
    inputs=(0, 1),
    specials=specials,
    declines={"no rows": make(0, F32, generator("none"), 2, 40, 8, 3, 10)},
    consumers={
        "gather": Consumer(
            apply=lambda out, args: torch.where(out[2], out[1], -1),
            exactness=Bitwise(because="positions"),
        )
    },
    faults={
        "newest block not pinned": newest_not_pinned,
        "one block less": lambda s, r, b, n, k: OP.native(s, r, b, n - 1, k),
        "reach ignored": lambda s, r, b, n, k: OP.native(s, r * 0 + s.shape[-1], b, n, k),
        "reach one short": lambda s, r, b, n, k: OP.native(s, (r - 1).clamp(min=0), b, n, k),
        "larger position among equals": lambda s, r, b, n, k: (
            OP.native(s, r, b, n, k)[0],
            OP.native(s + 1e-6 * torch.arange(s.shape[-1]), r, b, n, k)[1],
            OP.native(s, r, b, n, k)[2],
        ),
    },
    timing={"q": 6, "t": 4096, "blocks_kept": 64, "k": 128},
    bound=lambda args: (2 * args[0].numel() * 4, args[0].numel()),
)
