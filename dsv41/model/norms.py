"""Root-mean-square normalisation, in float32 whatever comes in."""

from __future__ import annotations

from torch import Tensor

from dsv41.model.kernels import lent, serves


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x [..., d]` scaled to unit mean square over its last dimension, times `weight [d]`.

    eps may be 1e-20: it never leaves float32, since float16 would turn it into 0 and a zero
    row into NaN.
    """
    if serves(lent.rms_norm, x):
        return lent.rms_norm(x, weight, eps)
    return native_rms_norm(x, weight, eps)


def native_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What `rms_norm` means; `weight` may also be one row per vector."""
    return (unit_rms(x.float(), eps) * weight).to(x.dtype)


def unit_rms(x: Tensor, eps: float) -> Tensor:
    """Float32 `x [..., d]` scaled to unit mean square, without a weight."""
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
