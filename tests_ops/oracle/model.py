"""Token ids -> logits and every intermediate value of the backbone. 2.2, 2.5, 2.16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests_ops.oracle import attention, compressor, engram, hyper, moe, numerics
from tests_ops.oracle.attention import Shared
from tests_ops.oracle.config import Model


@dataclass(frozen=True, kw_only=True)
class Replay:
    """2.16: the decoder runs only on the last `sliding_window` rows of each scheduled chunk.

    A deviation from the reference semantics, which run every layer on every row.
    `chunk_ends`: ascending ends of the scheduled chunks; the last is the number of tokens.
    `source_runs_in_full`: the last kv source itself attends on all rows (U-1: sources differ).
    """

    chunk_ends: tuple[int, ...]
    source_runs_in_full: bool = False


@dataclass(kw_only=True)
class Trace:
    """All that a forward computed; rows are the positions listed in `positions`."""

    positions: Tensor
    logits: Tensor  # [rows, vocab]
    main_hidden: Tensor  # [rows, len(targets) * d]
    hidden: Tensor  # [rows, d], after the final norm
    streams: list[Tensor]  # per layer, [rows of that layer, hc, d], the stream leaving it
    mixes: list[Tensor]  # per layer, [rows of that layer, hc]
    attn_out: list[Tensor] = field(default_factory=list)
    ffn_out: list[Tensor] = field(default_factory=list)
    shared: Shared = field(default_factory=Shared)


def forward(model: Model, tokens: Sequence[int], replay: Replay | None = None) -> Trace:
    """Run the whole sequence from position 0; raises ValueError on an illegal replay."""
    cfg = model.cfg
    ids = torch.as_tensor(tokens, dtype=torch.int64)
    positions = torch.arange(ids.numel())
    floor = torch.zeros_like(positions)
    trim_at = first_trimmed_layer(model, replay)
    h = hyper.spread(model.w["embed.weight"][ids], cfg.hc_mult)
    m = hyper.initial_mix(ids.numel(), cfg.hc_mult, h)
    shared, captured = Shared(), []
    streams, mixes, attn_out, ffn_out = [], [], [], []
    for layer in range(cfg.num_hidden_layers):
        if layer in cfg.engram_layer_ids:
            h = engram.engram(model, layer, h, ids)
        if replay is not None and layer == trim_at:
            publish(model, layer, h, m, shared)
            keep, floor = kept_rows(cfg.sliding_window, replay.chunk_ends)
            h, m, positions = h[keep], m[keep], positions[keep]
            trim_shared(shared, keep)
        if layer in cfg.dspark_target_layer_ids:
            captured.append(h.mean(1))
        h, m, y_attn, y_ffn = block(
            model,
            f"layers.{layer}",
            h,
            m,
            lambda x, layer=layer, p=positions, low=floor: attention.attention(
                model, layer, x, p, low, shared
            ),
            (cfg.n_routed_experts, cfg.num_experts_per_tok),
        )
        for record, value in ((streams, h), (mixes, m), (attn_out, y_attn), (ffn_out, y_ffn)):
            record.append(value)
    hidden = numerics.rms_norm(hyper.collapse(h, m), model.w["norm.weight"], cfg.rms_norm_eps)
    return Trace(
        positions=positions,
        logits=numerics.linear(hidden, model.w["head.weight"]),
        main_hidden=torch.cat(captured, -1) if captured else h.new_zeros(h.shape[0], 0),
        hidden=hidden,
        streams=streams,
        mixes=mixes,
        attn_out=attn_out,
        ffn_out=ffn_out,
        shared=shared,
    )


def block(
    model: Model,
    prefix: str,
    h: Tensor,
    m: Tensor,
    attend: Callable[[Tensor], Tensor],
    experts: tuple[int, int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """2.5: (stream, carried mix, attention output, expert output); `pre` is one sub-layer late."""
    eps = model.cfg.rms_norm_eps
    a_pre, a_post, a_comb = hyper.mixes(model, prefix, "attn", h)
    x = numerics.rms_norm(hyper.collapse(h, m), model.w[f"{prefix}.attn_norm.weight"], eps)
    y_attn = attend(x)
    h = hyper.expand(y_attn, h, a_post, a_comb)
    f_pre, f_post, f_comb = hyper.mixes(model, prefix, "ffn", h)
    x = numerics.rms_norm(hyper.collapse(h, a_pre), model.w[f"{prefix}.ffn_norm.weight"], eps)
    y_ffn = moe.moe(model, f"{prefix}.ffn", x, *experts)
    return hyper.expand(y_ffn, h, f_post, f_comb), f_pre, y_attn, y_ffn


def first_trimmed_layer(model: Model, replay: Replay | None) -> int | None:
    """The layer from which on only the kept rows run."""
    if replay is None:
        return None
    cut = max(model.cfg.kv_source_layer_ids)
    late = [layer for layer in model.cfg.engram_layer_ids if layer >= cut]
    if late:
        raise ValueError(f"replay needs every Engram layer below {cut}, got {late}")
    return cut + 1 if replay.source_runs_in_full else cut


def kept_rows(window: int, chunk_ends: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(kept positions, per kept position the oldest window row its chunk may read)."""
    keep: list[int] = []
    floor: list[int] = []
    start = 0
    for end in chunk_ends:
        first = max(start, end - window)
        low = first if first > start else 0
        keep += range(first, end)
        floor += [low] * (end - first)
        start = end
    return torch.tensor(keep), torch.tensor(floor)


def publish(model: Model, layer: int, h: Tensor, m: Tensor, shared: Shared) -> None:
    """The cut layer writes its compressed KV for all rows before the trim."""
    if layer in model.cfg.kv_source_layer_ids:
        norm = model.w[f"layers.{layer}.attn_norm.weight"]
        x = numerics.rms_norm(hyper.collapse(h, m), norm, model.cfg.rms_norm_eps)
        shared.compressed[layer] = compressor.compress(model, layer, x)


def trim_shared(shared: Shared, keep: Tensor) -> None:
    """Per-query values published so far follow the kept rows."""
    shared.selection = {layer: mask[keep] for layer, mask in shared.selection.items()}
    if shared.candidates is not None:
        shared.candidates = shared.candidates[keep]
