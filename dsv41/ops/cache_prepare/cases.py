"""Cases of the projections: zero rows, far positions, the original weights."""

from __future__ import annotations

import torch

from dsv41.ops.cache_prepare.native import OP
from dsv41.ops.case import BF16, F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Close
from dsv41.ops.rope.cases import rotation

EPS = 1e-20


def make(
    rows: int, dtype: torch.dtype, g: torch.Generator, d: int, rank: int, heads: int, width: int
) -> Args:
    return (
        normal(g, rows, d, dtype=dtype),
        normal(g, d, rank + width, scale=d**-0.5),
        1 + normal(g, rank, scale=0.2),
        normal(g, rank, heads * width, scale=rank**-0.5),
        1 + normal(g, width, scale=0.2),
        rotation(integers(g, 0, 100_000, rows), width),
        EPS,
    )


def specials(dtype: torch.dtype) -> dict[str, Args]:
    x, *rest = make(6, dtype, generator("prepare"), 32, 24, 3, 32)
    return {
        "zeros": (x * 0, *rest),
        "large": (x * 2.0**30, *rest),
        "small": (x * 2.0**-20, *rest),
        "position-0": (x, *rest[:4], torch.ones_like(rest[4]), EPS),
    }


def loads(model) -> tuple[Args, Args]:
    config, bound = model.config, model.params.layers[0].attn
    x = normal(generator("prepare loader"), 6, config.hidden_size)
    turn = rotation(torch.arange(6) + 3, config.head_dim)
    official = {
        n: model.official[f"layers.0.attn.{n}.weight"]
        for n in ("wq_a", "wkv", "q_norm", "wq_b", "kv_norm")
    }
    joined = torch.cat((official["wq_a"].t(), official["wkv"].t()), 1)
    by_hand = (joined, official["q_norm"], official["wq_b"].t(), official["kv_norm"])
    loaded = (bound.wq_a_kv, bound.q_norm, bound.wq_b, bound.kv_norm)
    eps = config.rms_norm_eps
    return (x, *loaded, turn, eps), (x, *by_hand, turn, eps)


def row_not_turned(*a):
    query, _, low = OP.native(*a)
    return query, OP.native(*a[:5], torch.ones_like(a[5]), a[6])[1], low


def normalised_heads(*a):
    query, row, low = OP.native(*a)
    return query * (query.square().mean(-1, keepdim=True) + EPS).rsqrt(), row, low


CASES = Cases(
    make=make,
    dims={"d": (32, 100), "rank": (24, 8), "heads": (3, 1), "width": (32, 64)},
    dtypes=(F32,),
    inputs=(0, 5),
    weights=(1, 2, 3, 4),
    specials=specials,
    loads=loads,
    declines={
        "no rows": make(0, F32, generator("none"), 32, 24, 3, 32),
        "rows are not float32": make(6, BF16, generator("half"), 32, 24, 3, 32),
    },
    consumers={
        "logits": Consumer(
            apply=lambda out, args: torch.einsum("nhw,mw->nhm", out[0], out[1]),
            exactness=Close(rtol=1e-4, atol=2e-3, because="sums of 32 products of size 1"),
        )
    },
    faults={
        "row not turned": row_not_turned,
        "queries normalised per head": normalised_heads,
        "query norm forgotten": lambda *a: OP.native(*a[:2], torch.ones_like(a[2]), *a[3:]),
        "row norm forgotten": lambda *a: OP.native(*a[:4], torch.ones_like(a[4]), *a[5:]),
        "turned the other way": lambda *a: OP.native(*a[:5], a[5].conj().resolve_conj(), a[6]),
        "eps of 1e-6": lambda *a: OP.native(*a[:6], 1e-6),
    },
    timing={"d": 5120, "rank": 1280, "heads": 8, "width": 512},
    bound=lambda args: (
        (args[1].numel() + args[3].numel()) * args[1].element_size(),
        2 * args[0].shape[0] * (args[1].numel() + args[3].numel()),
    ),
)
