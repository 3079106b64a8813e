"""Cases of the memory: zero streams and tables, one row for all, the original weights."""

from __future__ import annotations

import torch

from dsv41.ops.case import BF16, F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.engram_gate.native import OP
from dsv41.ops.exactness import Close

EPS = 1e-20


def make(
    rows: int, dtype: torch.dtype, g: torch.Generator, d: int, hc: int, columns: int, width: int
) -> Args:
    size = columns * width
    return (
        normal(g, rows, hc, d, dtype=dtype),
        integers(g, 0, 50, rows, columns),
        normal(g, 50, width),
        normal(g, size, (hc + 1) * d, scale=size**-0.5),
        1 + normal(g, hc, d, scale=0.3),
        EPS,
    )


def specials(dtype: torch.dtype) -> dict[str, Args]:
    stream, rows, table, wkv, weight, eps = make(6, dtype, generator("memory"), 32, 4, 6, 16)
    return {
        "zero-stream": (stream * 0, rows, table, wkv, weight, eps),
        "zero-table": (stream, rows, table * 0, wkv, weight, eps),
        "one-row-for-all": (stream, rows * 0 + 7, table, wkv, weight, eps),
        "last-row": (stream, rows * 0 + 49, table, wkv, weight, eps),
        "large-stream": (stream * 2.0**30, rows, table, wkv, weight, eps),
        "small-stream": (stream * 2.0**-20, rows, table, wkv, weight, eps),
    }


def loads(model) -> tuple[Args, Args]:
    config = model.config
    layer = config.engram_layer_ids[0]
    bound, name = model.params.layers[layer].engram, f"layers.{layer}.engram."
    g = generator("memory loader")
    stream = normal(g, 6, config.hc_mult, config.hidden_size)
    rows = integers(g, 0, bound.table.shape[0], 6, config.engram_columns)
    official = model.official
    weight = official[name + "q_weight"] * official[name + "k_weight"]
    by_hand = (official[name + "embed.weight"], official[name + "wkv.weight"].t(), weight)
    loaded = (bound.table, bound.wkv, bound.gate_weight)
    eps = config.rms_norm_eps
    return (stream, rows, *loaded, eps), (stream, rows, *by_hand, eps)


CASES = Cases(
    make=make,
    dims={"d": (32, 100), "hc": (4, 2), "columns": (6, 3), "width": (16, 32)},
    dtypes=(F32,),
    inputs=(0, 1),
    weights=(2, 3, 4),
    specials=specials,
    loads=loads,
    declines={
        "no rows": make(0, F32, generator("none"), 32, 4, 6, 16),
        "stream is not float32": make(6, BF16, generator("half"), 32, 4, 6, 16),
    },
    consumers={
        "mean of copies": Consumer(
            apply=lambda out, args: out[0].mean(1),
            exactness=Close(rtol=1e-4, atol=1e-4, because="a mean of what may differ by as much"),
        )
    },
    faults={
        "value before keys": lambda s, r, t, w, g, e: OP.native(
            s, r, t, w.roll(s.shape[2], 1), g, e
        ),
        "gate weight forgotten": lambda s, r, t, w, g, e: OP.native(s, r, t, w, g * 0 + 1, e),
        "columns in the other order": lambda s, r, t, w, g, e: OP.native(s, r.flip(1), t, w, g, e),
        "gate of the first copy for all": lambda s, r, t, w, g, e: (
            s + (OP.native(s, r, t, w, g, e) - s)[:, :1]
        ),
        "gate always half": lambda s, r, t, w, g, e: OP.native(s, r, t, w, g * 0, e),
        "stream replaced": lambda s, r, t, w, g, e: OP.native(s, r, t, w, g, e) - s,
        "eps of 1e-6": lambda s, r, t, w, g, e: OP.native(s, r, t, w, g, 1e-6),
    },
    timing={"d": 5120, "columns": 24, "width": 256},
    bound=lambda args: (
        args[3].numel() * args[3].element_size(),
        2 * args[0].shape[0] * args[3].numel(),
    ),
)
