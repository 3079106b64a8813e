"""Cases of per-token quantisation: ties, rows of zeros, steps that round, every finite pattern."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, finite_bf16, normal, special_rows
from dsv41.ops.dynamic_quant.native import OP
from dsv41.ops.exactness import Bitwise

_INFINITE = ("one-infinity", "one-negative-infinity", "one-nan")


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int) -> Args:
    return (normal(g, rows, d, dtype=dtype),)


def specials(dtype: torch.dtype) -> dict[str, Args]:
    finite = {n: (r,) for n, r in special_rows(64, dtype).items() if n not in _INFINITE}
    halves = torch.arange(-127, 128, dtype=torch.float32) / 2
    ties = torch.cat((halves, torch.tensor([127.0]))).to(dtype)
    lone = torch.zeros(64)
    lone[5] = -3.0
    return finite | {"ties": (ties.unsqueeze(0),), "one-value": (lone.to(dtype).unsqueeze(0),)}


def with_reciprocal(x: Tensor) -> tuple[Tensor, Tensor]:
    _, step = OP.native(x)
    return (x.float() * (1 / step)).round().clamp(-128, 127).to(torch.int8), step


def half_up(x: Tensor) -> tuple[Tensor, Tensor]:
    _, step = OP.native(x)
    return (x.float() / step + 0.5).floor().clamp(-128, 127).to(torch.int8), step


def through_half(x: Tensor) -> tuple[Tensor, Tensor]:
    _, step = OP.native(x)
    return (x.float() / step).half().round().clamp(-128, 127).to(torch.int8), step


def one_step(x: Tensor) -> tuple[Tensor, Tensor]:
    codes, step = OP.native(x.reshape(1, -1)) if x.numel() else OP.native(x)
    return codes.view(x.shape), step.expand(x.shape[0], 1).contiguous()


CASES = Cases(
    make=make,
    dims={"d": (64, 1, 33, 5120)},
    specials=specials,
    patterns=lambda values: {"finite": (finite_bf16().view(1024, 64),)},
    consumers={
        "int8 product": Consumer(
            apply=lambda out, args: out[0].long() @ torch.arange(args[0].shape[1]),
            exactness=Bitwise(because="integers"),
        )
    },
    faults={
        "product with the reciprocal": with_reciprocal,
        "half rounded up": half_up,
        "rounded through half precision": through_half,
        "one step for all rows": one_step,
        "128 levels": lambda x: (*OP.native(x)[:1], OP.native(x)[1] * (127 / 128)),
        "zeros give NaN": lambda x: (
            OP.native(x)[0],
            torch.where((x == 0).all(-1, keepdim=True), torch.nan, OP.native(x)[1]),
        ),
    },
    timing={"d": 5120},
    bound=lambda args: (
        args[0].numel() * (args[0].element_size() + 1),
        4 * args[0].numel(),
    ),
)
