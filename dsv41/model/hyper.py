"""Hyper-connections: how the residual copies are read, written and mixed among themselves."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from dsv41.model.config import ModelConfig
from dsv41.model.kernels import lent, serves
from dsv41.model.params import MixParams


class Mix(NamedTuple):
    """`pre [n, hc]` reads the copies, `post [n, hc]` writes, `comb [n, hc, hc]` carries over."""

    pre: Tensor
    post: Tensor
    comb: Tensor


def mixes(stream: Tensor, params: MixParams, config: ModelConfig) -> Mix:
    """The mix of one sub-layer from `stream [n, hc, d]`; float32.

    One statistic over all copies, no norm weight; `comb` is indexed [source, destination].
    """
    hc = config.hc_mult
    flat = stream.flatten(-2).float()
    root = (flat.square().mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt()
    z = torch.addcmul(params.base, (flat @ params.fn) * root, params.scale)
    pre = z[:, :hc].sigmoid() + config.hc_eps
    return Mix(pre, *balance(z, hc, config.hc_sinkhorn_iters, config.hc_eps))


def balance(z: Tensor, hc: int, iterations: int, eps: float) -> tuple[Tensor, Tensor]:
    """`post [n, hc]` and the balanced `comb [n, hc, hc]` of the logits `z [n, (2+hc)*hc]`."""
    if serves(lent.balance, z):
        found = lent.balance(z, hc, iterations, eps)
        if found is not None:
            return found
    return native_balance(z, hc, iterations, eps)


def native_balance(z: Tensor, hc: int, iterations: int, eps: float) -> tuple[Tensor, Tensor]:
    """What `balance` means."""
    post = z[:, hc : 2 * hc].sigmoid() * 2.0
    return post, sinkhorn(z[:, 2 * hc :].reshape(-1, hc, hc), iterations, eps)


def sinkhorn(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """`logits [n, hc, hc]` to a nearly doubly stochastic matrix; the last step is by columns.

    The sums are products with a 0/1 matrix that also spreads them back over the entries: one
    operation instead of two, which is most of a small model's decode step.
    """
    n, hc, _ = logits.shape
    rows, columns, floor = _summing(hc, eps)
    c = (logits.softmax(-1) + eps).reshape(n, hc * hc)
    c = c / torch.addmm(floor, c, columns)
    for _ in range(iterations - 1):
        c = c / torch.addmm(floor, c, rows)
        c = c / torch.addmm(floor, c, columns)
    return c.view(n, hc, hc)


@lru_cache(maxsize=8)
def _summing(hc: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    with torch.inference_mode(False):
        ones, eye = torch.ones(hc, hc), torch.eye(hc)
        return torch.kron(eye, ones), torch.kron(ones, eye), torch.full((hc * hc,), eps)


def collapse(stream: Tensor, pre: Tensor) -> Tensor:
    """`sum_i pre_i * h_i`: `[n, hc, d]` and `[n, hc]` to `[n, d]` in the stream's dtype."""
    return torch.bmm(pre.unsqueeze(1), stream.float()).squeeze(1).to(stream.dtype)


def expand(y: Tensor, residual: Tensor, mix: Mix) -> Tensor:
    """`out_j = post_j * y + sum_i comb[i, j] * residual_i`: back to `[n, hc, d]`."""
    written = mix.post.unsqueeze(-1) * y.float().unsqueeze(1)
    carried = torch.baddbmm(written, mix.comb.transpose(1, 2), residual.float())
    return carried.to(residual.dtype)


def first_mix(n: int, hc: int) -> Tensor:
    """The mix carried into layer 0: copy 0 alone, `[n, hc]` float32."""
    return torch.eye(hc)[:1].expand(n, hc)
