"""The meaning of the row mask: a copy of the kept rows over zeros."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="y_t = x_t where keep_t, else +0 in every element",
    source="padding rows of a captured step; P8 target-row-mask-001",
    consumers=("moe_dispatch",),
)
def row_mask(x: Tensor, keep: Tensor) -> Tensor:
    """`x [n, d]` and `keep [n]` bool to `[n, d]`; kept rows keep every bit, NaN payloads too."""
    out = torch.zeros_like(x)
    for t in range(x.shape[0]):
        if keep[t]:
            out[t] = x[t]
    return out


OP = row_mask
