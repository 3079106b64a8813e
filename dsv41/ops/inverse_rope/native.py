"""The meaning of the inverse rotation: the angles negated."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="(a, b) of neighbours to (a cos + b sin, b cos - a sin)",
    source="model-spec 2.7 step 7: values are keys and carry a rotation",
    consumers=("grouped_wo",),
)
def inverse_rope(x: Tensor, rotation: Tensor) -> Tensor:
    """Finite `x [n, heads, w]` turned back by `rotation [n, w/2]` complex64."""
    cos, sin = rotation.real.double().unsqueeze(1), rotation.imag.double().unsqueeze(1)
    a, b = x[..., 0::2].double(), x[..., 1::2].double()
    return torch.stack((a * cos + b * sin, b * cos - a * sin), -1).flatten(-2).to(x.dtype)


OP = inverse_rope
