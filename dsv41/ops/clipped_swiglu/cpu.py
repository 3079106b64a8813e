"""The clipped SwiGLU as the experts use it."""

from torch import Tensor

from dsv41.model import moe
from dsv41.ops.clipped_swiglu.native import OP
from dsv41.ops.exactness import Close

_FLOAT32 = Close(
    rtol=2.0**-20,
    atol=1e-35,
    because="float32 exp, division and two products; a gate below -88 underflows to -0 in float32",
)


@OP.backend("cpu", exactness={"float32": _FLOAT32}, serves=("dsv41.model.moe.swiglu",))
def cpu(joined: Tensor, weight: Tensor | None, limit: float) -> Tensor:
    return moe.swiglu(joined, weight, limit)
