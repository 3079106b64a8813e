"""The meaning of the rotation: float64 pairs, rounded once."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="(a, b) of neighbours to (a cos - b sin, a sin + b cos)",
    source="model-spec 2.6 (interleaved pairs); ascend 2.10",
    consumers=("sparse_attention", "cache_scatter", "indexer_scores"),
)
def rope(x: Tensor, rotation: Tensor) -> Tensor:
    """Finite `x [n, heads, w]` turned by `rotation [n, w/2]` complex64; 1 leaves a pair alone."""
    cos, sin = rotation.real.double().unsqueeze(1), rotation.imag.double().unsqueeze(1)
    a, b = x[..., 0::2].double(), x[..., 1::2].double()
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


OP = rope
