"""Rotary embedding: frequency tables A and B, rotation, inverse rotation. 2.6."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests_ops.oracle.config import Config


def frequencies(cfg: Config, ratio: int) -> Tensor:
    """float64 [rd/2], radians per position: table A for ratio 0, table B (YaRN) otherwise."""
    return yarn_frequencies(cfg) if ratio > 0 else base_frequencies(cfg, cfg.rope_theta)


def base_frequencies(cfg: Config, base: float) -> Tensor:
    """base^(-2i/rd)."""
    rd = cfg.qk_rope_head_dim
    return base ** (-torch.arange(0, rd, 2, dtype=torch.float64) / rd)


def yarn_bounds(cfg: Config) -> tuple[int, int]:
    """(low, high) of the ramp, in pairs."""
    rd, base = cfg.qk_rope_head_dim, cfg.compress_rope_theta

    def cd(turns: float) -> float:
        positions = cfg.yarn_original_positions
        return rd * math.log(positions / (2 * math.pi * turns)) / (2 * math.log(base))

    low = max(math.floor(cd(cfg.yarn_beta_fast)), 0)
    high = min(math.ceil(cd(cfg.yarn_beta_slow)), rd - 1)
    return low, high


def yarn_frequencies(cfg: Config) -> Tensor:
    """Table B. There is no attention temperature."""
    low, high = yarn_bounds(cfg)
    plain = base_frequencies(cfg, cfg.compress_rope_theta)
    i = torch.arange(plain.numel(), dtype=torch.float64)
    ramp = ((i - low) / max(high - low, 1e-3)).clamp(0, 1)
    return plain / cfg.yarn_factor * ramp + plain * (1 - ramp)


def rotate(x: Tensor, positions: Tensor, freqs: Tensor) -> Tensor:
    """Rotate the last rd dims of x [n, ..., D]; adjacent pairs are complex numbers."""
    return _turn(x, positions.to(torch.float64)[:, None] * freqs)


def rotate_back(x: Tensor, positions: Tensor, freqs: Tensor) -> Tensor:
    """The inverse rotation of the attention output, at the query's position."""
    return _turn(x, -positions.to(torch.float64)[:, None] * freqs)


def _turn(x: Tensor, angles: Tensor) -> Tensor:
    rd = 2 * angles.shape[-1]
    shape = (angles.shape[0],) + (1,) * (x.dim() - 2) + (angles.shape[-1],)
    cos = angles.cos().to(x.dtype).reshape(shape)
    sin = angles.sin().to(x.dtype).reshape(shape)
    even, odd = x[..., -rd::2], x[..., x.shape[-1] - rd + 1 :: 2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return torch.cat((x[..., :-rd], turned), -1)
