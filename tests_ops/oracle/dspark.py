"""DSpark: captured hidden states and an anchor token -> five drafts. Section 3."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests_ops.oracle import attention, hyper, model, numerics, rope
from tests_ops.oracle.config import Model


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One draft forward; row i drafts the token after block row i."""

    tokens: list[int]
    base_logits: Tensor  # [block, vocab], before the Markov term
    logits: Tensor  # [block, vocab]
    confidence: Tensor  # [block], logits


def context_input(m: Model, main_hidden: Tensor) -> Tensor:
    """3.2: M_q [n, d], the same for all stages; no attn_norm and no mHC apply to it."""
    low = numerics.quantised_linear(main_hidden, m.w["mtp.0.main_proj.weight"], m.rounding)
    return numerics.rms_norm(low, m.w["mtp.0.main_norm.weight"], m.cfg.rms_norm_eps)


def context_rows(m: Model, stage: int, projected: Tensor, positions: Tensor) -> Tensor:
    """3.2: stage rows [n, head_dim] of target positions, rotated by table A."""
    freqs = rope.frequencies(m.cfg, 0)
    return attention.window_rows(m, f"mtp.{stage}.attn", projected, positions, freqs)


def draft(m: Model, main_hidden: Tensor, positions: Tensor, anchor: int) -> Draft:
    """3.3: main_hidden [n, targets * d] at `positions` (the last is p), anchor = t[p + 1]."""
    cfg = m.cfg
    recent = positions > positions[-1] - cfg.sliding_window
    projected, seen = context_input(m, main_hidden[recent]), positions[recent]
    ids = block_ids(m, anchor)
    block_positions = positions[-1] + 1 + torch.arange(cfg.dspark_block_size)
    h = hyper.spread(m.w["embed.weight"][ids], cfg.hc_mult)
    mix = hyper.initial_mix(cfg.dspark_block_size, cfg.hc_mult, h)
    for stage in range(cfg.num_nextn_predict_layers):
        context = context_rows(m, stage, projected, seen)
        h, mix, _, _ = model.block(
            m,
            f"mtp.{stage}",
            h,
            mix,
            lambda x, stage=stage, rows=context: draft_attention(
                m, stage, x, block_positions, rows
            ),
            (cfg.dspark_n_routed_experts, cfg.dspark_num_experts_per_tok),
        )
    return read_out(m, hyper.collapse(h, mix), anchor)


def block_ids(m: Model, anchor: int) -> Tensor:
    """The anchor followed by noise tokens."""
    noise = m.cfg.dspark_noise_token_id
    return torch.tensor([anchor] + [noise] * (m.cfg.dspark_block_size - 1))


def draft_attention(m: Model, stage: int, x: Tensor, positions: Tensor, context: Tensor) -> Tensor:
    """All context rows and all block rows are visible to every block row: not causal."""
    prefix, freqs = f"mtp.{stage}.attn", rope.frequencies(m.cfg, 0)
    _, q = attention.queries(m, prefix, x, positions, freqs)
    block = attention.window_rows(m, prefix, x, positions, freqs)
    keys = torch.cat((context, block))
    visible = block_mask(x.shape[0], context.shape[0])
    out = numerics.attend(q, keys, visible, m.w[f"{prefix}.attn_sink"])
    return attention.project_output(m, prefix, rope.rotate_back(out, positions, freqs))


def block_mask(block: int, context: int) -> Tensor:
    """bool [block, context + block]."""
    return torch.ones(block, context + block, dtype=torch.bool)


def read_out(m: Model, x: Tensor, anchor: int) -> Draft:
    """3.3.4-5: head, sequential Markov correction (greedy) and confidence of x [block, d]."""
    last = f"mtp.{m.cfg.num_nextn_predict_layers - 1}"
    normed = numerics.rms_norm(x, m.w[f"{last}.norm.weight"], m.cfg.rms_norm_eps)
    base = numerics.linear(normed, m.w["head.weight"])
    embed = m.w[f"{last}.markov_head.embed.weight"]
    head = m.w[f"{last}.markov_head.head.weight"]
    proj = m.w[f"{last}.confidence_head.proj.weight"]
    tokens, logits, confidence, previous = [], [], [], anchor
    for i in range(x.shape[0]):
        e = embed[previous]
        logits.append(base[i] + head @ e)
        # T-34: x before the final norm, with the Markov embedding of the previous token.
        confidence.append(proj[0] @ torch.cat((x[i], e)))
        previous = numerics.first_argmax(logits[-1])
        tokens.append(previous)
    return Draft(
        tokens=tokens,
        base_logits=base,
        logits=torch.stack(logits),
        confidence=torch.stack(confidence),
    )
