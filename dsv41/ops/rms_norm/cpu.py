"""The norm as it serves: the model's own, and vLLM's compiled one where it is lent."""

import torch
from torch import Tensor

from dsv41.model import norms
from dsv41.ops.exactness import Close
from dsv41.ops.registry import Rule
from dsv41.ops.rms_norm.native import OP

_FLOAT32 = Close(
    rtol=2.0**-20,
    atol=0.0,
    because="a float32 mean of up to 5120 squares has a relative error below 2**-21; the root"
    " halves it, and three more roundings follow",
)
_BFLOAT16 = Close(
    rtol=2.0**-7,
    atol=0.0,
    because="both round once to bfloat16, so a last-bit difference before may move one step",
)


@OP.backend(
    "cpu",
    exactness={"float32": _FLOAT32, "bfloat16": _BFLOAT16},
    serves=("dsv41.model.norms.native_rms_norm",),
)
def cpu(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return norms.native_rms_norm(x, weight, eps)


def _compiled() -> str | None:
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    if not current_platform.is_cpu() or not hasattr(torch.ops._C, "rms_norm"):
        return "this vLLM build has no compiled CPU rms_norm"
    return None


@OP.backend(
    "vllm_cpu",
    exactness={"float32": _FLOAT32},
    serves=("dsv41.engine.kernels.rms_norm",),
    rules=(
        Rule("rows are not float32", lambda x, weight, eps: x.dtype is torch.float32),
        Rule("no rows", lambda x, weight, eps: x.shape[0] > 0),
    ),
    missing=_compiled(),
)
def vllm_cpu(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    from dsv41.engine import kernels

    return kernels.rms_norm(x, weight, eps)
