"""Cases of the grouped projection: the order of heads in groups, the original weights."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import BF16, F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Close
from dsv41.ops.grouped_wo.native import OP
from dsv41.ops.rope.cases import rotation


def make(
    rows: int,
    dtype: torch.dtype,
    g: torch.Generator,
    groups: int,
    heads: int,
    width: int,
    rank: int,
    d: int,
) -> Args:
    inputs = heads * width
    return (
        normal(g, rows, groups * heads, width, dtype=dtype),
        rotation(integers(g, 0, 100_000, rows), width).conj().resolve_conj(),
        normal(g, groups, inputs, rank, scale=inputs**-0.5),
        normal(g, groups * rank, d, scale=(groups * rank) ** -0.5),
    )


def specials(dtype: torch.dtype) -> dict[str, Args]:
    attended, inverse, wo_a, wo_b = make(6, dtype, generator("wo"), 2, 2, 32, 8, 32)
    lone = attended * 0
    lone[:, 1] = attended[:, 1]
    return {
        "zeros": (attended * 0, inverse, wo_a, wo_b),
        "one-head": (lone, inverse, wo_a, wo_b),
        "position-0": (attended, torch.ones_like(inverse), wo_a, wo_b),
        "large": (attended * 2.0**20, inverse, wo_a, wo_b * 2.0**-20),
    }


def loads(model) -> tuple[Args, Args]:
    config, bound = model.config, model.params.layers[0].attn
    attended = normal(generator("wo loader"), 6, config.num_attention_heads, config.head_dim)
    inverse = rotation(torch.arange(6) + 3, config.head_dim).conj().resolve_conj()
    wo_a = model.official["layers.0.attn.wo_a.weight"]
    rank = wo_a.shape[0] // config.o_groups
    by_group = torch.stack([wo_a[g * rank :][:rank].t() for g in range(config.o_groups)])
    wo_b = model.official["layers.0.attn.wo_b.weight"].t()
    return (attended, inverse, bound.wo_a, bound.wo_b), (attended, inverse, by_group, wo_b)


def heads_interleaved(attended: Tensor, inverse: Tensor, wo_a: Tensor, wo_b: Tensor) -> Tensor:
    mixed = attended.unflatten(1, (-1, wo_a.shape[0])).transpose(1, 2).flatten(1, 2)
    return OP.native(mixed, inverse, wo_a, wo_b)


CASES = Cases(
    make=make,
    dims={"groups": (2, 1, 4), "heads": (2, 1), "width": (32, 64), "rank": (8, 16), "d": (32, 20)},
    dtypes=(F32,),
    inputs=(0, 1),
    weights=(2, 3),
    specials=specials,
    loads=loads,
    declines={
        "no rows": make(0, F32, generator("none"), 2, 2, 32, 8, 32),
        "rows are not float32": make(6, BF16, generator("half"), 2, 2, 32, 8, 32),
    },
    consumers={
        "stream": Consumer(
            apply=lambda out, args: out[0].cumsum(-1),
            exactness=Close(rtol=1e-4, atol=1e-3, because="sums of 32 values of size 1"),
        )
    },
    faults={
        "heads of a group interleaved": heads_interleaved,
        "not turned back": lambda o, i, a, b: OP.native(o, torch.ones_like(i), a, b),
        "turned on": lambda o, i, a, b: OP.native(o, i.conj().resolve_conj(), a, b),
        "first group's weights for all": lambda o, i, a, b: OP.native(o, i, a[:1].expand_as(a), b),
        "groups in the other order": lambda o, i, a, b: OP.native(
            o, i, a, b.unflatten(0, (a.shape[0], -1)).flip(0).flatten(0, 1)
        ),
    },
    timing={"groups": 2, "heads": 8, "width": 512, "rank": 1024, "d": 5120},
    bound=lambda args: (
        (args[2].numel() + args[3].numel()) * args[2].element_size(),
        2 * args[0].shape[0] * (args[2].numel() + args[3].numel()),
    ),
)
