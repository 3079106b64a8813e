"""Mixture of experts: the router, clipped SwiGLU, and grouped products without a loop."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from dsv41 import paths
from dsv41.model.config import ModelConfig
from dsv41.model.params import MoeParams
from dsv41.model.quant import Rounding
from dsv41.model.topk import top_k

# Up to so many (token, expert) pairs, sending every token through every expert is cheaper than
# sorting tokens by expert.
_EVERY_ROW = 512


def moe(x: Tensor, params: MoeParams, config: ModelConfig, rounding: Rounding) -> Tensor:
    """`x [n, d]` (normalised) to `[n, d]`: the chosen experts' weighted sum plus the shared one."""
    index, weight = route(x, params, config)
    x = rounding.activation(x)
    if params.every_w13 is not None and x.shape[0] * params.bias.shape[0] <= _EVERY_ROW:
        paths.count("experts", "every", rows=x.shape[0])
        return _every_expert(x, index, weight, params, config, rounding).to(x.dtype)
    routed = experts(x, index, weight, params, config, rounding)
    hidden = swiglu(x @ params.shared_w13, None, config.swiglu_limit).to(x.dtype)
    shared = rounding.activation(hidden) @ params.shared_w2
    return (routed + shared.float()).to(x.dtype)


def route(x: Tensor, params: MoeParams, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Chosen experts `[n, k]` int64 and their weights `[n, k]` float32.

    Chosen by score plus bias, weighted by the score alone; ties go to the smaller expert.
    """
    score = F.softplus(x.float() @ params.gate).sqrt()
    index = top_k(score.detach() + params.bias, params.num_experts_per_tok)
    weight = score.gather(-1, index)
    if config.norm_topk_prob and params.num_experts_per_tok > 1:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    return index, weight * config.routed_scaling_factor


def swiglu(joined: Tensor, weight: Tensor | None, limit: float) -> Tensor:
    """`silu(g) * u` in float32 of `[..., 2*inter]`; limit 0 clips nothing.

    The gate is clipped from above only and before silu; `weight [..., 1]` multiplies here,
    before the down projection.
    """
    gate, up = joined.float().chunk(2, dim=-1)
    if limit > 0:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    hidden = F.silu(gate) * up
    return hidden if weight is None else hidden * weight


def experts(
    x: Tensor,
    index: Tensor,
    weight: Tensor,
    params: MoeParams,
    config: ModelConfig,
    rounding: Rounding,
) -> Tensor:
    """Sum over each token's `k` experts, `[n, d]` float32.

    Rows are laid out expert by expert in a padded `[experts, rows, d]`, so that three batched
    products serve every expert; a padded row is computed and never read.
    """
    n, k = index.shape
    num_experts = params.bias.shape[0]
    if n * k * 2 <= num_experts:
        paths.count("experts", "fetched", rows=n)
        return _few_rows(x, index, weight, params, config, rounding)
    paths.count("experts", "grouped", rows=n)
    flat = index.reshape(-1)
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=num_experts)
    rows = int(counts.max())
    starts = counts.cumsum(0) - counts
    # place[i]: where the i-th (token, choice) stands in the padded layout.
    place = torch.empty_like(flat)
    rank = torch.arange(n * k, device=flat.device)
    sorted_experts = flat[order]
    place[order] = sorted_experts * rows + rank - starts[sorted_experts]
    token = torch.zeros(num_experts * rows, dtype=torch.int64, device=flat.device)
    token[place] = rank // k
    scale = weight.new_zeros(num_experts * rows).index_put((place,), weight.reshape(-1))
    laid = x.index_select(0, token).view(num_experts, rows, -1)
    hidden = swiglu(
        torch.bmm(laid, params.w13), scale.view(num_experts, rows, 1), config.swiglu_limit
    )
    hidden = rounding.activation(hidden.to(x.dtype))
    out = torch.bmm(hidden, params.w2).flatten(0, 1)
    return out.index_select(0, place).view(n, k, -1).float().sum(1)


def _few_rows(
    x: Tensor,
    index: Tensor,
    weight: Tensor,
    params: MoeParams,
    config: ModelConfig,
    rounding: Rounding,
) -> Tensor:
    """The same sum where fetching the chosen experts' weights is less than reading them all."""
    n, k = index.shape
    flat = index.reshape(-1)
    laid = x.unsqueeze(1).expand(n, k, -1).reshape(n * k, 1, -1)
    joined = torch.bmm(laid, params.w13.index_select(0, flat))
    hidden = swiglu(joined, weight.reshape(-1, 1, 1), config.swiglu_limit).to(x.dtype)
    out = torch.bmm(rounding.activation(hidden), params.w2.index_select(0, flat))
    return out.view(n, k, -1).float().sum(1)


def _every_expert(
    x: Tensor,
    index: Tensor,
    weight: Tensor,
    params: MoeParams,
    config: ModelConfig,
    rounding: Rounding,
) -> Tensor:
    """Routed and shared experts of few tokens: every expert, weight 0 where it was not chosen.

    The sum over experts is that of one matrix product.
    """
    n, num_experts = x.shape[0], params.bias.shape[0]
    scale = weight.new_zeros(n, num_experts + 1).scatter(1, index, weight)
    scale[:, -1] = 1.0
    joined = (x @ params.every_w13).view(n, num_experts + 1, -1)
    hidden = swiglu(joined, scale.unsqueeze(-1), config.swiglu_limit).to(x.dtype)
    return (rounding.activation(hidden).flatten(1) @ params.every_w2).float()
