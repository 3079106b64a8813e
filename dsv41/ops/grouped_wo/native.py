"""The meaning of the grouped output projection, in float64."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="t[n, g] = turned_back(o)[n, heads of g] wo_a[g]; y = t wo_b",
    source="model-spec 2.7 steps 7 and 8",
    consumers=("hc_post",),
)
def grouped_wo(attended: Tensor, inverse: Tensor, wo_a: Tensor, wo_b: Tensor) -> Tensor:
    """`attended [n, H, D]`, `inverse [n, D/2]` complex64 (the angles already negated),
    `wo_a [g, H*D/g, rank]`, `wo_b [g*rank, d]` to `[n, d]`."""
    cos, sin = inverse.real.double().unsqueeze(1), inverse.imag.double().unsqueeze(1)
    a, b = attended[..., 0::2].double(), attended[..., 1::2].double()
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(1)
    groups, inputs, rank = wo_a.shape
    low = torch.zeros(attended.shape[0], groups * rank, dtype=torch.float64)
    for g in range(groups):
        part = turned[:, g * inputs : (g + 1) * inputs]
        low[:, g * rank : (g + 1) * rank] = part @ wo_a[g].double()
    return (low @ wo_b.double()).to(attended.dtype)


OP = grouped_wo
