"""The classic bugs of the backbone (8.6), each as a patch of one function of the oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from tests_ops.oracle import (
    attention,
    compressor,
    engram,
    hyper,
    indexer,
    model,
    moe,
    numerics,
    rope,
)
from tests_ops.oracle.planting import Mutant, Wrap, after, instead, with_config


def _own_mix_block(m: Any, prefix: str, h: Any, carried: Any, attend: Any, experts: Any) -> Any:
    eps = m.cfg.rms_norm_eps
    a_pre, a_post, a_comb = hyper.mixes(m, prefix, "attn", h)
    x = numerics.rms_norm(hyper.collapse(h, a_pre), m.w[f"{prefix}.attn_norm.weight"], eps)
    y_attn = attend(x)
    h = hyper.expand(y_attn, h, a_post, a_comb)
    f_pre, f_post, f_comb = hyper.mixes(m, prefix, "ffn", h)
    x = numerics.rms_norm(hyper.collapse(h, f_pre), m.w[f"{prefix}.ffn_norm.weight"], eps)
    y_ffn = moe.moe(m, f"{prefix}.ffn", x, *experts)
    return hyper.expand(y_ffn, h, f_post, f_comb), f_pre, y_attn, y_ffn


def _half_split_turn(x: Any, angles: Any) -> Any:
    rd = 2 * angles.shape[-1]
    shape = (angles.shape[0],) + (1,) * (x.dim() - 2) + (angles.shape[-1],)
    cos, sin = (t.to(x.dtype).reshape(shape) for t in (angles.cos(), angles.sin()))
    first, second = x[..., -rd : -rd // 2], x[..., -rd // 2 :]
    return torch.cat((x[..., :-rd], first * cos - second * sin, first * sin + second * cos), -1)


def _no_sink(original: Any) -> Any:
    return lambda q, keys, visible, sink: original(
        q, keys, visible, torch.full_like(sink, -torch.inf)
    )


def _scaled_sink(original: Any) -> Any:
    return lambda q, keys, visible, sink: original(q, keys, visible, sink * q.shape[-1] ** -0.5)


def _normed_heads(result: Any) -> Any:
    qr, q = result
    return qr, q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-20)


def _rotated_latent_keys(original: Any) -> Any:
    return lambda m, prefix, latent, positions, freqs: original(
        m, prefix, rope.rotate(latent, positions, freqs), positions, freqs
    )


def _no_relu(q: Any, keys: Any, weights: Any) -> Any:
    return torch.einsum("nhd,td,nh->nt", q, keys, weights)


def _route(biased: bool = False, affinity: Any = None) -> Wrap:
    def route(m: Any, prefix: str, x: Any, top_k: int) -> Any:
        scores = (affinity or moe.affinity)(x @ m.w[f"{prefix}.weight"].T)
        ranked = scores + m.w[f"{prefix}.bias"]
        chosen = numerics.top_k_mask(ranked, top_k)
        weights = (ranked if biased else scores).masked_fill(~chosen, 0)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * m.cfg.routed_scaling_factor

    return instead(route)


def _both_sides(gate: Any, up: Any, limit: float) -> Any:
    return F.silu(gate.clamp(-limit, limit)) * up.clamp(-limit, limit)


def _clamp_after_silu(gate: Any, up: Any, limit: float) -> Any:
    return F.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)


def _joint_norms(cfg: Any, h: Any, key: Any) -> Any:
    def joint(x: Any) -> Any:
        return torch.rsqrt(x.square().mean((-2, -1)) + cfg.rms_norm_eps)[:, None]

    return joint(h) * joint(key)


def _rank_major(m: Any, prefix: str, out: Any) -> Any:
    cfg = m.cfg
    grouped = out.flatten(1).unflatten(1, (cfg.o_groups, -1))
    wo_a = m.w[f"{prefix}.wo_a.weight"].unflatten(0, (cfg.o_groups, cfg.o_lora_rank))
    low = torch.einsum("ngk,grk->nrg", grouped, wo_a).flatten(1)
    return low @ m.w[f"{prefix}.wo_b.weight"].T


def _previous_source(original: Any) -> Any:
    """The latest index source but one, when the latest is the re-index layer."""

    def source(cfg: Any, layer: int) -> int:
        found = original(cfg, layer)
        return original(cfg, found - 1) if found > max(cfg.kv_source_layer_ids) else found

    return source


def _first_r2_source(original: Any) -> Any:
    def source(cfg: Any, layer: int) -> int:
        found = original(cfg, layer)
        return min(cfg.kv_source_layer_ids) if cfg.compress_ratios[found] == 2 else found

    return source


def _own_mask_first(original: Any) -> Any:
    """The candidate source's own top-k restricted by its own mask (T-21)."""

    def select(m: Any, layer: int, x: Any, qr: Any, positions: Any, shared: Any) -> Any:
        chosen = original(m, layer, x, qr, positions, shared)
        if layer != m.cfg.candidate_source_layer_id:
            return chosen
        unaware = replace(m, cfg=replace(m.cfg, candidate_source_layer_id=-1))
        return original(unaware, layer, x, qr, positions, shared)

    return select


