"""Cases of the int8 experts: masks, full capacity, zero rows, the converted checkpoint."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import BF16, F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Close
from dsv41.ops.experts_w8a8.native import OP


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
    def codes(*shape: int) -> Tensor:
        return integers(g, -127, 128, *shape).to(torch.int8)

    return (
        normal(g, rows, d, dtype=dtype),
        torch.rand(rows, experts, generator=g).argsort(-1)[:, :k].contiguous(),
        normal(g, rows, k).abs(),
        integers(g, 0, 4, rows) > 0,
        codes(experts, 2 * inter, d),
        normal(g, experts, 2 * inter, 1).abs() * d**-0.5 / 50,
        codes(experts, d, inter),
        normal(g, experts, d, 1).abs() * inter**-0.5 / 70,
        limit,
    )


def specials(dtype: torch.dtype) -> dict[str, Args]:
    named = {}
    for rows in (2, 12):
        g = generator(f"w8a8 experts {rows}")
        x, index, weight, active, *rest = make(rows, dtype, g, 32, 24, 8, 3, 1.0)
        same = index[:1].expand_as(index).contiguous()
        broken = x.clone()
        broken[0] = torch.inf
        named |= {
            f"all-active-{rows}": (x, index, weight, active | True, *rest),
            f"none-active-{rows}": (x, index, weight, active & False, *rest),
            f"full-capacity-{rows}": (x, same, weight, active | True, *rest),
            f"zero-rows-{rows}": (x * 0, index, weight, active | True, *rest),
            f"limit-0-{rows}": (x * 4, index, weight, active, *rest[:-1], 0.0),
            f"masked-row-is-infinite-{rows}": (
                broken,
                index,
                weight,
                torch.arange(rows) > 0,
                *rest,
            ),
        }
    return named


def loads(model) -> tuple[Args, Args]:
    config, bound = model.config, model.int8_params.layers[0].moe
    x, index, weight, active, *_ = make(
        6,
        F32,
        generator("w8a8 loader"),
        config.hidden_size,
        4,
        config.n_routed_experts,
        config.num_experts_per_tok,
        1.0,
    )
    first, second = bound.w13.transpose(1, 2), bound.w2.transpose(1, 2)
    held = {}
    for kind in ("weight", "weight_scale"):
        parts = {
            w: torch.stack(
                [
                    model.int8[f"layers.0.ffn.experts.{e}.{w}.{kind}"]
                    for e in range(config.n_routed_experts)
                ]
            )
            for w in ("w1", "w3", "w2")
        }
        held[kind] = torch.cat((parts["w1"], parts["w3"]), 1), parts["w2"]
    rows = (x, index, weight, active)
    loaded = (first.codes, first.scale, second.codes, second.scale)
    by_hand = (
        held["weight"][0],
        held["weight_scale"][0],
        held["weight"][1],
        held["weight_scale"][1],
    )
    limit = config.swiglu_limit
    return (*rows, *loaded, limit), (*rows, *by_hand, limit)


def changed(position: int, change):
    def fault(*args):
        return OP.native(*args[:position], change(args[position]), *args[position + 1 :])

    return fault


CASES = Cases(
    make=make,
    dims={
        "d": (32, 40),
        "inter": (24, 8),
        "experts": (8, 16),
        "k": (3, 1),
        "limit": (1.0, 0.0, 10.0),
    },
    dtypes=(F32,),
    rows=(0, 1, 6, 12, 64, 257),
    inputs=(0, 1, 2, 3),
    weights=(4, 5, 6, 7),
    specials=specials,
    loads=loads,
    declines={
        "no rows": make(0, F32, generator("none"), 32, 24, 8, 3, 1.0),
        "rows are not float32": make(6, BF16, generator("half"), 32, 24, 8, 3, 1.0),
    },
    consumers={
        "stream": Consumer(
            apply=lambda out, args: out[0].sum(-1),
            exactness=Close(rtol=0.01, atol=0.01, because="sums of 32 values that may be off"),
        )
    },
    faults={
        "mask ignored": changed(3, lambda active: active | True),
        "mask inverted": changed(3, lambda active: ~active),
        "scale of the first expert for all": changed(5, lambda s: s[:1].expand_as(s)),
        "experts shifted": changed(4, lambda w: w.roll(1, 0)),
        "down scale forgotten": changed(7, lambda s: torch.ones_like(s)),
        "limit forgotten": changed(8, lambda limit: 0.0),
        "weights of the first choice for all": changed(2, lambda w: w[:, :1].expand_as(w)),
        "counts read as prefix sums": changed(1, lambda i: i.cumsum(1) % 8),
    },
    timing={"d": 640, "inter": 288, "experts": 16, "k": 6},
    bound=lambda args: (
        min(args[1].numel(), len(args[4])) * (args[4][0].numel() + args[6][0].numel()),
        2 * args[1].numel() * (args[4][0].numel() + args[6][0].numel()),
    ),
)
