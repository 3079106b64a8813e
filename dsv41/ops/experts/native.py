"""The meaning of the routed experts: one token and one choice after another, float64."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="sum_k w2[e_k] (w_k * silu(min(g, L)) * clip(u, -L, L)), (g, u) = w13[e_k] x; float32",
    source="model-spec 2.13; weights multiply before the down projection",
    consumers=("hc_post",),
)
def experts(
    x: Tensor, index: Tensor, weight: Tensor, w13: Tensor, w2: Tensor, limit: float
) -> Tensor:
    """`x [n, d]`, experts `index [n, k]` int64 (distinct in a row) and `weight [n, k]` float32,
    `w13 [E, d, 2*i]`, `w2 [E, i, d]` to float32 `[n, d]`; limit 0 clips nothing."""
    out = torch.zeros(x.shape, dtype=torch.float64)
    for t in range(x.shape[0]):
        for choice, e in enumerate(index[t].tolist()):
            gate, up = (x[t].double() @ w13[e].double()).chunk(2)
            if limit > 0:
                gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            hidden = gate / (1 + (-gate).exp()) * up * weight[t, choice].double()
            out[t] += hidden @ w2[e].double()
    return out.float()


OP = experts
