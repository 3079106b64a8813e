"""The meaning of the index scores: float64 over prepared queries."""

import torch
from torch import Tensor

from dsv41.ops.fake_quantise.native import fake_quantise
from dsv41.ops.registry import register


@register(
    formula="score = sum_a relu(q_a . k_j) * w_a; q rounded to FP4 with E8M0 scales where prepared",
    source="model-spec 2.9; ascend 2.3",
    consumers=("candidate_selection",),
)
def indexer_scores(query: Tensor, weight: Tensor, keys: Tensor, prepare: bool) -> Tensor:
    """`query [R, Q, A, w]`, `weight [R, Q, A]`, `keys [R, T, w]` to float32 `[R, Q, T]`."""
    if prepare:
        query = fake_quantise.native(query.reshape(-1, query.shape[-1]), "fp4").view(query.shape)
    products = torch.einsum("rqaw,rtw->rqat", query.double(), keys.double()).clamp(min=0)
    return (products * weight.double().unsqueeze(-1)).sum(2).float()


OP = indexer_scores
