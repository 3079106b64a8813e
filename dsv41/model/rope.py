"""Rotary tables and their application; adjacent pairs, on the last dimensions of a vector."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dsv41.model.config import ModelConfig


def frequencies(config: ModelConfig, *, compressed: bool) -> Tensor:
    """Angles per position `[rope_dim/2]` float64: plain table, or the YaRN one of R>0 layers."""
    rd = config.qk_rope_head_dim
    steps = torch.arange(rd // 2, dtype=torch.float64)
    base = config.compress_rope_theta if compressed else config.rope_theta
    plain = base ** (-2.0 * steps / rd)
    if not compressed:
        return plain

    def correction(rotations: float) -> float:
        span = config.rope_original_max_position_embeddings / (2 * math.pi * rotations)
        return rd * math.log(span) / (2 * math.log(base))

    low = max(math.floor(correction(config.rope_beta_fast)), 0)
    high = min(math.ceil(correction(config.rope_beta_slow)), rd - 1)
    ramp = ((steps - low) / max(high - low, 1e-3)).clamp(0, 1)
    return plain / config.rope_factor * ramp + plain * (1 - ramp)


def rotation_table(config: ModelConfig, length: int, width: int, *, compressed: bool) -> Tensor:
    """`[length, width/2]` complex64 for vectors of `width`: e^{i * position * frequency} on the
    last dimensions, 1 before them, so that one product serves the whole vector."""
    turning = frequencies(config, compressed=compressed)
    kept = turning.new_zeros(width // 2 - len(turning))
    angles = torch.outer(torch.arange(length, dtype=torch.float64), torch.cat((kept, turning)))
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn pairs of neighbours of `x [n, (heads,) width]` by `rotation [n, width/2]`, float32."""
    if x.dim() == 3:
        rotation = rotation.unsqueeze(1)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation).flatten(-2).to(x.dtype)
