"""Hyper-connections: stream -> (pre, post, comb), collapse and expand. 2.4."""

from __future__ import annotations

import torch
from torch import Tensor

from tests_ops.oracle.config import Config, Model


def spread(x: Tensor, copies: int) -> Tensor:
    """2.2.2: [n, d] -> [n, hc, d], every copy equal, unscaled."""
    return x[:, None, :].repeat(1, copies, 1)


def initial_mix(rows: int, copies: int, like: Tensor) -> Tensor:
    """2.2.3: the carried mix before layer 0 is one-hot(0)."""
    mix = torch.zeros(rows, copies, dtype=like.dtype)
    mix[:, 0] = 1
    return mix


def mixes(model: Model, prefix: str, kind: str, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """pre [n, hc], post [n, hc], comb [n, hc, hc] of stream h [n, hc, d]; kind attn or ffn."""
    cfg, hc = model.cfg, model.cfg.hc_mult
    fn = model.w[f"{prefix}.hc_{kind}_fn"]
    base = model.w[f"{prefix}.hc_{kind}_base"]
    scale = model.w[f"{prefix}.hc_{kind}_scale"]
    u = h.flatten(-2)
    z = (u @ fn.T) * torch.rsqrt(u.square().mean(-1, keepdim=True) + cfg.rms_norm_eps)
    pre = torch.sigmoid(z[:, :hc] * scale[0] + base[:hc]) + cfg.hc_eps
    post = 2 * torch.sigmoid(z[:, hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
    comb = (z[:, 2 * hc :] * scale[2] + base[2 * hc :]).unflatten(-1, (hc, hc))
    return pre, post, sinkhorn(cfg, comb)


def sinkhorn(cfg: Config, logits: Tensor) -> Tensor:
    """[n, source, destination] logits -> weights whose columns (over source) sum to one."""
    eps = cfg.hc_eps
    comb = torch.softmax(logits, -1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(cfg.hc_sinkhorn_iters - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb


def collapse(h: Tensor, pre: Tensor) -> Tensor:
    """hc_pre: [n, hc, d] -> [n, d]."""
    return (pre[..., None] * h).sum(-2)


def expand(x: Tensor, residual: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """hc_post: out_j = post_j x + sum_i comb[i, j] residual_i."""
    return post[..., None] * x[:, None, :] + torch.einsum("nij,nid->njd", comb, residual)
