"""The target's forward pass for training: short whole sequences, few large operations.

The same mathematics as `dsv41.model`, for sequences so short that every compressed row is
chosen; all experts are computed and the unchosen ones weighted by zero, so that no shape depends
on data and the whole pass can be compiled.  A test holds it against `forward_full`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dsv41.model.config import LayerPlan, ModelConfig
from dsv41.model.engram import hash_plans, hash_rows
from dsv41.model.params import (
    AttentionParams,
    BlockParams,
    CompressorParams,
    MixParams,
    ModelParams,
    MoeParams,
)
from dsv41.model.rope import frequencies
from dsv41.model.vocabulary import TokenMap
from dsv41.tiny import fused

USE_FUSED = fused.load()


class Tables(NamedTuple):
    """What depends on the length alone: angles `[S, k, 2]` and masks `[S, M]` bool."""

    plain: Tensor
    compressed: Tensor
    window: Tensor
    groups: dict[int, Tensor]


class Outputs(NamedTuple):
    """`hidden [B, S, d]` before the head's norm, `captured [B, S, targets*d]`, and the number of
    tokens that chose each expert, `[layers, experts]`."""

    hidden: Tensor
    captured: Tensor
    load: Tensor


def longest(config: ModelConfig) -> int:
    """The longest sequence of which every compressed row is chosen."""
    return min(config.index_topk, config.candidate_topk_blocks * config.candidate_block_size)


def tables(config: ModelConfig, length: int) -> Tables:
    """Tables of one length; ValueError beyond `longest`."""
    if length > longest(config):
        raise ValueError(f"{length} tokens: only the first {longest(config)} see every row")
    row = torch.arange(length)
    back = row.unsqueeze(1) - row
    ratios = sorted({r for r in config.compress_ratios[: config.num_hidden_layers] if r})
    return Tables(
        plain=angles_of(config, row, compressed=False),
        compressed=angles_of(config, row, compressed=True),
        window=(back >= 0) & (back < config.sliding_window),
        groups={r: torch.arange(length // r) < ((row + 1) // r).unsqueeze(1) for r in ratios},
    )


def angles_of(config: ModelConfig, positions: Tensor, *, compressed: bool) -> Tensor:
    angles = torch.outer(positions.double(), frequencies(config, compressed=compressed))
    return torch.stack((angles.cos(), angles.sin()), -1).float()


def memory_rows(ids: Tensor, token_map: TokenMap, config: ModelConfig) -> dict[int, Tensor]:
    """Rows of each n-gram table, `[B, S, columns]`, of `ids [B, S]`."""
    compressed = token_map.ids[ids]
    history = [compressed]
    for back in range(1, config.engram_max_ngram_size):
        history.append(F.pad(compressed[:, :-back], (back, 0), value=token_map.pad))
    flat = torch.stack(history, -1).flatten(0, 1)
    return {
        layer: hash_rows(flat, plan).unflatten(0, ids.shape)
        for layer, plan in hash_plans(config).items()
    }


def run(
    params: ModelParams,
    config: ModelConfig,
    ids: Tensor,
    rows: dict[int, Tensor],
    made: Tables,
    dtype: torch.dtype = torch.float32,
) -> Outputs:
    """All backbone layers over `ids [B, S]`; `dtype` is that of the matrix products."""
    stream = F.embedding(ids, params.embed).unsqueeze(2).expand(-1, -1, config.hc_mult, -1)
    carried = torch.eye(config.hc_mult)[0].expand(*ids.shape, -1)
    latents: dict[int, Tensor] = {}
    captured, load = [], []
    for plan, layer in zip(config.layer_plans(), params.layers, strict=True):
        if layer.engram is not None:
            stream = _engram(stream, rows[plan.index], layer, config, dtype)
        if plan.is_captured:
            captured.append(stream.mean(2))
        x, post, comb, carried_next = enter(
            stream, carried, layer.attn_mix, layer.attn_norm, config
        )
        y = _attention(x, layer, plan, config, made, latents, dtype)
        stream = leave(y, stream, post, comb)
        x, post, comb, carried = enter(stream, carried_next, layer.ffn_mix, layer.ffn_norm, config)
        y, chosen = moe(x, layer.moe, config, dtype)
        load.append(chosen)
        stream = leave(y, stream, post, comb)
    hidden = (carried.unsqueeze(-1) * stream).sum(2)
    return Outputs(hidden, torch.cat(captured, -1), torch.stack(load))


def head(hidden: Tensor, params: ModelParams, config: ModelConfig) -> Tensor:
    """Logits of `hidden [..., d]`."""
    return norm(hidden, params.norm, config) @ params.head


def mm(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    return (x.to(dtype) @ weight.to(dtype)).float()


def norm(x: Tensor, weight: Tensor | None, config: ModelConfig) -> Tensor:
    if USE_FUSED and weight is not None:
        return fused.RmsNorm.apply(x, weight, config.rms_norm_eps)
    scaled = x * (x.square().mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt()
    return scaled if weight is None else scaled * weight


def turn(x: Tensor, angles: Tensor, *, back: bool = False) -> Tensor:
    """Turn the last dimensions of `x [B, S, (H,) D]` by `angles [S, k, 2]`."""
    if USE_FUSED:
        wide = x if x.dim() == 4 else x.unsqueeze(2)
        return fused.Turn.apply(wide, angles, -1.0 if back else 1.0).view(x.shape)
    if x.dim() == 4:
        angles = angles.unsqueeze(1)
    k = angles.shape[-2]
    cos, sin = angles[..., 0], angles[..., 1]
    sin = -sin if back else sin
    kept, tail = x[..., : -2 * k], x[..., -2 * k :].unflatten(-1, (k, 2))
    a, b = tail[..., 0], tail[..., 1]
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return torch.cat((kept, turned), -1)


def enter(
    stream: Tensor, carried: Tensor, mix: MixParams, weight: Tensor, config: ModelConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sub-layer's normalised input, its post and comb, and the pre that the next one reads."""
    hc, eps = config.hc_mult, config.hc_eps
    if USE_FUSED:
        numbers = (config.hc_sinkhorn_iters, config.rms_norm_eps, eps)
        x, pre, post, comb = fused.Enter.apply(
            stream, carried, mix.fn, mix.scale, mix.base, weight, numbers
        )
        return x, post, comb, pre
    flat = stream.flatten(-2)
    # The norm has no weight, so its factor may follow the product.
    factor = (flat.square().mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt()
    z = (flat @ mix.fn) * factor * mix.scale + mix.base
    pre = z[..., :hc].sigmoid() + eps
    post = z[..., hc : 2 * hc].sigmoid() * 2.0
    comb = z[..., 2 * hc :].unflatten(-1, (hc, hc)).softmax(-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(config.hc_sinkhorn_iters - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    x = (carried.unsqueeze(-1) * stream).sum(2)
    return norm(x, weight, config), post, comb, pre


def leave(y: Tensor, stream: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    if USE_FUSED:
        return fused.Leave.apply(y, stream, post, comb)
    written = (post.unsqueeze(-1) * y.unsqueeze(2)).flatten(0, 1)
    turned = comb.flatten(0, 1).transpose(1, 2)
    return torch.baddbmm(written, turned, stream.flatten(0, 1)).view(stream.shape)


def _attention(
    x: Tensor,
    layer: BlockParams,
    plan: LayerPlan,
    config: ModelConfig,
    made: Tables,
    latents: dict[int, Tensor],
    dtype: torch.dtype,
) -> Tensor:
    p = layer.attn
    angles = made.compressed if plan.ratio else made.plain
    query, keys = project(x, p, config, angles, dtype)
    visible = made.window
    if p.compressor is not None:
        latents[plan.index] = _latent(x, p.compressor, plan.ratio, config, made)
    if plan.kv_source is not None:
        keys = torch.cat((keys, latents[plan.kv_source]), 1)
        visible = torch.cat((visible, made.groups[plan.ratio]), 1)
    return project_out(attend(query, keys, visible, p.sink), p, config, angles, dtype)


def project(
    x: Tensor, p: AttentionParams, config: ModelConfig, angles: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Turned queries `[B, S, H, D]` and own rows `[B, S, D]`."""
    joined = mm(x, p.wq_a_kv, dtype)
    low = norm(joined[..., : config.q_lora_rank], p.q_norm, config)
    query = mm(low, p.wq_b, dtype).unflatten(-1, (-1, config.head_dim))
    row = norm(joined[..., config.q_lora_rank :], p.kv_norm, config)
    return turn(query, angles), turn(row, angles)


def project_out(
    out: Tensor, p: AttentionParams, config: ModelConfig, angles: Tensor, dtype: torch.dtype
) -> Tensor:
    """`[B, S, H, D]` to `[B, S, d]`."""
    turned = turn(out, angles, back=True).unflatten(2, (config.o_groups, -1)).flatten(3)
    parts = [mm(turned[:, :, g], p.wo_a[g], dtype) for g in range(config.o_groups)]
    return mm(torch.cat(parts, -1), p.wo_b, dtype)


def attend(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    b, s, h, d = query.shape
    score = query.flatten(1, 2) @ keys.transpose(1, 2)
    if USE_FUSED:
        weight = fused.Weights.apply(score.view(b, s, h, -1), visible.byte(), sink, d**-0.5)
        return (weight.view(b, s * h, -1) @ keys).view(b, s, h, d)
    score = score * d**-0.5
    score = score.view(b, s, h, -1).masked_fill(~visible.unsqueeze(-2), -1e30)
    top = torch.maximum(score.amax(-1, keepdim=True), sink.view(1, 1, h, 1)).detach()
    weight = (score - top).exp()
    total = weight.sum(-1, keepdim=True) + (sink.view(1, 1, h, 1) - top).exp()
    weight = (weight / total).view(b, s * h, -1)
    return (weight @ keys).view(b, s, h, d)


def _latent(
    x: Tensor, p: CompressorParams, ratio: int, config: ModelConfig, made: Tables
) -> Tensor:
    raw = x @ p.wkv
    if ratio == 2:
        pairs = raw[:, : raw.shape[1] // 2 * 2].unflatten(1, (-1, 2))
        value, gate = pairs.chunk(2, dim=-1)
        raw = (value * gate.softmax(2)).sum(2)
    latent = norm(raw, p.norm, config)
    return turn(latent, made.compressed[::ratio][: latent.shape[1]])


def moe(x: Tensor, p: MoeParams, config: ModelConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    score = F.softplus(x @ p.gate).sqrt()
    with torch.no_grad():
        index = torch.topk(score + p.bias, p.num_experts_per_tok, dim=-1).indices
        chosen = torch.zeros_like(score).scatter(-1, index, 1.0)
    weight = score * chosen
    if config.norm_topk_prob and p.num_experts_per_tok > 1:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    weight = weight * config.routed_scaling_factor
    # [E, d, 2I] side by side, the shared expert last with weight one.
    count = weight.shape[-1]
    w13 = torch.cat((*p.w13.unbind(0), p.shared_w13), -1)
    w2 = torch.cat((*p.w2.unbind(0), p.shared_w2), 0)
    joined = mm(x, w13, dtype).unflatten(-1, (count + 1, 2, -1))
    scale = torch.cat((weight, torch.ones_like(weight[..., :1])), -1)
    if USE_FUSED:
        hidden = fused.Swiglu.apply(joined, scale, config.swiglu_limit)
        return mm(hidden.flatten(-2), w2, dtype), chosen.sum((0, 1))
    gate, up = joined[..., 0, :], joined[..., 1, :]
    if config.swiglu_limit > 0:
        gate = gate.clamp(max=config.swiglu_limit)
        up = up.clamp(-config.swiglu_limit, config.swiglu_limit)
    hidden = F.silu(gate) * up * scale.unsqueeze(-1)
    return mm(hidden.flatten(-2), w2, dtype), chosen.sum((0, 1))


def _engram(
    stream: Tensor, rows: Tensor, layer: BlockParams, config: ModelConfig, dtype: torch.dtype
) -> Tensor:
    p, hc, d = layer.engram, config.hc_mult, config.hidden_size
    joined = mm(F.embedding(rows, p.table).flatten(-2), p.wkv, dtype)
    key, value = joined[..., : hc * d].unflatten(-1, (hc, d)), joined[..., hc * d :]
    h = norm(stream, None, config)
    dot = (h * p.gate_weight * norm(key, None, config)).sum(-1) * d**-0.5
    root = dot.abs().clamp(min=1e-6).sqrt()
    gate = torch.where(dot < 0, -root, root).sigmoid()
    return stream + gate.unsqueeze(-1) * value.unsqueeze(2)
