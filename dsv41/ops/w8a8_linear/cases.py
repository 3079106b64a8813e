"""Cases of the W8A8 linear: widths on both sides of what float32 sums exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.dynamic_quant.native import dynamic_quant
from dsv41.ops.exactness import Bitwise
from dsv41.ops.w8a8_linear.native import OP


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int, out: int) -> Args:
    codes = integers(g, -127, 128, out, d).to(torch.int8)
    return normal(g, rows, d, dtype=dtype), codes, normal(g, out, 1).abs() / 100


def specials(dtype: torch.dtype) -> dict[str, Args]:
    named = {}
    for d in (1040, 1041, 5120):
        ones = torch.full((2, d), 127, dtype=torch.int8)
        ones[1] = -127
        ones[1, 0] = 126
        # Full codes everywhere: the largest sums there are.
        full = torch.ones(6, d, dtype=dtype)
        full[1:, -1] = 1 - 1 / 64
        named[f"largest-sums-{d}"] = (full, ones, torch.ones(2, 1))
    x, codes, scale = make(6, dtype, generator("w8a8"), 64, 48)
    x[2], codes[5] = 0.0, 0
    return named | {"zero-row-and-channel": (x, codes, scale)}


def loads(model) -> tuple[Args, Args]:
    x = normal(generator("w8a8 loader"), 6, model.config.hidden_size)
    name = "layers.0.ffn.shared_experts.w"
    weight = model.int8_params.layers[0].moe.shared_w13.t()
    codes, scale = (
        torch.cat([model.int8[f"{name}{i}.{kind}"] for i in (1, 3)])
        for kind in ("weight", "weight_scale")
    )
    return (x, weight.codes, weight.scale), (x, codes, scale)


def saturating(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    quantised, step = dynamic_quant.native(x)
    total = (quantised.long() @ codes.long().t()).clamp(-32768, 32767)
    return (total.float() * scale.t() * step).to(x.dtype)


def summed_in_bfloat16(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    quantised, step = dynamic_quant.native(x)
    total = (quantised.long() @ codes.long().t()).to(torch.bfloat16)
    return (total.float() * scale.t() * step).to(x.dtype)


def float32_sums(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    quantised, step = dynamic_quant.native(x)
    total = torch.zeros(x.shape[0], codes.shape[0])
    for i in range(x.shape[1]):
        total = total + quantised[:, i : i + 1].float() * codes[:, i].float()
    return (total * scale.t() * step).to(x.dtype)


CASES = Cases(
    make=make,
    dims={"d": (64, 33, 1040, 1041, 2048), "out": (48, 1, 33)},
    weights=(1, 2),
    specials=specials,
    loads=loads,
    consumers={
        "norm": Consumer(
            apply=lambda out, args: out[0].float().square().mean(-1),
            exactness=Bitwise(because="the same bits go in"),
        )
    },
    faults={
        "sums saturate at 16 bits": saturating,
        "sums in bfloat16": summed_in_bfloat16,
        "sums in float32 beyond their range": float32_sums,
        "activations not quantised": lambda x, c, s: (x.float() @ (c.float() * s).t()).to(x.dtype),
        "scale of the first channel for all": lambda x, c, s: OP.native(x, c, s[:1].expand_as(s)),
        "stepped before scaled": lambda x, c, s: (
            dynamic_quant.native(x)[0].float() @ c.float().t() * dynamic_quant.native(x)[1] * s.t()
        ).to(x.dtype),
    },
    timing={"d": 5120, "out": 1280},
    bound=lambda args: (
        args[1].numel() * args[1].element_size(),
        2 * args[0].shape[0] * args[1].numel(),
    ),
)
