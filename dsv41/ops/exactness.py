"""How close a backend must come to the reference, and the comparison that decides it (P7.1).

Declared beside the backend before any run, with the sentence that justifies it; nothing in the
environment changes it.  Integers and truths are always compared bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, kw_only=True)
class Bitwise:
    """The same bits; NaNs by their `bits`, or by `positions` where a device canonicalises them."""

    nan: Literal["bits", "positions"] = "bits"
    because: str

    def __str__(self) -> str:
        return f"bitwise, NaN by {self.nan}"


@dataclass(frozen=True, kw_only=True)
class Close:
    """`|got - want| <= atol + rtol * |want|`; NaN and infinities in the same places."""

    rtol: float
    atol: float
    because: str

    def __str__(self) -> str:
        return f"rtol {self.rtol:.3g}, atol {self.atol:.3g}"


Exactness = Bitwise | Close


def mismatch(got: Tensor, want: Tensor, exactness: Exactness | None) -> str | None:
    """What differs, in one line, or None; `exactness` may be None for integers and truths."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return (
            f"{got.dtype} {list(got.shape)} where {want.dtype} {list(want.shape)} is the reference"
        )
    if not got.dtype.is_floating_point:
        wrong = got != want
    elif exactness is None:
        return f"no exactness is declared for {got.dtype}"
    elif isinstance(exactness, Bitwise):
        wrong = bits(got) != bits(want)
        if exactness.nan == "positions":
            wrong &= ~(got.isnan() & want.isnan())
    else:
        wrong = _beyond(got.double(), want.double(), exactness)
    if not wrong.any():
        return None
    return _report(got, want, wrong)


def bits(x: Tensor) -> Tensor:
    """The bit patterns as integers: -0.0 differs from 0.0, and one NaN from another."""
    return x.contiguous().view(_BITS[x.element_size()])


def _beyond(got: Tensor, want: Tensor, limit: Close) -> Tensor:
    both = want.isfinite() & got.isfinite()
    far = (got - want).abs() > limit.atol + limit.rtol * want.abs()
    same_special = (got.isnan() & want.isnan()) | (got == want)
    return torch.where(both, far, ~same_special)


def _report(got: Tensor, want: Tensor, wrong: Tensor) -> str:
    count, total = int(wrong.sum()), wrong.numel()
    place = tuple(int(i) for i in wrong.nonzero()[0])
    a, b = got[place], want[place]
    line = f"{count} of {total} differ, first at {list(place)}: {a.item()!r}, not {b.item()!r}"
    if got.dtype.is_floating_point:
        size = 2 * got.element_size()
        mask = (1 << 4 * size) - 1
        patterns = [f"0x{int(bits(v.reshape(1))) & mask:0{size}x}" for v in (a, b)]
        worst = (got.double() - want.double()).abs()[wrong].nan_to_num(nan=torch.inf).max()
        line += f" ({patterns[0]}, not {patterns[1]}; largest difference {float(worst):.3g})"
    return line