BACKBONE = [
    Mutant(name="hc-pre-not-delayed", module=model, function="block", wrap=instead(_own_mix_block)),
    Mutant(
        name="hc-comb-transposed",
        module=hyper,
        function="mixes",
        wrap=after(lambda r: (r[0], r[1], r[2].mT)),
    ),
    Mutant(
        name="sinkhorn-1-iteration",
        module=hyper,
        function="sinkhorn",
        wrap=with_config(hc_sinkhorn_iters=1),
    ),
    Mutant(
        name="sinkhorn-3-iterations",
        module=hyper,
        function="sinkhorn",
        wrap=with_config(hc_sinkhorn_iters=3),
        least=1e-3,
    ),
    Mutant(
        name="hc-post-without-factor-2",
        module=hyper,
        function="mixes",
        wrap=after(lambda r: (r[0], r[1] / 2, r[2])),
    ),
    Mutant(
        name="no-inverse-rope-on-output",
        module=rope,
        function="rotate_back",
        wrap=instead(lambda x, positions, freqs: x),
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="rope-half-split",
        module=rope,
        function="_turn",
        wrap=instead(_half_split_turn),
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="rope-table-a-on-compressed-layers",
        module=rope,
        function="frequencies",
        wrap=instead(lambda cfg, ratio: rope.base_frequencies(cfg, cfg.rope_theta)),
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="latent-at-last-token-of-group",
        module=compressor,
        function="group_positions",
        wrap=instead(lambda groups, ratio: torch.arange(groups) * ratio + ratio - 1),
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="latent-at-group-index",
        module=compressor,
        function="group_positions",
        wrap=instead(lambda groups, ratio: torch.arange(groups)),
        earliest=3,
        exact=True,
    ),
    Mutant(
        name="reach-floor-p-over-r",
        module=indexer,
        function="reach",
        wrap=instead(lambda positions, ratio: positions // ratio),
        earliest=0,
        exact=True,
    ),
    Mutant(name="no-attention-sink", module=numerics, function="attend", wrap=_no_sink, exact=True),
    Mutant(name="sink-scaled", module=numerics, function="attend", wrap=_scaled_sink, exact=True),
    Mutant(name="per-head-q-norm", module=attention, function="queries", wrap=after(_normed_heads)),
    Mutant(
        name="window-one-short",
        module=attention,
        function="window_mask",
        wrap=with_config(sliding_window=7),
        earliest=7,
        exact=True,
    ),
    Mutant(
        name="candidate-mask-ignored",
        module=indexer,
        function="restrict",
        wrap=instead(lambda scores, mask: scores),
        earliest=8,
    ),
    Mutant(
        name="newest-block-not-pinned",
        module=indexer,
        function="pin_newest",
        wrap=instead(lambda cfg, blocks, reached: blocks),
        earliest=8,
    ),
    Mutant(
        name="candidate-source-restricts-itself",
        module=attention,
        function="select",
        wrap=_own_mask_first,
        earliest=8,
    ),
    Mutant(
        name="reindex-layer-keeps-old-selection",
        module=attention,
        function="index_source_of",
        wrap=_previous_source,
        earliest=4,
    ),
    Mutant(
        name="second-r2-source-ignored",
        module=attention,
        function="kv_source_of",
        wrap=_first_r2_source,
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="index-score-without-relu",
        module=indexer,
        function="head_sum",
        wrap=instead(_no_relu),
        earliest=4,
    ),
    Mutant(
        name="index-key-from-rotated-latent",
        module=compressor,
        function="index_keys",
        wrap=_rotated_latent_keys,
        earliest=4,
    ),
    Mutant(
        name="router-softplus-without-sqrt",
        module=moe,
        function="affinity",
        wrap=instead(F.softplus),
    ),
    Mutant(
        name="routing-weights-from-biased-scores",
        module=moe,
        function="route",
        wrap=_route(biased=True),
    ),
    Mutant(
        name="no-routed-scaling",
        module=moe,
        function="route",
        wrap=with_config(routed_scaling_factor=1.0),
    ),
    Mutant(
        name="swiglu-clamp-missing",
        module=moe,
        function="clipped_swiglu",
        wrap=instead(lambda gate, up, limit: F.silu(gate) * up),
    ),
    Mutant(
        name="swiglu-gate-clamped-both-sides",
        module=moe,
        function="clipped_swiglu",
        wrap=instead(_both_sides),
    ),
    Mutant(
        name="swiglu-clamped-after-silu",
        module=moe,
        function="clipped_swiglu",
        wrap=instead(_clamp_after_silu),
    ),
    Mutant(
        name="engram-off",
        module=engram,
        function="engram",
        wrap=instead(lambda m, layer, h, tokens: h),
    ),
    Mutant(
        name="engram-pad-id-wrong", module=engram, function="pad_id", wrap=after(lambda p: p + 1)
    ),
    Mutant(
        name="engram-gate-without-signed-root",
        module=engram,
        function="gate",
        wrap=instead(torch.sigmoid),
    ),
    Mutant(
        name="engram-norm-joint-over-copies",
        module=engram,
        function="inverse_norms",
        wrap=instead(_joint_norms),
    ),
    Mutant(
        name="wo-a-rank-major",
        module=attention,
        function="project_output",
        wrap=instead(_rank_major),
        exact=True,
    ),
]
