"""The draft stages' forward pass for training, teacher-forced, with few large operations.

Only differences of positions matter to the rotation, so every block of drafts is computed at the
same small positions: its context at 0..window-1, its own tokens behind it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dsv41.model.config import ModelConfig
from dsv41.model.params import ModelParams
from dsv41.tiny.dense import angles_of, attend, enter, leave, mm, moe, norm, project, project_out
from dsv41.tiny.dense import turn as turned


class Drafted(NamedTuple):
    """`scored [B, A, block, vocab]`, `confidence [B, A, block]`, `load [stages, experts]`."""

    scored: Tensor
    confidence: Tensor
    load: Tensor


def run(
    params: ModelParams,
    config: ModelConfig,
    captured: Tensor,
    anchors: Tensor,
    block: Tensor,
    dtype: torch.dtype = torch.float32,
) -> Drafted:
    """Drafts behind `anchors [B, A]` (positions), from `captured [B, S, targets*d]`.

    `block [B, A, size]` holds the anchor and the true tokens after it, each draft's predecessor.
    """
    draft = params.draft
    assert draft is not None
    size, window = config.dspark_block_size, config.sliding_window
    angles = angles_of(config, torch.arange(window + size), compressed=False)
    before, own = angles[:window], angles[window:]
    reach = anchors.unsqueeze(-1) - window + torch.arange(window)
    groups = anchors.numel()
    main = norm(mm(captured, draft.main_proj, dtype), draft.main_norm, config)
    rows = mm(main, draft.context_wkv, dtype).unflatten(-1, (len(draft.stages), -1))
    index = reach.clamp(min=0).flatten(1).unsqueeze(-1).expand(-1, -1, config.head_dim)
    seen = (reach >= 0).view(groups, 1, window).expand(-1, size, -1)
    visible = torch.cat((seen, seen.new_ones(groups, size, size)), -1)
    noise = block.new_full((groups, size - 1), config.dspark_noise_token_id)
    ids = torch.cat((block[..., :1].reshape(groups, 1), noise), 1)
    stream = F.embedding(ids, params.embed).unsqueeze(2).expand(-1, -1, config.hc_mult, -1)
    carried = torch.eye(config.hc_mult)[0].expand(groups, size, -1)
    load = []
    for number, stage in enumerate(draft.stages):
        x, post, comb, carried_next = enter(
            stream, carried, stage.attn_mix, stage.attn_norm, config
        )
        query, keys = project(x, stage.attn, config, own, dtype)
        context = norm(rows[:, :, number].contiguous(), stage.attn.kv_norm, config)
        context = context.gather(1, index).view(groups, window, -1)
        keys = torch.cat((turned(context, before), keys), 1)
        out = attend(query, keys, visible, stage.attn.sink)
        stream = leave(project_out(out, stage.attn, config, own, dtype), stream, post, comb)
        x, post, comb, carried = enter(stream, carried_next, stage.ffn_mix, stage.ffn_norm, config)
        y, chosen = moe(x, stage.moe, config, dtype)
        load.append(chosen)
        stream = leave(y, stream, post, comb)
    folded = (carried.unsqueeze(-1) * stream).sum(2)
    embedded = F.embedding(block.reshape(groups, size), draft.markov_embed)
    scored = norm(folded, draft.norm, config) @ params.head + embedded @ draft.markov_head
    # The confidence head learns from the drafts without bending them.
    confidence = torch.cat((folded.detach(), embedded.detach()), -1) @ draft.confidence
    shape = anchors.shape
    return Drafted(
        scored.unflatten(0, shape), confidence.squeeze(-1).unflatten(0, shape), torch.stack(load)
    )
