"""Root-mean-square normalisation, in float32 whatever comes in."""

from __future__ import annotations

from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """`x [..., d]` scaled to unit mean square over its last dimension, times `weight [d]`.

    eps may be 1e-20: it never leaves float32, since float16 would turn it into 0 and a zero
    row into NaN.
    """
    wide = x.float()
    wide = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (wide if weight is None else wide * weight).to(x.dtype)
