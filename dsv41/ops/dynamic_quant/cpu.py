"""Per-token quantisation as the W8A8 linears use it; the model keeps the codes as floats."""

import torch
from torch import Tensor

from dsv41.model import w8a8
from dsv41.ops.dynamic_quant.native import OP
from dsv41.ops.exactness import Bitwise


@OP.backend(
    "cpu",
    exactness={"float32": Bitwise(because="one division and one rounding, both as IEEE defines")},
    serves=("dsv41.model.w8a8.quantise_tokens",),
)
def cpu(x: Tensor) -> tuple[Tensor, Tensor]:
    codes, step = w8a8.quantise_tokens(x)
    return codes.to(torch.int8), step
