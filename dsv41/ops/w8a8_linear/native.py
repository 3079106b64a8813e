"""The meaning of the W8A8 linear: int64 sums, two float32 products, one rounding."""

import torch
from torch import Tensor

from dsv41.ops.dynamic_quant.native import dynamic_quant
from dsv41.ops.registry import register


@register(
    formula="y = float32(sum of int8 products) * weight_scale * step, rounded to the dtype of x",
    source="model-spec 4.3; ascend 2.6",
    consumers=("rms_norm", "clipped_swiglu", "cache_prepare"),
)
def w8a8_linear(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    """`x [n, in]`, `codes [out, in]` of int8 values and `scale [out, 1]` to `[n, out]`."""
    quantised, step = dynamic_quant.native(x)
    total = torch.from_numpy(quantised.long().numpy() @ codes.long().t().numpy())
    return (total.float() * scale.t() * step).to(x.dtype)


OP = w8a8_linear
