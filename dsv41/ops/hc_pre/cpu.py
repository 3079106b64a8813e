"""The mix and the collapse as they serve, with and without vLLM's compiled Sinkhorn."""

from types import SimpleNamespace
from unittest import mock

import torch
from torch import Tensor

from dsv41.model import hyper
from dsv41.model.kernels import lent
from dsv41.model.params import MixParams
from dsv41.ops.exactness import Close
from dsv41.ops.hc_pre.native import OP
from dsv41.ops.registry import Rule

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]

_EXACTNESS = {
    "float32": Close(
        rtol=1e-4,
        atol=1e-5,
        because="logits are float32 sums of hc*d products and may be off by 1e-5; the balance"
        " does not enlarge that",
    ),
    "bfloat16": Close(
        rtol=2.0**-7, atol=2.0**-12, because="one bfloat16 step after a float32 sum of 4 copies"
    ),
}


def _mix(
    stream: Tensor,
    carried: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    iterations: int,
    hc_eps: float,
    norm_eps: float,
) -> Outputs:
    config = SimpleNamespace(
        hc_mult=stream.shape[1],
        hc_sinkhorn_iters=iterations,
        hc_eps=hc_eps,
        rms_norm_eps=norm_eps,
    )
    mix = hyper.mixes(stream, MixParams(fn, base, scale), config)
    return hyper.collapse(stream, carried), mix.pre, mix.post, mix.comb


@OP.backend(
    "cpu",
    exactness=_EXACTNESS,
    serves=(
        "dsv41.model.hyper.mixes",
        "dsv41.model.hyper.native_balance",
        "dsv41.model.hyper.collapse",
    ),
)
def cpu(
    stream: Tensor,
    carried: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    iterations: int,
    hc_eps: float,
    norm_eps: float,
) -> Outputs:
    with mock.patch.object(lent, "balance", None):
        return _mix(stream, carried, fn, base, scale, iterations, hc_eps, norm_eps)


def _compiled() -> str | None:
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    if not current_platform.is_cpu() or not hasattr(torch.ops._C, "hc_pre_fused_cpu"):
        return "this vLLM build has no compiled hc_pre_fused_cpu"
    return None


@OP.backend(
    "vllm_cpu",
    exactness=_EXACTNESS,
    serves=("dsv41.engine.kernels.balance",),
    rules=(
        Rule("no rows", lambda stream, *rest: stream.shape[0] > 0),
        Rule("more than 128 rows", lambda stream, *rest: stream.shape[0] <= 128),
        Rule("not 4 copies", lambda stream, *rest: stream.shape[1] == 4),
    ),
    missing=_compiled(),
)
def vllm_cpu(
    stream: Tensor,
    carried: Tensor,
    fn: Tensor,
    base: Tensor,
    scale: Tensor,
    iterations: int,
    hc_eps: float,
    norm_eps: float,
) -> Outputs:
    from dsv41.engine import kernels

    # A lent kernel is left aside where gradients flow.
    with torch.no_grad(), mock.patch.object(lent, "balance", kernels.balance):
        return _mix(stream, carried, fn, base, scale, iterations, hc_eps, norm_eps)
