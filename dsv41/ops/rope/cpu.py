"""The rotation as it serves: one complex product."""

from torch import Tensor

from dsv41.model import rope
from dsv41.ops.exactness import Close
from dsv41.ops.registry import Rule
from dsv41.ops.rope.native import OP

FLOAT32 = Close(
    rtol=2.0**-22,
    atol=2.0**-21,
    because="two float32 products and a sum of values of at most 4; cancellation leaves the"
    " absolute error of the products",
)
BFLOAT16 = Close(rtol=2.0**-7, atol=2.0**-21, because="the same, then one bfloat16 rounding each")


@OP.backend(
    "cpu",
    exactness={"float32": FLOAT32, "bfloat16": BFLOAT16},
    serves=("dsv41.model.rope.rotate",),
    rules=(Rule("no rows", lambda x, rotation: x.shape[0] > 0),),
)
def cpu(x: Tensor, rotation: Tensor) -> Tensor:
    return rope.rotate(x, rotation)
