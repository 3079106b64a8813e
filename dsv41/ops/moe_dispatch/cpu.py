"""The dispatch as one stable sort; the serving model lays its rows out inside its experts."""

import torch
from torch import Tensor

from dsv41.ops.exactness import Bitwise
from dsv41.ops.moe_dispatch.native import OP

_COPY = Bitwise(because="rows are copied")


@OP.backend("cpu", exactness={"float32": _COPY, "bfloat16": _COPY, "int8": _COPY})
def cpu(
    x: Tensor, index: Tensor, active: Tensor, num_experts: int
) -> tuple[Tensor, Tensor, Tensor]:
    k = index.shape[1]
    # Masked tokens go behind the last expert.
    expert = torch.where(active.unsqueeze(1), index, num_experts).flatten()
    order = expert.argsort(stable=True)
    sent = expert[order] < num_experts
    rows = torch.where(sent.unsqueeze(1), x[order // k], x.new_zeros(()))
    counts = torch.zeros(num_experts + 1, dtype=torch.int64)
    counts = counts.scatter_add(0, expert, torch.ones_like(expert))
    return rows, torch.where(sent, order, -1), counts[:num_experts].clone()
