"""The meaning of the query projection and of the row that is cached, in float64."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="low = norm(x wq_a); query = turn(low wq_b); row = turn(norm(x wkv))",
    source="model-spec 2.7 steps 1 to 3, without the rounding of the row (see fake_quantise)",
    consumers=("sparse_attention", "cache_scatter", "indexer_scores"),
)
def cache_prepare(
    x: Tensor,
    wq_a_kv: Tensor,
    q_norm: Tensor,
    wq_b: Tensor,
    kv_norm: Tensor,
    rotation: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`x [n, d]`, `wq_a_kv [d, rank + D]`, `wq_b [rank, heads*D]`, `rotation [n, D/2]` to queries
    `[n, heads, D]`, rows `[n, D]` and the low-rank query `[n, rank]`."""
    rank, width = q_norm.shape[0], kv_norm.shape[0]
    joined = x.double() @ wq_a_kv.double()
    low = _norm(joined[:, :rank], q_norm, eps)
    row = _norm(joined[:, rank:], kv_norm, eps)
    query = (low @ wq_b.double()).unflatten(-1, (wq_b.shape[1] // width, width))
    query, row = _turn(query, rotation), _turn(row.unsqueeze(1), rotation).squeeze(1)
    return query.to(x.dtype), row.to(x.dtype), low.to(x.dtype)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def _turn(x: Tensor, rotation: Tensor) -> Tensor:
    cos, sin = rotation.real.double().unsqueeze(1), rotation.imag.double().unsqueeze(1)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


OP = cache_prepare
