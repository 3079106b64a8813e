"""The combine as one gather and k additions; the serving model sums inside its experts."""

import torch
from torch import Tensor

from dsv41.ops.exactness import Bitwise
from dsv41.ops.moe_combine.native import OP


@OP.backend(
    "cpu",
    exactness={"float32": Bitwise(because="the same products are added in the same order")},
)
def cpu(rows: Tensor, source: Tensor, weight: Tensor) -> Tensor:
    n, k = weight.shape
    # One place more takes what was never sent.
    place = torch.full((n * k + 1,), -1)
    place[torch.where(source < 0, n * k, source)] = torch.arange(n * k)
    place = place[: n * k].view(n, k)
    out = rows.new_zeros(n, rows.shape[1], dtype=torch.float32)
    for choice in range(k):
        row, scale = place[:, choice], weight[:, choice : choice + 1]
        sent = (row >= 0).unsqueeze(1)
        out = out + torch.where(sent, rows[row.clamp(min=0)].float() * scale, 0.0)
    return out
