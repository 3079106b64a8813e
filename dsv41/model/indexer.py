"""Which compressed rows a query reads: scores, candidate blocks, and the published choice."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dsv41 import paths
from dsv41.model.config import LayerPlan, ModelConfig
from dsv41.model.state import Segment
from dsv41.model.topk import top_k


class Selection(NamedTuple):
    """Published by an index source and read by its consumers, one per segment.

    The rows themselves, `keys [R, M, D]`, and who sees which, `visible [R, Q, M]`.
    """

    keys: Tensor
    visible: Tensor


def scores(query: Tensor, weight: Tensor, keys: Tensor) -> Tensor:
    """`sum_a relu(q_a . k_j) * w_a`: `[R, Q, A, w]`, `[R, Q, A]`, `[R, T, w]` to `[R, Q, T]`."""
    r, q, a, _ = query.shape
    products = torch.bmm(query.flatten(1, 2).float(), keys.float().transpose(1, 2)).relu()
    weighted = weight.reshape(r * q, 1, a).float() @ products.view(r * q, a, -1)
    return weighted.view(r, q, -1)


def select(
    segment: Segment,
    query: Tensor,
    weight: Tensor,
    plan: LayerPlan,
    config: ModelConfig,
    candidates: Tensor | None,
) -> tuple[Selection | None, Tensor | None]:
    """The selection of one segment and the candidate mask `[R, Q, T]` in force after it.

    Each layer scores its own kv source's keys, in decode as in prefill: the released reference
    lets a half-filled group read keys published by another layer, and then disagrees with its
    own prefill.
    """
    source, ratio = plan.kv_source, plan.ratio
    num_groups = segment.num_groups(ratio)
    if source is None or num_groups == 0:
        return None, None
    reach = (segment.positions + 1) // ratio
    beyond = torch.arange(num_groups, device=reach.device) >= reach.unsqueeze(-1)
    mask = candidates if plan.is_candidate_reader else None
    blocks = -(-num_groups // config.candidate_block_size)
    publishes = plan.is_candidate_source and blocks > config.candidate_topk_blocks
    if num_groups <= config.index_topk and mask is None and not publishes:
        # Everything within reach is chosen, whatever its score.
        paths.count("select", "all", rows=reach.numel())
        rows = segment.groups(("latent", source), ratio)
        return Selection(rows, ~beyond), None if plan.is_candidate_source else candidates
    paths.count("select", "scored" if mask is None else "candidates", rows=reach.numel())
    score = scores(
        segment.take(query), segment.take(weight), segment.groups(("key", source), ratio)
    )
    score = score.masked_fill(beyond, -torch.inf)
    published = candidates
    if plan.is_candidate_source:
        published = candidate_mask(score, reach, config) if publishes else None
    if mask is not None:
        score = score.masked_fill(~mask, -torch.inf)
    index = top_k(score, min(config.index_topk, num_groups))
    valid = score.gather(-1, index) > -torch.inf
    rows, visible = segment.selected(("latent", source), ratio, index, valid)
    return Selection(rows, visible), published


def candidate_mask(score: Tensor, reach: Tensor, config: ModelConfig) -> Tensor:
    """Positions of the best blocks, `[R, Q, T]` bool, from masked scores and `reach [R, Q]`.

    The block with the newest reachable position is always among them.
    """
    width, size = score.shape[-1], config.candidate_block_size
    padded = F.pad(score, (0, -width % size), value=-torch.inf)
    block = padded.unflatten(-1, (-1, size)).amax(-1)
    newest = torch.div(reach - 1, size, rounding_mode="floor").unsqueeze(-1)
    number = torch.arange(block.shape[-1], device=score.device)
    block = block.masked_fill(number == newest, torch.inf)
    best = top_k(block, min(config.candidate_topk_blocks, block.shape[-1]))
    kept = torch.zeros_like(block, dtype=torch.bool)
    kept = kept.scatter(-1, best, block.gather(-1, best) > -torch.inf)
    return kept.repeat_interleave(size, dim=-1)[..., :width]
