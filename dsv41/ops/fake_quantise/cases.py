"""Cases of the formats: every tie of E2M1, scales at powers of two, every finite BF16 pattern."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, finite_bf16, normal, special_rows
from dsv41.ops.exactness import Bitwise
from dsv41.ops.fake_quantise.native import OP

KINDS = ("fp8", "fp4", "fp4_e4m3")


def make(rows: int, dtype: torch.dtype, g: torch.Generator, width: int, kind: str) -> Args:
    spread = torch.randint(-6, 7, (rows, 1), generator=g)
    return normal(g, rows, width).mul(2.0**spread).to(dtype), kind


def specials(dtype: torch.dtype) -> dict[str, Args]:
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    ties = torch.cat((ties, -ties)).repeat(4)
    steps = torch.linspace(-448, 448, 64)
    edges = torch.zeros(6, 32)
    for i, top in enumerate((6.0, 6.1, 448.0, 449.0, 1e-5, 1e30)):
        edges[i, ::2], edges[i, 1::2] = top, -top / 3
    rows = special_rows(64, dtype)
    named = {n: rows[n] for n in ("zeros", "negative-zeros", "smallest-normals", "large", "small")}
    named |= {"ties": ties.unsqueeze(0), "steps": steps.unsqueeze(0), "edges": edges}
    return {f"{n}-{kind}": (x.to(dtype), kind) for n, x in named.items() for kind in KINDS}


def patterns(values: Tensor) -> dict[str, Args]:
    x = finite_bf16(2.0**100).view(1024, 64)
    mixed = x.t().reshape(1024, 64)
    return {f"{kind}-{n}": (v, kind) for kind in KINDS for n, v in (("near", x), ("mixed", mixed))}


def ties_away(x: Tensor, kind: str) -> Tensor:
    return OP.native((x.float() * (1 + 2.0**-20)).to(x.dtype), kind)


CASES = Cases(
    make=make,
    dims={"width": (64, 32, 128), "kind": KINDS},
    specials=specials,
    patterns=patterns,
    consumers={
        "scores": Consumer(
            apply=lambda out, args: out[0].float().cumsum(-1),
            exactness=Bitwise(because="the same bits go in"),
        )
    },
    faults={
        "ties away from zero": ties_away,
        "not rounded": lambda x, kind: x.clone(),
        "scale not a power of two": lambda x, kind: (OP.native(x.float() * 1.5, kind) / 1.5).to(
            x.dtype
        ),
        "sign of zero lost": lambda x, kind: OP.native(x, kind) + 0.0,
        "other format": lambda x, kind: OP.native(x, "fp8" if kind == "fp4" else kind),
    },
    timing={"width": 512, "kind": "fp8"},
    bound=lambda args: (2 * args[0].numel() * args[0].element_size(), 5 * args[0].numel()),
)
