"""Cases of the compressor: both ratios, an unfinished group at the end, sharp gates."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import BF16, F32, Args, Cases, Consumer, generator, normal
from dsv41.ops.compressor.native import OP
from dsv41.ops.exactness import Close
from dsv41.ops.rope.cases import rotation

EPS = 1e-20


def turns(rows: int, ratio: int, width: int) -> Tensor:
    return rotation(torch.arange(rows // ratio) * ratio, width)


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int, width: int, ratio: int) -> Args:
    key_width = width // 2
    return (
        normal(g, rows, d, dtype=dtype),
        normal(g, d, width * ratio, scale=d**-0.5),
        1 + normal(g, width, scale=0.2),
        normal(g, width, key_width, scale=width**-0.5),
        1 + normal(g, key_width, scale=0.2),
        turns(rows, ratio, width),
        turns(rows, ratio, key_width),
        ratio,
        EPS,
    )


def specials(dtype: torch.dtype) -> dict[str, Args]:
    named = {}
    for ratio in (1, 2):
        x, wkv, *rest = make(7, dtype, generator(f"compressor {ratio}"), 32, 32, ratio)
        named[f"unfinished-group-{ratio}"] = (x, wkv, *rest)
        named[f"zeros-{ratio}"] = (x * 0, wkv, *rest)
        named[f"large-{ratio}"] = (x * 64, wkv, *rest)
        named[f"sharp-gates-{ratio}"] = (x, wkv * 30, *rest)
    return named


def loads(model) -> tuple[Args, Args]:
    """The first kv source of the small model, as bound and from its official tensors."""
    config = model.config
    layer = config.kv_source_layer_ids[0]
    ratio, name = config.compress_ratios[layer], f"layers.{layer}.attn."
    bound = model.params.layers[layer].attn.compressor
    parts = [model.official[name + "compressor.wkv.weight"]]
    if ratio > 1:
        parts.append(model.official[name + "compressor.wgate.weight"])
    x = normal(generator("compressor loader"), 12, config.hidden_size)
    shared = (
        turns(12, ratio, config.head_dim),
        turns(12, ratio, config.index_head_dim),
        ratio,
        config.rms_norm_eps,
    )
    by_hand = (
        torch.cat(parts).t(),
        model.official[name + "compressor.norm.weight"],
        model.official[name + "indexer.wk.weight"].t(),
        model.official[name + "indexer.k_norm.weight"],
    )
    loaded = (bound.wkv, bound.norm, bound.wk, bound.k_norm)
    return (x, *loaded, *shared), (x, *by_hand, *shared)


def mean_of_group(x: Tensor, wkv: Tensor, norm: Tensor, *rest) -> tuple[Tensor, Tensor]:
    gateless = wkv.clone()
    if rest[-2] == 2:
        gateless[:, norm.shape[0] :] = 0
    return OP.native(x, gateless, norm, *rest)


CASES = Cases(
    make=make,
    dims={"d": (32, 100), "width": (64, 128), "ratio": (2, 1)},
    dtypes=(F32,),
    weights=(1, 2, 3, 4),
    specials=specials,
    loads=loads,
    declines={
        "fewer rows than a group": make(1, F32, generator("one"), 32, 64, 2),
        "rows are not float32": make(6, BF16, generator("half"), 32, 64, 2),
    },
    consumers={
        "scores": Consumer(
            apply=lambda out, args: out[1] @ out[1].t() + out[0].sum(-1),
            exactness=Close(rtol=1e-4, atol=4e-3, because="sums of 32 and 64 values of size 1"),
        )
    },
    faults={
        "values and gates swapped": lambda x, w, n, *rest: OP.native(
            x, w.roll(n.shape[0], 1), n, *rest
        ),
        "mean instead of softmax": mean_of_group,
        "key from another latent": lambda *a: (
            OP.native(*a)[0],
            OP.native(*a[:3], a[3].roll(2, 0), *a[4:])[1],
        ),
        "latent not turned": lambda *a: OP.native(*a[:5], torch.ones_like(a[5]), *a[6:]),
        "position of the last token": lambda *a: OP.native(
            *a[:5], a[5] * rotation(torch.ones(1), 2 * a[5].shape[1]), *a[6:]
        ),
        "norm forgotten": lambda *a: OP.native(*a[:2], a[2] * 0 + 1, *a[3:]),
    },
    timing={"d": 5120, "width": 512, "ratio": 2},
    bound=lambda args: (
        args[1].numel() * args[1].element_size(),
        2 * args[0].shape[0] * args[1].numel(),
    ),
)
