"""Cases of attention: nothing visible, a strong sink, one key, large logits."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import BF16, F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Close
from dsv41.ops.sparse_attention.native import OP


def make(
    rows: int, dtype: torch.dtype, g: torch.Generator, q: int, heads: int, m: int, d: int
) -> Args:
    query = normal(g, rows, q, heads, d, dtype=dtype)
    keys = normal(g, rows, m, d, dtype=dtype)
    visible = integers(g, 0, 3, rows, q, m) > 0
    return query, keys, visible, normal(g, heads)


def specials(dtype: torch.dtype) -> dict[str, Args]:
    query, keys, visible, sink = make(6, dtype, generator("attention"), 2, 4, 24, 32)
    one = torch.zeros_like(visible)
    one[..., 3] = True
    half = visible.clone()
    half[:, 1] = False
    return {
        "nothing-visible": (query, keys, visible & False, sink),
        "one-query-sees-nothing": (query, keys, half, sink),
        "all-visible": (query, keys, visible | True, sink),
        "one-key": (query, keys, one, sink),
        "strong-sink": (query, keys, visible, sink + 50.0),
        "no-sink": (query, keys, visible, sink - 1000.0),
        "sink-of-zero": (query, keys, visible, sink * 0),
        "large-logits": (query * 4, keys * 4, visible, sink),
        "equal-keys": (query, keys[:, :1].expand_as(keys).contiguous(), visible, sink),
        "hidden-keys-are-huge": (
            query,
            torch.where(visible.any(1).unsqueeze(-1), keys, torch.full_like(keys, 1e30)),
            visible,
            sink,
        ),
    }


def loads(model) -> tuple[Args, Args]:
    heads, d = model.config.num_attention_heads, model.config.head_dim
    query, keys, visible, _ = make(2, torch.float32, generator("sink"), 2, heads, 20, d)
    official = model.official["layers.0.attn.attn_sink"]
    return (query, keys, visible, model.params.layers[0].attn.sink), (
        query,
        keys,
        visible,
        official,
    )


def scaled_sink(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    return OP.native(query, keys, visible, sink * keys.shape[-1] ** -0.5)


def sink_with_value(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    return OP.native(query, keys, visible, sink) + keys.mean(1)[:, None, None] * 0.01


CASES = Cases(
    make=make,
    dims={"q": (2, 1, 6), "heads": (4, 1, 3), "m": (24, 1, 133), "d": (32, 64)},
    inputs=(0, 1, 2),
    weights=(3,),
    specials=specials,
    loads=loads,
    declines={
        "query is not float32": make(6, BF16, generator("half"), 2, 4, 24, 32),
        "no rows": make(0, F32, generator("none"), 2, 4, 24, 32),
    },
    consumers={
        "projection": Consumer(
            apply=lambda out, args: out[0].float().flatten(2).sum(-1),
            exactness=Close(rtol=2e-2, atol=0.1, because="a sum of 128 values one step off"),
        )
    },
    faults={
        "no sink": lambda q, k, v, s: OP.native(q, k, v, s - 1e4),
        "sink scaled": scaled_sink,
        "sink with a value": sink_with_value,
        "sink of the first head for all": lambda q, k, v, s: OP.native(q, k, v, s[:1].expand_as(s)),
        "logits not scaled": lambda q, k, v, s: OP.native(q * k.shape[-1] ** 0.5, k, v, s),
        "mask of the first query for all": lambda q, k, v, s: OP.native(
            q, k, v[:, :1].expand_as(v), s
        ),
        "last key unseen": lambda q, k, v, s: OP.native(
            q, k, v & (torch.arange(v.shape[-1]) < v.shape[-1] - 1), s
        ),
    },
    timing={"q": 6, "heads": 8, "m": 640, "d": 512},
    bound=lambda args: (
        (2 * args[0].numel() + args[1].numel()) * args[0].element_size(),
        4 * args[0].numel() * args[1].shape[1],
    ),
)
