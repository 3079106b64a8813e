"""The C kernels of the training pass as differentiable functions; compiled once per machine.

Training is several times faster with them than with single tensor operations.  Without a C
compiler `load` returns False and `dense` keeps to tensor operations.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("fused.c")
_FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")
_library: ctypes.CDLL | None = None


def load() -> bool:
    """Compile (or find) the kernels; False where that is impossible."""
    global _library
    if _library is not None:
        return True
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return False
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "dsv41")
    out = cache / f"tiny-{platform.node()}-{digest}.so"
    try:
        if not out.is_file():
            cache.mkdir(parents=True, exist_ok=True)
            work = out.with_suffix(f".{os.getpid()}")
            subprocess.run([compiler, *_FLAGS, "-o", work, SOURCE, "-lm"], check=True)
            os.replace(work, out)
    except (OSError, subprocess.CalledProcessError):
        return False
    _library = ctypes.CDLL(str(out))
    return True


def _call(name: str, *arguments: Any) -> None:
    """Tensors go as pointers, `int` as C int, `float` as C float, the first number as C long."""
    assert _library is not None
    converted: list[Any] = [ctypes.c_long(arguments[0])]
    for argument in arguments[1:]:
        if isinstance(argument, Tensor):
            assert argument.is_contiguous()
            converted.append(ctypes.c_void_p(argument.data_ptr()))
        elif isinstance(argument, int):
            converted.append(ctypes.c_int(argument))
        else:
            converted.append(ctypes.c_float(argument))
    getattr(_library, name)(*converted)


class RmsNorm(torch.autograd.Function):
    """`x [..., d]` and `weight [d]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        _call("rms_forward", x.numel() // x.shape[-1], x.shape[-1], eps, x, weight, y)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        gx, gw, d = torch.empty_like(x), torch.zeros_like(weight), x.shape[-1]
        _call("rms_backward", x.numel() // d, d, ctx.eps, x, weight, g.contiguous(), gx, gw)
        return gx, gw, None


class Leave(torch.autograd.Function):
    """A sub-layer's output `y [..., d]` written into `stream [..., hc, d]`."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, stream: Tensor, post: Tensor, comb: Tensor) -> Tensor:
        saved = [t.contiguous() for t in (post, y, comb, stream)]
        hc, d = stream.shape[-2:]
        out = torch.empty_like(saved[3])
        _call("leave_forward", out.numel() // (hc * d), hc, d, *saved, out)
        ctx.save_for_backward(*saved)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        saved = ctx.saved_tensors
        hc, d = saved[3].shape[-2:]
        made = [torch.empty_like(t) for t in saved]
        n = saved[3].numel() // (hc * d)
        _call("leave_backward", n, hc, d, *saved, g.contiguous(), *made)
        return made[1], made[3], made[0], made[2]


class Enter(torch.autograd.Function):
    """A sub-layer's normalised input, `pre`, `post` and `comb` from the stream."""

    @staticmethod
    def forward(
        ctx: Any,
        stream: Tensor,
        carried: Tensor,
        fn: Tensor,
        scale: Tensor,
        base: Tensor,
        weight: Tensor,
        numbers: tuple[int, float, float],
    ) -> Any:
        stream, carried = stream.contiguous(), carried.contiguous()
        *lead, hc, d = stream.shape
        flat = stream.view(-1, hc * d)
        raw = flat @ fn
        x, pre = stream.new_empty(*lead, d), stream.new_empty(*lead, hc)
        post, comb = torch.empty_like(pre), stream.new_empty(*lead, hc, hc)
        saved = (stream, carried, raw, scale, base, weight)
        _call("enter_forward", len(flat), hc, d, *numbers, *saved, x, pre, post, comb)
        ctx.save_for_backward(*saved, fn)
        ctx.numbers = numbers
        return x, pre, post, comb

    @staticmethod
    def backward(ctx: Any, gx: Tensor, gpre: Tensor, gpost: Tensor, gcomb: Tensor) -> Any:
        *saved, fn = ctx.saved_tensors
        stream, carried, raw, scale, base, weight = saved
        hc, d = stream.shape[-2:]
        incoming = [g.contiguous() for g in (gx, gpre, gpost, gcomb)]
        outgoing = [torch.empty_like(t) for t in (stream, carried, raw)]
        sums = [torch.zeros_like(t) for t in (scale, base, weight)]
        buffer = stream.new_empty(d)
        _call(
            "enter_backward", len(raw), hc, d, *ctx.numbers, *saved, *incoming, buffer,
            *outgoing, *sums,
        )  # fmt: skip
        gstream, gcarried, graw = outgoing
        gstream.view(-1, hc * d).addmm_(graw, fn.t())
        return gstream, gcarried, stream.view(-1, hc * d).t() @ graw, *sums, None


class Swiglu(torch.autograd.Function):
    """`joined [..., experts, 2, inter]` and `scale [..., experts]` to `[..., experts, inter]`."""

    @staticmethod
    def forward(ctx: Any, joined: Tensor, scale: Tensor, limit: float) -> Tensor:
        joined, scale = joined.contiguous(), scale.contiguous()
        count, _, inter = joined.shape[-3:]
        limit = limit if limit > 0 else 1e30
        out = joined.new_empty(*joined.shape[:-2], inter)
        _call("swiglu_forward", scale.numel() // count, count, inter, limit, joined, scale, out)
        ctx.save_for_backward(joined, scale)
        ctx.limit = limit
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        joined, scale = ctx.saved_tensors
        count, _, inter = joined.shape[-3:]
        gjoined, gscale = torch.empty_like(joined), torch.empty_like(scale)
        n = scale.numel() // count
        _call(
            "swiglu_backward", n, count, inter, ctx.limit, joined, scale, g.contiguous(),
            gjoined, gscale,
        )  # fmt: skip
        return gjoined, gscale, None


class Weights(torch.autograd.Function):
    """Products `[B, S, H, M]` to attention weights beside a sink; `visible [(B,) S, M]` uint8."""

    @staticmethod
    def forward(ctx: Any, score: Tensor, visible: Tensor, sink: Tensor, factor: float) -> Tensor:
        weight = score.contiguous().clone()
        b, s, h, m = weight.shape
        masked = visible.numel() // m
        _call("weights_forward", b, s, h, m, masked, factor, visible.contiguous(), sink, weight)
        ctx.save_for_backward(weight, sink)
        ctx.factor = factor
        return weight

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        weight, sink = ctx.saved_tensors
        g, gsink = g.contiguous().clone(), torch.zeros_like(sink)
        b, s, h, m = weight.shape
        _call("weights_backward", b * s * h, h, m, ctx.factor, weight, g, gsink)
        return g, None, gsink, None


class Turn(torch.autograd.Function):
    """`x [B, S, H, D]` turned by `angles [S, k, 2]`, or back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, angles: Tensor, sign: float) -> Tensor:
        ctx.save_for_backward(angles)
        ctx.sign = sign
        return _turned(x, angles, sign)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return _turned(g, ctx.saved_tensors[0], -ctx.sign), None, None


def _turned(x: Tensor, angles: Tensor, sign: float) -> Tensor:
    x, angles, (b, s, h, d) = x.contiguous(), angles.contiguous(), x.shape
    y = torch.empty_like(x)
    _call("turn", b, s, h, d, angles.shape[1], sign, angles, x, y)
    return y
