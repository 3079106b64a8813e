"""Cases of the rotation: half of the vector is left alone, angles reach far positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dsv41.ops.case import Args, Cases, Consumer, finite_bf16, generator, integers, normal
from dsv41.ops.exactness import Close
from dsv41.ops.rope.native import OP


def rotation(positions: Tensor, width: int) -> Tensor:
    """Angles on the last half of the pairs, as in the model, and 1 before them."""
    turning = width // 4
    steps = 10000.0 ** (-torch.arange(turning, dtype=torch.float64) / max(turning, 1))
    kept = steps.new_zeros(width // 2 - turning)
    angles = torch.outer(positions.double(), torch.cat((kept, steps)))
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def make(rows: int, dtype: torch.dtype, g: torch.Generator, heads: int, width: int) -> Args:
    positions = integers(g, 0, 100_000, rows)
    x = normal(g, rows, heads, width, dtype=dtype).clamp(-4, 4)
    return x, rotation(positions, width)


def specials(dtype: torch.dtype) -> dict[str, Args]:
    x, _ = make(6, dtype, generator("rope"), 3, 64)
    first = torch.zeros(6, dtype=torch.int64)
    return {
        "position-0": (x, rotation(first, 64)),
        "position-1": (x, rotation(first + 1, 64)),
        "zeros": (x * 0, rotation(first + 7, 64)),
        "last-position": (x, rotation(first + 1_048_575, 64)),
        "small": (x * 2.0**-40, rotation(first + 7, 64)),
    }


def patterns(values: Tensor) -> dict[str, Args]:
    # Within +-4, where the declared absolute error holds; the pair's other half is each once.
    x = finite_bf16(4.0).view(-1, 1)
    x = torch.stack((x, x.roll(1, 0).flip(0)), -1).view(2048, 1, 64)
    return {"within-4": (x, rotation(torch.arange(2048), 64))}


def halves(native: Callable) -> Callable:
    def fault(x: Tensor, turn: Tensor) -> Tensor:
        w = x.shape[-1] // 2
        paired = torch.stack((x[..., :w], x[..., w:]), -1).flatten(-2)
        out = native(paired, turn)
        return torch.cat((out[..., 0::2], out[..., 1::2]), -1)

    return fault


def cases_of(native: Callable) -> Cases:
    """The cases of a rotation or of its inverse."""
    return Cases(
        make=make,
        dims={"heads": (3, 1, 8), "width": (64, 32, 128)},
        inputs=(0, 1),
        specials=specials,
        patterns=patterns,
        declines={"no rows": make(0, torch.float32, generator("none"), 3, 64)},
        consumers={
            "scores": Consumer(
                apply=lambda out, args: torch.einsum(
                    "nhw,nw->nh", out[0].float(), args[0][:, 0].float()
                ),
                exactness=Close(
                    rtol=2e-2, atol=0.3, because="64 products with values one bfloat16 step off"
                ),
            )
        },
        faults={
            "other direction": lambda x, turn: native(x, turn.conj().resolve_conj()),
            "halves instead of neighbours": halves(native),
            "position off by one": lambda x, turn: native(x, turn * turn.roll(1, 1)),
            "not turned": lambda x, turn: x.clone(),
            "first head only": lambda x, turn: torch.cat((native(x[:, :1], turn), x[:, 1:]), 1),
            "whole vector turned": lambda x, turn: native(x, turn.roll(turn.shape[1] // 2, 1)),
        },
        timing={"heads": 64, "width": 512},
        bound=lambda args: (2 * args[0].numel() * args[0].element_size(), 3 * args[0].numel()),
    )


CASES = cases_of(OP.native)
