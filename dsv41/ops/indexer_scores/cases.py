"""Cases of the index scores: negative weights, products at zero, prepared queries."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, generator, normal
from dsv41.ops.exactness import Close
from dsv41.ops.indexer_scores.native import OP


def make(
    rows: int,
    dtype: torch.dtype,
    g: torch.Generator,
    q: int,
    heads: int,
    t: int,
    width: int,
    prepare: bool,
) -> Args:
    query = normal(g, rows, q, heads, width, dtype=dtype)
    return query, normal(g, rows, q, heads) * 0.1, normal(g, rows, t, width, dtype=dtype), prepare


def specials(dtype: torch.dtype) -> dict[str, Args]:
    query, weight, keys, _ = make(6, dtype, generator("scores"), 2, 4, 10, 32, True)
    return {
        "all-products-negative": (query.abs(), weight, -keys.abs(), False),
        "all-weights-negative": (query, -weight.abs(), keys, True),
        "zero-queries": (query * 0, weight, keys, True),
        "zero-keys": (query, weight, keys * 0, True),
        "one-row": (query[:, :1, :1], weight[:, :1, :1], keys[:, :1], True),
    }


def weight_before_relu(query: Tensor, weight: Tensor, keys: Tensor, prepare: bool) -> Tensor:
    sign = weight.sign().unsqueeze(-1).to(query.dtype)
    return OP.native(query * sign, weight.abs(), keys, prepare)


def no_relu(query: Tensor, weight: Tensor, keys: Tensor, prepare: bool) -> Tensor:
    return OP.native(query, weight, keys, prepare) - OP.native(-query, weight, keys, prepare)


CASES = Cases(
    make=make,
    dims={
        "q": (2, 1, 6),
        "heads": (4, 1, 32),
        "t": (10, 1, 70),
        "width": (32, 64, 128),
        "prepare": (True, False),
    },
    inputs=(0, 1, 2),
    specials=specials,
    declines={"no rows": make(0, torch.float32, generator("none"), 2, 4, 10, 32, True)},
    consumers={
        "best score": Consumer(
            apply=lambda out, args: out[0].amax(-1),
            exactness=Close(rtol=1e-4, atol=1e-3, because="as the scores themselves"),
        )
    },
    faults={
        "weight before relu": weight_before_relu,
        "no relu": no_relu,
        "queries not prepared": lambda q, w, k, p: OP.native(q, w, k, False),
        "queries always prepared": lambda q, w, k, p: OP.native(q, w, k, True),
        "last head unread": lambda q, w, k, p: OP.native(
            q, w * (torch.arange(w.shape[-1]) < w.shape[-1] - 1), k, p
        ),
    },
    timing={"q": 6, "heads": 32, "t": 2048, "width": 128},
    bound=lambda args: (
        args[2].numel() * args[2].element_size(),
        2 * args[0].numel() * args[2].shape[1],
    ),
)
