"""Cases of the routed experts: all tokens to the same few, weights of 0, beyond the limit."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import BF16, F32, Args, Cases, Consumer, generator, normal
from dsv41.ops.exactness import Close
from dsv41.ops.experts.native import OP


def make(
    rows: int,
    dtype: torch.dtype,
    g: torch.Generator,
    d: int,
    inter: int,
    experts: int,
    k: int,
    limit: float,
) -> Args:
    index = torch.rand(rows, experts, generator=g).argsort(-1)[:, :k].contiguous()
    return (
        normal(g, rows, d, dtype=dtype),
        index,
        normal(g, rows, k).abs(),
        normal(g, experts, d, 2 * inter, scale=2 * d**-0.5),
        normal(g, experts, inter, d, scale=inter**-0.5),
        limit,
    )


def specials(dtype: torch.dtype) -> dict[str, Args]:
    named = {}
    for rows in (3, 12):
        g = generator(f"experts {rows}")
        x, index, weight, w13, w2, limit = make(rows, dtype, g, 32, 24, 8, 3, 1.0)
        same = index[:1].expand_as(index).contiguous()
        named |= {
            f"full-capacity-{rows}": (x, same, weight, w13, w2, limit),
            f"limit-0-{rows}": (x * 4, index, weight, w13, w2, 0.0),
            f"beyond-the-limit-{rows}": (x * 4, index, weight, w13, w2, limit),
            f"zero-weights-{rows}": (x, index, weight * 0, w13, w2, limit),
            f"zero-rows-{rows}": (x * 0, index, weight, w13, w2, limit),
            f"first-and-last-expert-{rows}": (
                x,
                torch.tensor([0, 7, 3]).expand(rows, 3).contiguous(),
                weight,
                w13,
                w2,
                limit,
            ),
        }
    return named


def loads(model) -> tuple[Args, Args]:
    config, bound = model.config, model.params.layers[0].moe
    g = generator("experts loader")
    x = normal(g, 6, config.hidden_size)
    count, k = config.n_routed_experts, config.num_experts_per_tok
    index = torch.rand(6, count, generator=g).argsort(-1)[:, :k].contiguous()
    weight = normal(g, 6, k).abs()
    w1, w3, w2 = (
        torch.stack(
            [model.official[f"layers.0.ffn.experts.{e}.{w}.weight"].t() for e in range(count)]
        )
        for w in ("w1", "w3", "w2")
    )
    limit = config.swiglu_limit
    return (x, index, weight, bound.w13, bound.w2, limit), (
        x,
        index,
        weight,
        torch.cat((w1, w3), -1),
        w2,
        limit,
    )


def weighted_after(x: Tensor, index: Tensor, weight: Tensor, w13: Tensor, w2: Tensor, limit: float):
    return OP.native(x, index, weight.square(), w13, w2, limit)


CASES = Cases(
    make=make,
    dims={
        "d": (32, 40),
        "inter": (24, 8),
        "experts": (8, 16, 40),
        "k": (3, 1, 6),
        "limit": (1.0, 0.0, 10.0),
    },
    dtypes=(F32,),
    inputs=(0, 1, 2),
    weights=(3, 4),
    specials=specials,
    loads=loads,
    declines={
        "no rows": make(0, F32, generator("none"), 32, 24, 8, 3, 1.0),
        "rows are not float32": make(6, BF16, generator("half"), 32, 24, 8, 3, 1.0),
        "many rows times experts": make(65, F32, generator("many"), 32, 24, 8, 3, 1.0),
    },
    consumers={
        "stream": Consumer(
            apply=lambda out, args: out[0].cumsum(-1),
            exactness=Close(rtol=1e-4, atol=1e-3, because="sums of 32 values of size 1"),
        )
    },
    faults={
        "last choice dropped": lambda x, i, w, a, b, n: OP.native(x, i[:, :-1], w[:, :-1], a, b, n),
        "weights of the neighbouring choice": lambda x, i, w, a, b, n: OP.native(
            x, i, w.roll(1, 1), a, b, n
        ),
        "weights applied twice": weighted_after,
        "neighbouring expert": lambda x, i, w, a, b, n: OP.native(x, (i + 1) % len(a), w, a, b, n),
        "limit forgotten": lambda x, i, w, a, b, n: OP.native(x, i, w, a, b, 0.0),
        "limit 0 clips to zero": lambda x, i, w, a, b, n: OP.native(x, i, w, a, b, max(n, 1e-30)),
        "halves swapped": lambda x, i, w, a, b, n: OP.native(
            x, i, w, torch.cat(a.chunk(2, -1)[::-1], -1), b, n
        ),
        "capacity of half the rows": lambda x, i, w, a, b, n: torch.cat(
            (
                OP.native(x[: (len(x) + 1) // 2], i, w, a, b, n),
                torch.zeros(len(x) // 2, x.shape[1]),
            )
        ),
    },
    timing={"d": 640, "inter": 288, "experts": 16, "k": 6},
    bound=lambda args: (
        min(args[1].numel(), len(args[3])) * (args[3][0].numel() + args[4][0].numel()) * 4,
        2 * args[1].numel() * (args[3][0].numel() + args[4][0].numel()),
    ),
)
