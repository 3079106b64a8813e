"""Faster implementations that an engine may lend to the model, used where no gradient flows.

The model's own functions are the meaning; a lent one must agree with them and says who it is in
the path counters.  Nothing is installed by default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Lent:
    """`attend` as `attention.attend`; `rms_norm(x [n, d], weight [d], eps)`;
    `balance(z [n, mix], hc, iterations, eps)` gives
    `post [n, hc]` and `comb [n, hc, hc]` or `None` where it does not serve that shape."""

    attend: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None
    rms_norm: Callable[[Tensor, Tensor, float], Tensor] | None = None
    balance: Callable[[Tensor, int, int, float], tuple[Tensor, Tensor] | None] | None = None
    names: dict[str, str] = field(default_factory=dict)


lent = Lent()


def serves(function: object, x: Tensor) -> bool:
    """Whether a lent function may take `x`: float32, and nothing to differentiate."""
    return function is not None and x.dtype is torch.float32 and not torch.is_grad_enabled()
