"""Cases of the router.

Inputs are small integers and router weights multiples of 1/64, so that every order of summation
gives the same float32 logits and the choice is defined bit by bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import BF16, Args, Cases, Consumer, generator, integers
from dsv41.ops.exactness import Bitwise
from dsv41.ops.gate_topk.native import OP


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int, experts: int, k: int) -> Args:
    x = integers(g, -3, 4, rows, d).to(dtype)
    gate = integers(g, -64, 65, d, experts).float() / 64
    bias = integers(g, -8, 9, experts).float() / 64
    return x, gate, bias, k, 1.5


def specials(dtype: torch.dtype) -> dict[str, Args]:
    named = {}
    for experts in (16, 96):
        g = generator(f"gate specials {experts}")
        x, gate, bias, _, scale = make(6, dtype, g, 32, experts, 6)
        twins = gate[:, : experts // 2].repeat(1, 2)
        even = torch.zeros(experts)
        below = torch.zeros_like(gate)
        below[0] = -1.0
        far = torch.zeros_like(x)
        far[:, 0] = 200
        broken = x.clone()
        broken[2] = torch.nan
        named |= {
            f"all-equal-{experts}": (x * 0, gate, even, 6, scale),
            f"twins-{experts}": (x, twins, even, 6, scale),
            f"bias-decides-{experts}": (x, gate, -100 * torch.arange(experts).float(), 6, scale),
            f"underflow-to-zero-{experts}": (far, below, even, 6, scale),
            f"large-logits-{experts}": (x * 2**20, gate, bias, 6, scale),
            f"one-nan-row-{experts}": (broken, gate, bias, 6, scale),
            f"every-expert-{experts}": (x, gate, bias, experts, scale),
            f"negative-zero-bias-{experts}": (x * 0, gate * 0, -even, 6, scale),
        }
    return named


def loads(model) -> tuple[Args, Args]:
    x = integers(generator("router"), -3, 4, 6, model.config.hidden_size).float()
    moe, k = model.params.layers[0].moe, model.config.num_experts_per_tok
    gate = model.official["layers.0.ffn.gate.weight"].t()
    bias = model.official["layers.0.ffn.gate.bias"]
    return (x, moe.gate, moe.bias, k, 1.5), (x, gate, bias, k, 1.5)


def larger_among_equals(x: Tensor, gate: Tensor, bias: Tensor, k: int, scale: float):
    index, weight = OP.native(x, gate.flip(1), bias.flip(0), k, scale)
    return gate.shape[1] - 1 - index, weight


def weighted_with_bias(x: Tensor, gate: Tensor, bias: Tensor, k: int, scale: float):
    index, weight = OP.native(x, gate, bias, k, 1.0)
    weight = weight + bias[index]
    return index, weight / weight.sum(-1, keepdim=True) * scale


def in_bfloat16(x: Tensor, gate: Tensor, bias: Tensor, k: int, scale: float):
    rounded = (x.double() @ gate.double()).to(BF16)
    return OP.native(rounded.float(), torch.eye(gate.shape[1]), bias, k, scale)


CASES = Cases(
    make=make,
    dims={"d": (32, 8, 100, 5120), "experts": (16, 64, 96, 384), "k": (6, 1, 3)},
    weights=(1, 2),
    specials=specials,
    loads=loads,
    consumers={
        "dispatch": Consumer(
            apply=lambda out, args: torch.bincount(out[0].flatten(), minlength=args[1].shape[1]),
            exactness=Bitwise(because="counts of the same choice"),
        )
    },
    faults={
        "larger expert among equals": larger_among_equals,
        "weighted with the bias": weighted_with_bias,
        "bias forgotten": lambda x, g, b, k, s: OP.native(x, g, b * 0, k, s),
        "scaled twice": lambda x, g, b, k, s: OP.native(x, g, b, k, s * s),
        "not scaled": lambda x, g, b, k, s: OP.native(x, g, b, k, 1.0),
        "logits in bfloat16": in_bfloat16,
    },
    timing={"d": 5120, "experts": 384, "k": 6},
    bound=lambda args: (
        4 * (args[0].numel() + args[1].numel()),
        2 * args[0].shape[0] * args[1].numel(),
    ),
)
