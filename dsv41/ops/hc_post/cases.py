"""Cases of the post: identity and permutation matrices show the orientation of comb."""

from __future__ import annotations

import torch

from dsv41.ops.case import Args, Cases, Consumer, generator, normal, special_rows
from dsv41.ops.exactness import Close
from dsv41.ops.hc_post.native import OP


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int, hc: int) -> Args:
    comb = normal(g, rows, hc, hc).softmax(-1)
    y, residual = normal(g, rows, d, dtype=dtype), normal(g, rows, hc, d, dtype=dtype)
    return y, residual, normal(g, rows, hc).sigmoid() * 2, comb


def specials(dtype: torch.dtype) -> dict[str, Args]:
    y, residual, post, _ = make(6, dtype, generator("post"), 64, 4)
    shift = torch.eye(4).roll(1, 1).expand(6, 4, 4).contiguous()
    same = torch.eye(4).expand(6, 4, 4).contiguous()
    named = {
        "identity-without-post": (y, residual, post * 0, same),
        "permutation": (y, residual, post, shift),
        "nothing-carried": (y, residual, post, shift * 0),
    }
    for name, row in special_rows(64, dtype).items():
        named[name] = (row, residual[:1], post[:1], shift[:1] + 0.25)
        named[f"{name}-residual"] = (
            y[:1],
            row.repeat(4, 1).unsqueeze(0),
            post[:1],
            shift[:1] + 0.25,
        )
    return named


CASES = Cases(
    make=make,
    dims={"d": (64, 32, 160, 5120), "hc": (4, 2)},
    inputs=(0, 1, 2, 3),
    specials=specials,
    consumers={
        "hc_pre": Consumer(
            apply=lambda out, args: out[0].float().square().mean((1, 2)),
            exactness=Close(rtol=1e-2, atol=0.0, because="a mean of squares one step off each"),
        )
    },
    faults={
        "comb transposed": lambda y, r, p, c: OP.native(y, r, p, c.mT.contiguous()),
        "post forgotten": lambda y, r, p, c: OP.native(y, r, p * 0, c),
        "residual of the first copy": lambda y, r, p, c: OP.native(y, r[:, :1].expand_as(r), p, c),
        "written to the first copy": lambda y, r, p, c: OP.native(
            y, r, p * torch.eye(p.shape[1])[0], c
        ),
    },
    timing={"d": 5120},
    bound=lambda args: (
        (args[0].numel() + 2 * args[1].numel()) * args[0].element_size(),
        10 * args[1].numel(),
    ),
)
