"""Compressed KV and index keys of the kv source layers. 2.8."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests_ops.oracle import numerics, quant, rope
from tests_ops.oracle.config import Model


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """What a kv source publishes: T complete groups of `ratio` tokens each."""

    kv: Tensor  # [T, head_dim], rotated and rounded
    index_keys: Tensor  # [T, index_head_dim]
    ratio: int


def compress(model: Model, layer: int, x: Tensor) -> Compressed:
    """x [n, d] = the attn_norm'ed input of every token from position 0 on."""
    cfg, prefix = model.cfg, f"layers.{layer}.attn"
    ratio = cfg.compress_ratios[layer]
    pooled = pool(model, prefix, x, ratio)
    norm = model.w[f"{prefix}.compressor.norm.weight"]
    latent = numerics.rms_norm(pooled, norm, cfg.rms_norm_eps)
    positions = group_positions(latent.shape[0], ratio)
    freqs = rope.frequencies(cfg, ratio)
    keys = index_keys(model, prefix, latent, positions, freqs)
    kv = rope.rotate(latent, positions, freqs)
    if model.rounding:
        kv = quant.fp4_latent(kv)
    return Compressed(kv=kv, index_keys=keys, ratio=ratio)


def pool(model: Model, prefix: str, x: Tensor, ratio: int) -> Tensor:
    """[T, head_dim] before the norm; an incomplete trailing group produces nothing."""
    values = numerics.linear(x, model.w[f"{prefix}.compressor.wkv.weight"])
    if ratio == 1:
        return values
    gates = numerics.linear(x, model.w[f"{prefix}.compressor.wgate.weight"])
    whole = x.shape[0] // ratio * ratio
    values = values[:whole].unflatten(0, (-1, ratio))
    gates = gates[:whole].unflatten(0, (-1, ratio))
    return (torch.softmax(gates, 1) * values).sum(1)


def group_positions(groups: int, ratio: int) -> Tensor:
    """2.6: a group stands at the position of its first token, j * R."""
    return torch.arange(groups) * ratio


def index_keys(
    model: Model, prefix: str, latent: Tensor, positions: Tensor, freqs: Tensor
) -> Tensor:
    """[T, index_head_dim] from the latent before its rotation (T-14)."""
    keys = numerics.linear(latent, model.w[f"{prefix}.indexer.wk.weight"])
    norm = model.w[f"{prefix}.indexer.k_norm.weight"]
    keys = rope.rotate(numerics.rms_norm(keys, norm, model.cfg.rms_norm_eps), positions, freqs)
    return quant.fp4_index(keys) if model.rounding else keys
