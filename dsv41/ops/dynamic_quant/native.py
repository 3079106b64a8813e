"""The meaning of per-token quantisation, in numpy float32: one division, one rounding to even."""

import numpy as np
import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="step = max|x| / 127 (1 for a row of zeros); code = rint(x / step)",
    source="model-spec 4.3; npu_dynamic_quant as documented (ascend 2.5)",
    consumers=("w8a8_linear", "experts_w8a8"),
)
def dynamic_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """Finite `x [n, d]` to codes int8 `[n, d]` and steps float32 `[n, 1]`."""
    codes = np.zeros(x.shape, dtype=np.int8)
    steps = np.ones((x.shape[0], 1), dtype=np.float32)
    for t, row in enumerate(x.float().numpy()):
        step = np.float32(np.abs(row).max()) / np.float32(127)
        steps[t] = step if step > 0 else 1
        codes[t] = np.rint(row / steps[t]).clip(-128, 127)
    return torch.from_numpy(codes), torch.from_numpy(steps)


OP = dynamic_quant
