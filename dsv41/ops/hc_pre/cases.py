"""Cases of the extended pre: zero streams, sharp mixes, identity and permutation."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, generator, normal, special_rows
from dsv41.ops.exactness import Close
from dsv41.ops.hc_pre.native import OP

EPS, NORM_EPS = 1e-6, 1e-20


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int, hc: int) -> Args:
    mix = (2 + hc) * hc
    stream = normal(g, rows, hc, d, dtype=dtype)
    fn = normal(g, hc * d, mix, scale=(hc * d) ** -0.5)
    carried = normal(g, rows, hc).sigmoid()
    return stream, carried, fn, normal(g, mix, scale=0.3), normal(g, mix).abs(), 20, EPS, NORM_EPS


def specials(dtype: torch.dtype) -> dict[str, Args]:
    _, carried, fn, base, scale, *rest = make(1, dtype, generator("hc"), 64, 4)
    finite = ("zeros", "negative-zeros", "large", "small", "smallest-normals")
    rows = special_rows(64, dtype)
    named = {
        name: (rows[name].repeat(4, 1).unsqueeze(0), carried, fn, base, scale, *rest)
        for name in finite
    }
    stream = make(6, dtype, generator("hc stream"), 64, 4)[0]
    one_copy = torch.eye(4)[:1].expand(6, 4).contiguous()
    return named | {
        "first-copy-alone": (stream, one_copy, fn, base, scale, *rest),
        "sharp-mixes": (stream, one_copy, fn, base, scale * 10, *rest),
        "one-iteration": (stream, one_copy, fn, base, scale, 1, EPS, NORM_EPS),
    }


def loads(model) -> tuple[Args, Args]:
    config, mix = model.config, model.params.layers[0].attn_mix
    hc = config.hc_mult
    stream = normal(generator("hc loader"), 6, hc, config.hidden_size)
    carried = torch.full((6, hc), 0.25)
    rest = (config.hc_sinkhorn_iters, config.hc_eps, config.rms_norm_eps)
    fn, base, scale = (model.official[f"layers.0.hc_attn_{x}"] for x in ("fn", "base", "scale"))
    spread = torch.cat([scale[i].repeat(c) for i, c in enumerate((hc, hc, hc * hc))])
    return (
        (stream, carried, mix.fn, mix.base, mix.scale, *rest),
        (stream, carried, fn.t(), base, spread, *rest),
    )


def changed(change) -> object:
    def fault(*args: object) -> tuple[Tensor, ...]:
        return change(*OP.native(*args))

    return fault


def per_copy_statistic(stream: Tensor, *rest) -> tuple[Tensor, ...]:
    root = (stream.double().square().mean(-1, keepdim=True) + NORM_EPS).rsqrt()
    _, pre, post, comb = OP.native((stream * root).float(), *rest)
    return OP.native(stream, *rest)[0], pre, post, comb


CASES = Cases(
    make=make,
    dims={"d": (64, 32, 160), "hc": (4, 2)},
    inputs=(0, 1),
    weights=(2, 3, 4),
    specials=specials,
    loads=loads,
    declines={
        "no rows": make(0, torch.float32, generator("none"), 64, 4),
        "more than 128 rows": make(129, torch.float32, generator("many"), 32, 4),
        "not 4 copies": make(6, torch.float32, generator("two"), 32, 2),
    },
    consumers={
        "hc_post": Consumer(
            apply=lambda out, args: (
                torch.einsum("nij,nid->njd", out[3], args[0].float())
                + out[2].unsqueeze(-1) * out[0].float().unsqueeze(1)
            ),
            exactness=Close(rtol=2e-2, atol=4e-2, because="x may be one bfloat16 step off"),
        ),
        "doubly stochastic": Consumer(
            apply=lambda out, args: torch.stack((out[3].sum(1), out[3].sum(2))),
            exactness=Close(rtol=1e-4, atol=0.0, because="sums of 4 entries near 1"),
        ),
    },
    faults={
        "comb transposed": changed(lambda x, pre, post, comb: (x, pre, post, comb.mT.contiguous())),
        "pre without eps": changed(lambda x, pre, post, comb: (x, pre - 1e-3, post, comb)),
        "post not doubled": changed(lambda x, pre, post, comb: (x, pre, post / 2, comb)),
        "own mix instead of the carried": changed(
            lambda x, pre, post, comb: (x * pre[:, :1], pre, post, comb)
        ),
        "statistic per copy": per_copy_statistic,
        "two iterations": lambda *args: OP.native(*args[:5], 2, *args[6:]),
    },
    timing={"d": 5120},
    bound=lambda args: (
        args[0].numel() * args[0].element_size() + 4 * args[2].numel(),
        2 * args[0].shape[0] * args[2].numel(),
    ),
)
