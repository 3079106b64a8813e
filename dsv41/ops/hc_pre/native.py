"""The meaning of the extended hyper-connection pre: float64, one Sinkhorn step after another."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="x = sum_i carried_i h_i; pre, post, comb from z = (u fn) * rsqrt(mean(u^2) + eps)",
    source="model-spec 2.4 and 2.5; ascend 2.12 (HcPre with the pre mix carried in)",
    consumers=("rms_norm", "hc_post"),
)
def hc_pre(
    stream: Tensor,
    carried: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    iterations: int,
    hc_eps: float,
    norm_eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`stream [n, hc, d]`, `carried [n, hc]`, `fn [hc*d, (2+hc)*hc]`, `base` and `scale` of its
    width, to the collapsed `x [n, d]` in the stream's dtype and float32 `pre [n, hc]`,
    `post [n, hc]`, `comb [n, hc, hc]`, the last indexed [source, destination]."""
    n, hc, _ = stream.shape
    u = stream.double().flatten(1)
    root = (u.square().mean(-1, keepdim=True) + norm_eps).rsqrt()
    z = (u @ fn.double()) * root * scale.double() + base.double()
    pre = 1 / (1 + (-z[:, :hc]).exp()) + hc_eps
    post = 2 / (1 + (-z[:, hc : 2 * hc]).exp())
    logits = z[:, 2 * hc :].view(n, hc, hc)
    comb = (logits - logits.amax(-1, keepdim=True)).exp()
    comb = comb / comb.sum(-1, keepdim=True) + hc_eps
    comb = comb / (comb.sum(1, keepdim=True) + hc_eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(2, keepdim=True) + hc_eps)
        comb = comb / (comb.sum(1, keepdim=True) + hc_eps)
    x = torch.zeros(n, stream.shape[2], dtype=torch.float64)
    for i in range(hc):
        x = x + carried[:, i : i + 1].double() * stream[:, i].double()
    return x.to(stream.dtype), pre.float(), post.float(), comb.float()


OP = hc_pre
