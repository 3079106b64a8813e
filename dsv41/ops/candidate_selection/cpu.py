"""The two-level choice from the indexer's own functions."""

from types import SimpleNamespace

import torch
from torch import Tensor

from dsv41.model import indexer, topk
from dsv41.ops.candidate_selection.native import OP
from dsv41.ops.exactness import Bitwise
from dsv41.ops.registry import Rule


@OP.backend(
    "cpu",
    exactness={"int64": Bitwise(because="a choice with a defined order")},
    serves=("dsv41.model.indexer.candidate_mask", "dsv41.model.topk.top_k"),
    rules=(Rule("no rows", lambda score, *rest: score.shape[0] > 0),),
)
def cpu(
    score: Tensor, reach: Tensor, block: int, blocks_kept: int, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    beyond = torch.arange(score.shape[-1]) >= reach.unsqueeze(-1)
    score = score.masked_fill(beyond, -torch.inf)
    config = SimpleNamespace(candidate_block_size=block, candidate_topk_blocks=blocks_kept)
    mask = indexer.candidate_mask(score, reach, config)
    inside = score.masked_fill(~mask, -torch.inf)
    index = topk.top_k(inside, min(k, score.shape[-1]))
    return mask, index, inside.gather(-1, index) > -torch.inf
