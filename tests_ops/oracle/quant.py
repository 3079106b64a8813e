"""Values -> values as FP8 and FP4 storage would return them; stored weights -> values. 4.1."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

E4M3_MAX = 448.0
E2M1_MAX = 6.0
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
BLOCK = 32


def pow2ceil(x: Tensor) -> Tensor:
    """Smallest power of two >= x, for x > 0."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.ones_like(x), torch.where(mantissa == 0.5, exponent - 1, exponent))


def to_e4m3(x: Tensor) -> Tensor:
    """Clamp to +-448 and round to the nearest E4M3 value, ties to even."""
    return _to_grid(x.clamp(-E4M3_MAX, E4M3_MAX), mantissa_bits=3, lowest=-6, highest=8)


def to_e2m1(x: Tensor) -> Tensor:
    """Clamp to +-6 and round to the nearest E2M1 value, ties to the even code."""
    return _to_grid(x.clamp(-E2M1_MAX, E2M1_MAX), mantissa_bits=1, lowest=0, highest=2)


def _to_grid(x: Tensor, mantissa_bits: int, lowest: int, highest: int) -> Tensor:
    exponent = (torch.frexp(x).exponent - 1).clamp(lowest, highest)
    step = torch.ldexp(torch.ones_like(x), exponent - mantissa_bits)
    return torch.round(x / step) * step


def fp8_act(x: Tensor) -> Tensor:
    """act_quant: blocks of 32, scale pow2ceil(max(amax, 1e-4) / 448), E4M3 values."""
    blocks = x.unflatten(-1, (-1, BLOCK))
    scale = pow2ceil(blocks.abs().amax(-1, keepdim=True).clamp_min(1e-4) / E4M3_MAX)
    return (to_e4m3(blocks / scale) * scale).flatten(-2)


def fp4_index(x: Tensor) -> Tensor:
    """Index q and k: blocks of 32, scale pow2ceil(max(amax, 6 * 2^-126) / 6), E2M1 values."""
    blocks = x.unflatten(-1, (-1, BLOCK))
    amax = blocks.abs().amax(-1, keepdim=True).clamp_min(E2M1_MAX * 2.0**-126)
    scale = pow2ceil(amax / E2M1_MAX)
    return (to_e2m1(blocks / scale) * scale).flatten(-2)


def fp4_latent(x: Tensor) -> Tensor:
    """Compressed KV: groups of 16, scale E4M3(max(amax, 6 * 2^-9) / 6), E2M1 values."""
    blocks = x.unflatten(-1, (-1, 16))
    amax = blocks.abs().amax(-1, keepdim=True).clamp_min(E2M1_MAX * 2.0**-9)
    scale = to_e4m3(amax / E2M1_MAX)
    return (to_e2m1(blocks / scale) * scale).flatten(-2)


def e8m0(scale: Tensor) -> Tensor:
    """Scale bytes reinterpreted, never cast (T-4): byte e is 2^(e - 127)."""
    exponent = scale.view(torch.uint8).to(torch.int32) - 127
    return torch.ldexp(torch.ones_like(exponent, dtype=torch.float64), exponent)


def dequantise(name: str, weight: Tensor, scale: Tensor) -> Tensor:
    """float64 values of a stored weight. FP4 has half the columns; Engram scales are per row."""
    factors = e8m0(scale)
    if weight.dtype in (torch.int8, torch.uint8):
        codes = weight.view(torch.uint8).to(torch.int64)
        nibbles = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
        table = torch.tensor(E2M1_VALUES, dtype=torch.float64)
        values = table[nibbles & 7] * torch.where(nibbles >= 8, -1.0, 1.0)
        row_block = 1
    else:
        values = weight.to(torch.float64)
        row_block = 1 if name.endswith("engram.embed.weight") else BLOCK
    rows, columns = values.shape
    grid = factors.repeat_interleave(row_block, 0).repeat_interleave(BLOCK, 1)
    return values * grid[:rows, :columns]


def dequantise_all(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every `X.weight` with its `X.scale` folded in; the scales disappear."""
    plain = {}
    for name, tensor in tensors.items():
        if name.endswith(".scale"):
            continue
        scale = tensors.get(name.removesuffix(".weight") + ".scale")
        plain[name] = tensor if scale is None else dequantise(name, tensor, scale)
    return plain
