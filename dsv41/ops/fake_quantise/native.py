"""The meaning of the released formats, in numpy: one block after another, ties by their codes."""

import numpy as np
import torch
from torch import Tensor

from dsv41.ops.registry import register

_E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


@register(
    formula="x / scale rounded to E4M3 or E2M1, times scale; scale of each block from its maximum",
    source="model-spec 4.1: window rows (fp8), index queries and keys (fp4), latents (fp4_e4m3)",
    consumers=("indexer_scores", "cache_scatter", "sparse_attention"),
)
def fake_quantise(x: Tensor, kind: str) -> Tensor:
    """Finite `x [n, w]` to the same shape and dtype; kind is fp8, fp4 or fp4_e4m3."""
    width = 16 if kind == "fp4_e4m3" else 32
    values = x.float().numpy()
    out = np.zeros_like(values)
    for t in range(values.shape[0]):
        for start in range(0, values.shape[1], width):
            block = slice(start, start + width)
            out[t, block] = _ROUND[kind](values[t, block])
    return torch.from_numpy(out).to(x.dtype)


def _fp8(block: np.ndarray) -> np.ndarray:
    scale = _pow2_ceil(max(np.abs(block).max(), np.float32(1e-4)) / np.float32(448))
    return _e4m3((block.astype(np.float64) / scale).clip(-448, 448)) * scale


def _fp4(block: np.ndarray) -> np.ndarray:
    floor = np.float32(6 * 2.0**-126)
    scale = _pow2_ceil(max(np.abs(block).max(), floor) / np.float32(6))
    return _e2m1(block.astype(np.float64) / scale) * scale


def _fp4_e4m3(block: np.ndarray) -> np.ndarray:
    scale = max(np.abs(block).max(), np.float32(6 * 2.0**-9)) / np.float32(6)
    scale = np.float32(_e4m3(np.array([min(scale, np.float32(448))], dtype=np.float64))[0])
    return _e2m1((block / scale).clip(-6, 6).astype(np.float64)) * float(scale)


def _pow2_ceil(value: np.float32) -> float:
    fraction, exponent = np.frexp(np.float64(value))
    return 2.0 ** (exponent - 1 if fraction == 0.5 else exponent)


def _e4m3(x: np.ndarray) -> np.ndarray:
    """Nearest of 3 fraction bits, ties to even; below 2**-6 the step stays at 2**-9."""
    exponent = np.maximum(np.frexp(x)[1] - 1, -6)
    step = 2.0 ** (exponent - 3)
    return np.rint(x / step) * step


def _e2m1(x: np.ndarray) -> np.ndarray:
    """Nearest of eight values, ties to the even code; the sign of a zero is kept."""
    distance = np.abs(np.abs(x)[:, None] - _E2M1)
    nearest = np.zeros(len(x))
    for i, row in enumerate(distance):
        codes = np.flatnonzero(row == row.min())
        nearest[i] = _E2M1[min(codes, key=lambda code: code % 2)]
    return np.copysign(nearest, x)


_ROUND = {"fp8": _fp8, "fp4": _fp4, "fp4_e4m3": _fp4_e4m3}
OP = fake_quantise
