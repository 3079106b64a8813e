"""Whole sequences at once: the differentiable form, for training and for reference logits."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dsv41.model.config import ModelConfig
from dsv41.model.draft import Context, base_logits, context_rows, corrected, draft_hidden
from dsv41.model.forward import Forward, Hidden, logits, rotation_rows, run_layers
from dsv41.model.params import ModelParams, bind
from dsv41.model.quant import EXACT, Rounding
from dsv41.model.state import DenseState
from dsv41.model.vocabulary import TokenMap, modulo_map

Weights = Mapping[str, Tensor] | ModelParams


def forward_full(
    params: Weights,
    config: ModelConfig,
    token_ids: Tensor,
    token_map: TokenMap | None = None,
    rounding: Rounding = EXACT,
) -> Tensor:
    """Logits `[B, S, vocab]` float32 of `token_ids [B, S]` from position 0.

    `params` is the flat dictionary (official names, experts stacked) or its bound form;
    gradients reach every weight but the indexer's, whose choice is discrete.
    """
    bound = _bound(params, config)
    hidden = forward_hidden(bound, config, token_ids, token_map, rounding)
    return logits(hidden.folded, bound, config).unflatten(0, token_ids.shape)


def forward_hidden(
    params: Weights,
    config: ModelConfig,
    token_ids: Tensor,
    token_map: TokenMap | None = None,
    rounding: Rounding = EXACT,
) -> Hidden:
    """Folded and captured streams, `[B*S, ...]`."""
    batch, length = token_ids.shape
    run = Forward(config, DenseState(batch, length, config.sliding_window), rounding)
    mapping = token_map or modulo_map(config)
    return run_layers(_bound(params, config), run, token_ids.reshape(-1), mapping)


def draft_full(
    params: Weights,
    config: ModelConfig,
    token_ids: Tensor,
    captured: Tensor,
    anchors: Tensor,
    rounding: Rounding = EXACT,
) -> tuple[Tensor, Tensor]:
    """Draft logits `[B, A, block, vocab]` and confidence logits `[B, A, block]`, teacher-forced.

    `captured [B*S, targets*d]` comes from `forward_hidden` (detach it to train drafts alone);
    `anchors [A]` are the anchors' positions, 1 <= a <= S - block: draft i of anchor a predicts
    token a+1+i from the true token a+i as its Markov predecessor.
    """
    bound = _bound(params, config)
    assert bound.draft is not None
    batch, length = token_ids.shape
    size, window, count = config.dspark_block_size, config.sliding_window, anchors.shape[0]
    positions = torch.arange(length).repeat(batch)
    rotation = rotation_rows(config, positions, config.head_dim, compressed=False)
    rows = context_rows(captured, bound.draft, config, rotation, rounding)
    reach = anchors.unsqueeze(1) - window + torch.arange(window)
    visible = (reach >= 0).repeat(batch, 1)
    start = torch.arange(batch).view(-1, 1, 1) * length
    index = (reach.clamp(min=0) + start).reshape(-1)
    contexts = [
        Context(rows[:, s].index_select(0, index).unflatten(0, (-1, window)), visible)
        for s in range(len(bound.draft.stages))
    ]
    block = token_ids[:, anchors.unsqueeze(1) + torch.arange(size)]
    last = (anchors - 1).repeat(batch)
    folded = draft_hidden(bound, config, block[..., 0].reshape(-1), last, contexts, rounding)
    previous = block.reshape(-1, size)
    scored, confidence = corrected(
        folded, base_logits(folded, bound, config), previous, bound.draft
    )
    return scored.unflatten(0, (batch, count)), confidence.unflatten(0, (batch, count))


def _bound(params: Weights, config: ModelConfig) -> ModelParams:
    return params if isinstance(params, ModelParams) else bind(params, config)
