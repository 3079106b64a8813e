"""The meaning of greedy verification: one request and one draft after another."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="accept d_i while it is argmax(row i); then the argmax of the first other row",
    source="model-spec 3.4 steps 1 and 2",
    consumers=("cache_scatter",),
)
def greedy_verification(logits: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    """`logits [R, k+1, V]` float32 and `drafts [R, k]` int64 (-1: none) to the emitted tokens
    `[R, k+1]`, padded with -1, and the accepted drafts of each request `[R]`.

    Of equal logits the smallest token is the choice.
    """
    r, k = drafts.shape
    tokens = torch.full((r, k + 1), -1, dtype=torch.int64)
    accepted = torch.zeros(r, dtype=torch.int64)
    for i in range(r):
        for j in range(k + 1):
            row = logits[i, j].tolist()
            choice = row.index(max(row))
            tokens[i, j] = choice
            if j == k or int(drafts[i, j]) != choice:
                break
            accepted[i] += 1
    return tokens, accepted


OP = greedy_verification
