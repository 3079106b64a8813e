"""The row mask as one selection; nothing in the serving model needs it yet."""

import torch
from torch import Tensor

from dsv41.ops.exactness import Bitwise
from dsv41.ops.row_mask.native import OP

_COPY = Bitwise(because="no arithmetic: an element is copied or is +0")


@OP.backend("cpu", exactness={"float32": _COPY, "bfloat16": _COPY})
def cpu(x: Tensor, keep: Tensor) -> Tensor:
    # Not x * keep: that leaves -0.0, and a NaN survives its mask.
    return torch.where(keep.unsqueeze(-1), x, x.new_zeros(()))
