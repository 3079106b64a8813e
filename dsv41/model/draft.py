"""DSpark: three draft stages, noise tokens, a Markov correction and a confidence head.

A block of drafts reads context rows (made once per accepted position from the target's captured
streams) and its own rows, in both directions; its rows never outlive the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dsv41.model import hyper
from dsv41.model.attention import attend, count_attend, project, project_out
from dsv41.model.config import ModelConfig
from dsv41.model.forward import Forward, feed_forward, rotation_rows
from dsv41.model.norms import native_rms_norm, rms_norm
from dsv41.model.params import DraftParams, ModelParams
from dsv41.model.quant import Rounding
from dsv41.model.rope import rotate


class Context(NamedTuple):
    """One stage's rows before the block: `keys [G, M, D]`, `visible [G, M]` bool."""

    keys: Tensor
    visible: Tensor


class Drafts(NamedTuple):
    """`tokens [G, block]` int64 and `confidence [G, block]`, the logits of being accepted."""

    tokens: Tensor
    confidence: Tensor


def context_rows(
    captured: Tensor, params: DraftParams, config: ModelConfig, rotation: Tensor, rounding: Rounding
) -> Tensor:
    """Every stage's context row of `captured [n, targets*d]`: `[n, stages, D]`.

    All stages project the same vector; no stage depends on the one before it.
    """
    eps, stages = config.rms_norm_eps, len(params.stages)
    main = rms_norm(rounding.activation(captured) @ params.main_proj, params.main_norm, eps)
    joined = rounding.activation(main) @ params.context_wkv
    rows = native_rms_norm(joined.unflatten(-1, (stages, -1)), params.context_norms, eps)
    return rounding.activation(rotate(rows, rotation))


def context_field(config: ModelConfig, stage: int) -> tuple[str, int]:
    """The state field that holds a stage's context rows."""
    return ("window", config.num_hidden_layers + stage)


def write_context(captured: Tensor, params: DraftParams, run: Forward) -> None:
    """Store this forward's context rows; a pure function of the target's streams.

    Rejected positions are overwritten when their true tokens are processed.
    """
    rotation = run.rotation(0, run.config.head_dim)
    rows = context_rows(captured, params, run.config, rotation, run.rounding)
    for stage in range(rows.shape[1]):
        run.state.write(context_field(run.config, stage), rows[:, stage])


def draft_hidden(
    params: ModelParams,
    config: ModelConfig,
    anchor: Tensor,
    last: Tensor,
    contexts: Sequence[Context],
    rounding: Rounding,
) -> Tensor:
    """Folded streams `[G, block, d]` of one draft forward.

    `anchor [G]` is the newest, not yet processed token; `last [G]` the position before it.
    """
    assert params.draft is not None
    size, d = config.dspark_block_size, config.hidden_size
    noise = anchor.new_full((anchor.shape[0], size - 1), config.dspark_noise_token_id)
    ids = torch.cat((anchor.unsqueeze(1), noise), 1)
    positions = last.unsqueeze(1) + 1 + torch.arange(size, device=last.device)
    rotation = rotation_rows(config, positions.reshape(-1), config.head_dim, compressed=False)
    inverse = rotation.conj().resolve_conj()
    embedded = torch.nn.functional.embedding(ids.reshape(-1), params.embed)
    stream = embedded.unsqueeze(1).expand(-1, config.hc_mult, -1)
    carried = hyper.first_mix(stream.shape[0], config.hc_mult)
    for stage, context in zip(params.draft.stages, contexts, strict=True):
        mix = hyper.mixes(stream, stage.attn_mix, config)
        x = rms_norm(hyper.collapse(stream, carried), stage.attn_norm, config.rms_norm_eps)
        projected = project(x, stage.attn, config, rotation, rounding)
        own = projected.row.reshape(-1, size, config.head_dim)
        keys = torch.cat((context.keys, own), 1)
        # Every draft sees the whole block: causal masking here kills the drafts.
        seen = torch.cat((context.visible, context.visible.new_ones(own.shape[:2])), 1)
        seen = seen.unsqueeze(1).expand(-1, size, -1)
        query = projected.query.reshape(-1, size, *projected.query.shape[1:])
        attended = attend(query, keys, seen, stage.attn.sink).flatten(0, 1)
        count_attend("draft", query)
        y = project_out(attended, stage.attn, inverse, rounding)
        stream = hyper.expand(y, stream, mix)
        stream, carried = feed_forward(stream, mix.pre, stage, config, rounding)
    return hyper.collapse(stream, carried).view(-1, size, d)


def base_logits(folded: Tensor, params: ModelParams, config: ModelConfig) -> Tensor:
    """`[G, block, vocab]` float32 before the Markov correction; the head is the target's."""
    assert params.draft is not None
    return rms_norm(folded, params.draft.norm, config.rms_norm_eps).float() @ params.head


def corrected(
    folded: Tensor, base: Tensor, previous: Tensor, params: DraftParams
) -> tuple[Tensor, Tensor]:
    """Logits and confidence of drafts whose previous tokens are known.

    `folded [..., d]`, `base [..., vocab]`, `previous [...]`; the confidence reads the folded
    stream before its norm.
    """
    embedded = torch.nn.functional.embedding(previous, params.markov_embed).float()
    confidence = torch.cat((folded.float(), embedded), -1) @ params.confidence
    return base + embedded @ params.markov_head, confidence.squeeze(-1)


def greedy_drafts(
    folded: Tensor, anchor: Tensor, params: ModelParams, config: ModelConfig
) -> Drafts:
    """The block's tokens by argmax, each corrected by the token drafted before it.

    Sequential by definition: `block` steps, each over all requests at once.
    """
    assert params.draft is not None
    base = base_logits(folded, params, config)
    previous, tokens, confidences = anchor, [], []
    for i in range(config.dspark_block_size):
        scored, confidence = corrected(folded[:, i], base[:, i], previous, params.draft)
        previous = scored.argmax(-1)
        tokens.append(previous)
        confidences.append(confidence)
    return Drafts(torch.stack(tokens, 1), torch.stack(confidences, 1))
