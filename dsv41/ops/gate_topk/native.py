"""The meaning of the router: exact products, then a choice expert by expert."""

import torch
from torch import Tensor
from torch.nn import functional as F

from dsv41.ops.registry import register


@register(
    formula="s = sqrt(softplus(x W)); top-k of s + bias; weights scale * s / sum(s)",
    source="model-spec 2.13; ascend 2.8",
    consumers=("experts", "experts_w8a8", "moe_dispatch"),
)
def gate_topk(x: Tensor, gate: Tensor, bias: Tensor, k: int, scale: float) -> tuple[Tensor, Tensor]:
    """`x [n, d]`, `gate [d, E]`, `bias [E]` float32 to experts `[n, k]` int64 and weights float32.

    Among equals the smaller expert; NaN stands above every number.  One expert alone keeps its
    score.  The scores themselves are
    float32, because a choice has no tolerance.
    """
    score = F.softplus((x.double() @ gate.double()).float()).sqrt()
    choice = (score + bias).tolist()
    index = torch.empty(x.shape[0], k, dtype=torch.int64)
    for t, row in enumerate(choice):
        best = sorted(range(len(row)), key=lambda e: (row[e] == row[e], -row[e], e))[:k]
        index[t] = torch.tensor(best)
    weight = score.double().gather(-1, index)
    if k > 1:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    return index, (weight * scale).float()


OP = gate_topk
