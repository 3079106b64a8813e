"""Norm, linear, masked softmax with a sink, and a top-k whose ties are decided. 2.3, 2.7."""

from __future__ import annotations

import torch
from torch import Tensor

from tests_ops.oracle import quant


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """2.3: y = w * x * rsqrt(mean(x^2) + eps) over the last dimension."""
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """y = x W^T with W stored [out, in]; no text linear has a bias."""
    return x @ weight.T


def quantised_linear(x: Tensor, weight: Tensor, rounding: bool) -> Tensor:
    """4.1: an FP8 or FP4 linear; its input is rounded to FP8 per 32 when rounding is on."""
    return linear(quant.fp8_act(x) if rounding else x, weight)


def top_k_mask(scores: Tensor, k: int) -> Tensor:
    """Mask [n, T] of the `k` highest scores of each row [n, T]; -inf is never picked.

    Equal scores: the smaller index wins (T-31).
    """
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, :k]
    mask = torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, True)
    return mask & (scores > -torch.inf)


def first_argmax(logits: Tensor) -> int:
    """Index of the maximum of a vector; the smallest index among equals."""
    return int((logits == logits.max()).nonzero()[0])


def attend(q: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """2.7.6: multi-query attention whose rows are key and value at once.

    q [n, H, D], keys [K, D], visible bool [n, K], sink [H] -> [n, H, D]. The sink is an
    unscaled logit that only enlarges the denominator (T-17).
    """
    scores = torch.einsum("nhd,kd->nhk", q, keys) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~visible[:, None, :], -torch.inf)
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - top)
    total = weights.sum(-1, keepdim=True) + torch.exp(sink[None, :, None] - top)
    return torch.einsum("nhk,kd->nhd", weights / total, keys)
