"""Cases of the norm."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import BF16, Args, Cases, Consumer, normal, special_rows
from dsv41.ops.exactness import Close
from dsv41.ops.rms_norm.native import OP

EPS = 1e-20


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int) -> Args:
    return normal(g, rows, d, dtype=dtype), 1.0 + normal(g, d, scale=0.3), EPS


def specials(dtype: torch.dtype) -> dict[str, Args]:
    weight = torch.linspace(0.5, 1.5, 64)
    named = {name: (row, weight, EPS) for name, row in special_rows(64, dtype).items()}
    return named | {"eps-of-1e-6": (special_rows(64, dtype)["small"], weight, 1e-6)}


def loads(model) -> tuple[Args, Args]:
    x = normal(torch.Generator().manual_seed(5), 6, model.config.hidden_size)
    official = model.official["layers.0.attn_norm.weight"]
    return (x, model.params.layers[0].attn_norm, EPS), (x, official, EPS)


def unweighted(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return OP.native(x, torch.ones_like(weight), eps)


CASES = Cases(
    make=make,
    dims={"d": (64, 32, 96, 160, 5120)},
    weights=(1,),
    specials=specials,
    loads=loads,
    declines={
        "rows are not float32": (torch.ones(2, 64, dtype=BF16), torch.ones(64), EPS),
        "no rows": (torch.ones(0, 64), torch.ones(64), EPS),
    },
    consumers={
        "linear": Consumer(
            apply=lambda out, args: out[0].float() @ torch.ones(args[0].shape[1], 3),
            exactness=Close(
                rtol=1e-3, atol=0.2, because="a sum of 64 values, each one bfloat16 step off"
            ),
        ),
    },
    faults={
        "no weight": unweighted,
        "eps of 1e-6": lambda x, weight, eps: OP.native(x, weight, 1e-6),
        "sum for mean": lambda x, weight, eps: OP.native(x, weight * x.shape[-1] ** -0.5, eps),
        "rounded before the weight": lambda x, weight, eps: (
            OP.native(x, torch.ones_like(weight), eps).to(BF16).to(x.dtype) * weight
        ).to(x.dtype),
        "eps in half precision": lambda x, weight, eps: OP.native(
            x, weight, float(torch.tensor(eps).half())
        ),
    },
    timing={"d": 5120},
    bound=lambda args: (2 * args[0].numel() * args[0].element_size(), 4 * args[0].numel()),
)
