"""The meaning of the clipped SwiGLU, in float64 and rounded once."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="silu(min(g, L)) * clip(u, -L, L) * w; no clipping where L = 0; float32",
    source="model-spec 2.13; ascend 2.7",
    consumers=("experts", "experts_w8a8"),
)
def clipped_swiglu(joined: Tensor, weight: Tensor | None, limit: float) -> Tensor:
    """`joined [n, 2*i]` (gates, then values), `weight [n, 1]` or None, to float32 `[n, i]`.

    The gate is clipped from above only and before silu; NaN passes through.
    """
    gate, up = joined.double().chunk(2, dim=-1)
    if limit > 0:
        gate = torch.where(gate > limit, limit, gate)
        up = torch.where(up > limit, limit, torch.where(up < -limit, -limit, up))
    hidden = gate / (1 + (-gate).exp()) * up
    if weight is not None:
        hidden = hidden * weight.double()
    return hidden.float()


OP = clipped_swiglu
