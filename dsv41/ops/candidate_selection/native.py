"""The meaning of the two-level choice: blocks, then rows, one query after another."""

import math

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="the newest reachable block and the best others; inside them the k best positions",
    source="model-spec 2.9 and 2.10; ascend 2.3 (candidate modes 1 and 2)",
    consumers=("gather_selected",),
)
def candidate_selection(
    score: Tensor, reach: Tensor, block: int, blocks_kept: int, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`score [R, Q, T]` float32 and `reach [R, Q]` to the candidate mask `[R, Q, T]`, the picks
    `[R, Q, min(k, T)]` int64 in order and which of them are valid.

    Larger scores first, among equals the smaller position; -inf is never valid.
    """
    r, q, t = score.shape
    mask = torch.zeros(r, q, t, dtype=torch.bool)
    index = torch.zeros(r, q, min(k, t), dtype=torch.int64)
    valid = torch.zeros(r, q, min(k, t), dtype=torch.bool)
    for i in range(r):
        for j in range(q):
            limit = int(reach[i, j])
            row = [s if p < limit else -math.inf for p, s in enumerate(score[i, j].tolist())]
            kept = _blocks(row, limit, block, blocks_kept)
            inside = [s if p // block in kept else -math.inf for p, s in enumerate(row)]
            best = sorted(range(t), key=lambda p, inside=inside: (-inside[p], p))[:k]
            mask[i, j] = torch.tensor([p // block in kept for p in range(t)])
            index[i, j] = torch.tensor(best)
            valid[i, j] = torch.tensor([inside[p] > -math.inf for p in best])
    return mask, index, valid


def _blocks(row: list[float], limit: int, block: int, kept: int) -> set[int]:
    best = [max(row[b : b + block]) for b in range(0, len(row), block)]
    if limit > 0:
        best[(limit - 1) // block] = math.inf
    order = sorted(range(len(best)), key=lambda b: (-best[b], b))[:kept]
    return {b for b in order if best[b] > -math.inf}


OP = candidate_selection
