"""The meaning of attention with a sink: float64, one more logit without a value."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="o = sum_t e^(s_t - M) k_t / (sum_t e^(s_t - M) + e^(sink - M)), s = q.k / sqrt(D)",
    source="model-spec 2.7 step 6; the sink is not scaled and has no value",
    consumers=("inverse_rope", "grouped_wo"),
)
def sparse_attention(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """`query [R, Q, H, D]` over `keys [R, M, D]` (values too) that `visible [R, Q, M]` shows,
    with `sink [H]` float32, to `[R, Q, H, D]`.  A query that sees nothing gives zeros."""
    logits = torch.einsum("rqhd,rmd->rqhm", query.double(), keys.double()) * keys.shape[-1] ** -0.5
    logits = logits.masked_fill(~visible.unsqueeze(2), -torch.inf)
    lone = sink.double().view(1, 1, -1, 1)
    top = torch.cat((logits, lone.expand(*logits.shape[:3], 1)), -1).amax(-1, keepdim=True)
    weight = (logits - top).exp()
    total = weight.sum(-1, keepdim=True) + (lone - top).exp()
    return torch.einsum("rqhm,rmd->rqhd", weight / total, keys.double()).to(query.dtype)


OP = sparse_attention
