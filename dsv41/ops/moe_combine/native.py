"""The meaning of the combine: float32 sums in the order of the choices."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="out_t = sum_k weight[t, k] * row of (t, k), float32, k in order; unsent rows count 0",
    source="ascend 2.9 (MC2 combine: accumulation in k order, float32)",
    consumers=("hc_post",),
)
def moe_combine(rows: Tensor, source: Tensor, weight: Tensor) -> Tensor:
    """`rows [n*k, d]` that came from `source [n*k]` int64 (-1: none), `weight [n, k]` float32, to
    float32 `[n, d]`."""
    n, k = weight.shape
    place = {int(s): i for i, s in enumerate(source.tolist()) if s >= 0}
    out = torch.zeros(n, rows.shape[1])
    for t in range(n):
        for choice in range(k):
            if t * k + choice in place:
                out[t] += rows[place[t * k + choice]].float() * weight[t, choice]
    return out


OP = moe_combine
