"""The attention sub-layer of a backbone layer. 2.7, with what layers share (2.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests_ops.oracle import compressor, indexer, numerics, quant, rope
from tests_ops.oracle.compressor import Compressed
from tests_ops.oracle.config import Config, Model, index_source_of, kv_source_of


@dataclass(kw_only=True)
class Shared:
    """What earlier layers of this forward published, by the id of the owning layer."""

    compressed: dict[int, Compressed] = field(default_factory=dict)
    selection: dict[int, Tensor] = field(default_factory=dict)  # bool [n, T]
    candidates: Tensor | None = None  # bool [n, T]


def attention(
    model: Model, layer: int, x: Tensor, positions: Tensor, floor: Tensor, shared: Shared
) -> Tensor:
    """x [n, d], attn_norm'ed -> [n, d]. `floor` [n]: the oldest window row a query may read."""
    cfg, prefix = model.cfg, f"layers.{layer}.attn"
    ratio = cfg.compress_ratios[layer]
    freqs = rope.frequencies(cfg, ratio)
    qr, q = queries(model, prefix, x, positions, freqs)
    keys = window_rows(model, prefix, x, positions, freqs)
    visible = window_mask(cfg, positions, floor)
    if ratio > 0:
        if layer in cfg.kv_source_layer_ids and layer not in shared.compressed:
            shared.compressed[layer] = compressor.compress(model, layer, x)
        source = shared.compressed[kv_source_of(cfg, layer)]
        if layer in cfg.index_source_layer_ids:
            shared.selection[layer] = select(model, layer, x, qr, positions, shared)
        chosen = shared.selection[index_source_of(cfg, layer)]
        keys = torch.cat((keys, source.kv))
        visible = torch.cat((visible, chosen), -1)
    out = numerics.attend(q, keys, visible, model.w[f"{prefix}.attn_sink"])
    return project_output(model, prefix, rope.rotate_back(out, positions, freqs))


def queries(
    model: Model, prefix: str, x: Tensor, positions: Tensor, freqs: Tensor
) -> tuple[Tensor, Tensor]:
    """(qr [n, q_lora_rank], q [n, H, D] rotated); there is no per-head norm (T-10)."""
    cfg = model.cfg
    low = numerics.quantised_linear(x, model.w[f"{prefix}.wq_a.weight"], model.rounding)
    qr = numerics.rms_norm(low, model.w[f"{prefix}.q_norm.weight"], cfg.rms_norm_eps)
    q = numerics.quantised_linear(qr, model.w[f"{prefix}.wq_b.weight"], model.rounding)
    q = q.unflatten(-1, (cfg.num_attention_heads, cfg.head_dim))
    return qr, rope.rotate(q, positions, freqs)


def window_rows(model: Model, prefix: str, x: Tensor, positions: Tensor, freqs: Tensor) -> Tensor:
    """[n, head_dim]: this layer's own row of each token, key and value at once."""
    kv = numerics.quantised_linear(x, model.w[f"{prefix}.wkv.weight"], model.rounding)
    kv = numerics.rms_norm(kv, model.w[f"{prefix}.kv_norm.weight"], model.cfg.rms_norm_eps)
    kv = rope.rotate(kv, positions, freqs)
    return quant.fp8_act(kv) if model.rounding else kv


def window_mask(cfg: Config, positions: Tensor, floor: Tensor) -> Tensor:
    """bool [n, n]: position t is visible to p when p - W < t <= p, never below the floor."""
    p, t = positions[:, None], positions[None, :]
    return (t <= p) & (t > p - cfg.sliding_window) & (t >= floor[:, None])


def select(
    model: Model, layer: int, x: Tensor, qr: Tensor, positions: Tensor, shared: Shared
) -> Tensor:
    """bool [n, T]: the groups an index source chooses for each query."""
    cfg = model.cfg
    source = shared.compressed[kv_source_of(cfg, layer)]
    scores = indexer.masked_scores(model, layer, x, qr, positions, source)
    if layer == cfg.candidate_source_layer_id:
        # T-21: the candidate source's own top-k ignores its mask.
        reached = indexer.reach(positions, source.ratio)
        shared.candidates = indexer.candidates(cfg, scores, reached)
    elif shared.candidates is not None:
        scores = indexer.restrict(scores, shared.candidates)
    return numerics.top_k_mask(scores, cfg.index_topk)


def project_output(model: Model, prefix: str, out: Tensor) -> Tensor:
    """2.7.8: [n, H, D] -> [n, d]; wo_a is block diagonal over groups, flattened group-major."""
    cfg = model.cfg
    grouped = out.flatten(1).unflatten(1, (cfg.o_groups, -1))
    wo_a = model.w[f"{prefix}.wo_a.weight"].unflatten(0, (cfg.o_groups, cfg.o_lora_rank))
    low = torch.einsum("ngk,grk->ngr", grouped, wo_a).flatten(1)
    return numerics.quantised_linear(low, model.w[f"{prefix}.wo_b.weight"], model.rounding)
