"""The released number formats: how values are rounded, packed and read back.

E8M0 scales are powers of two stored as exponent bytes; E4M3 is `float8_e4m3fn`; E2M1 packs two
codes a byte, the even index in the low nibble.  Nothing here has a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FP8_MAX = 448.0
FP4_MAX = 6.0
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Midpoints between neighbours, and whether a tie goes up (to the even code).
_FP4_MIDDLES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
_FP4_TIE_UP = (False, True, False, True, False, True, False)


@dataclass(frozen=True)
class Rounding:
    """One switch for every activation and cache rounding that is part of the released model.

    Off, the arithmetic is exact enough that prefill, decode and verify agree; on, they are
    those of the release, and small differences of summation may flip codes.
    """

    enabled: bool = False

    def activation(self, x: Tensor) -> Tensor:
        """Input of a quantised linear, and the window row: FP8 in blocks of 32."""
        return round_fp8(x) if self.enabled else x

    def index(self, x: Tensor) -> Tensor:
        """Index queries and keys: FP4 in blocks of 32 with power-of-two scales."""
        return round_fp4(x) if self.enabled else x

    def latent(self, x: Tensor) -> Tensor:
        """Compressed rows: FP4 in groups of 16 with E4M3 scales."""
        return round_fp4_e4m3(x) if self.enabled else x


EXACT = Rounding()


def pow2_ceil(x: Tensor) -> Tensor:
    """Smallest power of two >= x, for positive normal float32, on the exponent bits."""
    bits = x.contiguous().view(torch.int32)
    exponent = (bits >> 23) + (bits & 0x7FFFFF != 0).int()
    return (exponent << 23).view(torch.float32)


def round_fp8(x: Tensor) -> Tensor:
    """Fake-quantise the last dimension in blocks of 32; same shape and dtype."""
    blocks = x.float().unflatten(-1, (-1, 32))
    scale = pow2_ceil(blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4) / FP8_MAX)
    codes = (blocks / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return (codes.float() * scale).flatten(-2).to(x.dtype)


def round_fp4(x: Tensor) -> Tensor:
    """Fake-quantise to E2M1 in blocks of 32 with an E8M0 scale."""
    blocks = x.float().unflatten(-1, (-1, 32))
    scale = pow2_ceil(blocks.abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-126) / FP4_MAX)
    return (nearest_fp4(blocks / scale) * scale).flatten(-2).to(x.dtype)


def round_fp4_e4m3(x: Tensor) -> Tensor:
    """Fake-quantise to E2M1 in groups of 16 with a scale that is itself rounded to E4M3."""
    blocks = x.float().unflatten(-1, (-1, 16))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=6 * 2.0**-9) / FP4_MAX
    scale = scale.clamp(max=FP8_MAX).to(torch.float8_e4m3fn).float()
    values = nearest_fp4((blocks / scale).clamp(-FP4_MAX, FP4_MAX))
    return (values * scale).flatten(-2).to(x.dtype)


def fp4_codes(x: Tensor) -> Tensor:
    """Nearest E2M1 code (uint8, sign in bit 3) of values within +-6; ties to the even code."""
    size = x.abs()
    code = torch.zeros_like(size, dtype=torch.uint8)
    for middle, up in zip(_FP4_MIDDLES, _FP4_TIE_UP, strict=True):
        code += (size >= middle) if up else (size > middle)
    return code | (torch.signbit(x).to(torch.uint8) << 3)


def nearest_fp4(x: Tensor) -> Tensor:
    """Nearest E2M1 value, float32."""
    return _fp4_table(x.device)[fp4_codes(x).long()]


def _fp4_table(device: torch.device) -> Tensor:
    positive = torch.tensor(FP4_VALUES, device=device)
    return torch.cat((positive, -positive))


def scale_from_e8m0(scale: Tensor) -> Tensor:
    """Exponent bytes to float32; the bytes are read as they are, never cast as numbers."""
    exponent = scale.view(torch.uint8).int()
    value = (exponent << 23).view(torch.float32)
    value = torch.where(exponent == 0, 2.0**-127, value)
    return torch.where(exponent == 255, torch.nan, value)


def dequantise_fp8_tiles(weight: Tensor, scale: Tensor) -> Tensor:
    """E4M3 `[N, K]` with one scale per 32x32 tile (`[ceil(N/32), ceil(K/32)]`) to float32."""
    spread = scale_from_e8m0(scale).repeat_interleave(32, 0)[: weight.shape[0]]
    spread = spread.repeat_interleave(32, 1)[:, : weight.shape[1]]
    return weight.view(torch.float8_e4m3fn).float() * spread


def dequantise_fp8_rows(weight: Tensor, scale: Tensor) -> Tensor:
    """E4M3 `[N, K]` with one scale per row and 32 values to float32."""
    spread = scale_from_e8m0(scale).repeat_interleave(32, 1)[:, : weight.shape[1]]
    return weight.view(torch.float8_e4m3fn).float() * spread


def dequantise_fp4(packed: Tensor, scale: Tensor) -> Tensor:
    """Packed E2M1 `[N, K/2]` with one scale per row and 32 values to float32 `[N, K]`."""
    codes = packed.view(torch.uint8)
    both = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)
    values = _fp4_table(packed.device)[both.long()]
    return values * scale_from_e8m0(scale).repeat_interleave(32, 1)


def quantise_fp8_tiles(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Float `[N, K]` to E4M3 codes and E8M0 bytes, one scale per 32x32 tile."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -columns % 32, 0, -rows % 32))
    tiles = padded.unflatten(0, (-1, 32)).unflatten(-1, (-1, 32))
    scale = pow2_ceil(tiles.abs().amax((1, 3)).clamp(min=1e-4) / FP8_MAX)
    codes = (tiles / scale[:, None, :, None]).clamp(-FP8_MAX, FP8_MAX)
    codes = codes.flatten(2, 3).flatten(0, 1)[:rows, :columns]
    return codes.contiguous().to(torch.float8_e4m3fn), e8m0_from_scale(scale)


def quantise_fp8_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Float `[N, K]` to E4M3 codes and E8M0 bytes, one scale per row and 32 values."""
    blocks = weight.float().unflatten(-1, (-1, 32))
    scale = pow2_ceil(blocks.abs().amax(-1).clamp(min=1e-4) / FP8_MAX)
    codes = (blocks / scale.unsqueeze(-1)).clamp(-FP8_MAX, FP8_MAX).flatten(-2)
    return codes.to(torch.float8_e4m3fn), e8m0_from_scale(scale)


def quantise_fp4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Float `[N, K]` to packed E2M1 (int8, even index in the low nibble) and E8M0 bytes."""
    blocks = weight.float().unflatten(-1, (-1, 32))
    scale = pow2_ceil(blocks.abs().amax(-1).clamp(min=6 * 2.0**-126) / FP4_MAX)
    codes = fp4_codes(blocks / scale.unsqueeze(-1)).flatten(-2)
    packed = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return packed.view(torch.int8), e8m0_from_scale(scale)


def e8m0_from_scale(scale: Tensor) -> Tensor:
    """Powers of two to their exponent bytes, as `float8_e8m0fnu`."""
    exponent = scale.contiguous().view(torch.int32) >> 23
    return exponent.to(torch.uint8).view(torch.float8_e8m0fnu)
