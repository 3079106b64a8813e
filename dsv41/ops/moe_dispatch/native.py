"""The meaning of the dispatch: expert after expert, token after token, choice after choice."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="rows of active tokens in the order (expert, token, choice); how many each expert has",
    source="ascend 2.9 (MC2 dispatch with counts); P7.2 full capacity and duplicate routing",
    consumers=("experts", "experts_w8a8", "moe_combine"),
)
def moe_dispatch(
    x: Tensor, index: Tensor, active: Tensor, num_experts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`x [n, d]`, `index [n, k]` int64, `active [n]` bool to rows `[n*k, d]`, their places of
    origin `token * k + choice` `[n*k]` and counts `[num_experts]`, both int64.

    Rows beyond the sum of the counts are zeros and come from -1.
    """
    n, k = index.shape
    rows, source = x.new_zeros(n * k, x.shape[1]), torch.full((n * k,), -1)
    counts = torch.zeros(num_experts, dtype=torch.int64)
    place = 0
    for e in range(num_experts):
        for t in range(n):
            for choice in range(k):
                if active[t] and int(index[t, choice]) == e:
                    rows[place], source[place] = x[t], t * k + choice
                    counts[e] += 1
                    place += 1
    return rows, source, counts


OP = moe_dispatch
