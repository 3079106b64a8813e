"""Mixture of experts: router, clipped SwiGLU, shared expert. 2.13."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from tests_ops.oracle import numerics
from tests_ops.oracle.config import Model


def moe(model: Model, prefix: str, x: Tensor, experts: int, top_k: int) -> Tensor:
    """x [n, d] -> [n, d]: weighted routed experts plus the unweighted shared expert."""
    weights = route(model, f"{prefix}.gate", x, top_k)
    total = expert(model, f"{prefix}.shared_experts", x, None)
    for e in range(experts):
        rows = (weights[:, e] != 0).nonzero().squeeze(-1)
        if rows.numel():
            part = expert(model, f"{prefix}.experts.{e}", x[rows], weights[rows, e])
            total = total.index_add(0, rows, part)
    return total


def route(model: Model, prefix: str, x: Tensor, top_k: int) -> Tensor:
    """Routing weights [n, experts], zero where not chosen. The bias only chooses."""
    cfg = model.cfg
    scores = affinity(numerics.linear(x, model.w[f"{prefix}.weight"]))
    chosen = numerics.top_k_mask(scores + model.w[f"{prefix}.bias"], top_k)
    weights = scores.masked_fill(~chosen, 0)
    if cfg.norm_topk_prob and top_k > 1:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * cfg.routed_scaling_factor


def affinity(logits: Tensor) -> Tensor:
    """scoring_func sqrtsoftplus."""
    return F.softplus(logits).sqrt()


def expert(model: Model, prefix: str, x: Tensor, weight: Tensor | None) -> Tensor:
    """One expert on its rows; the routing weight multiplies before w2."""
    gate = numerics.quantised_linear(x, model.w[f"{prefix}.w1.weight"], model.rounding)
    up = numerics.quantised_linear(x, model.w[f"{prefix}.w3.weight"], model.rounding)
    hidden = clipped_swiglu(gate, up, model.cfg.swiglu_limit)
    if weight is not None:
        hidden = weight[:, None] * hidden
    return numerics.quantised_linear(hidden, model.w[f"{prefix}.w2.weight"], model.rounding)


def clipped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """Up clamped on both sides, gate only from above and before silu; limit 0 is off (T-12)."""
    if limit > 0:
        up = up.clamp(-limit, limit)
        gate = gate.clamp(max=limit)
    return F.silu(gate) * up
