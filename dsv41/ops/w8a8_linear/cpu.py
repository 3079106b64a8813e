"""The W8A8 linear as it serves: a product with an `Int8Weight`."""

from torch import Tensor

from dsv41.model import w8a8
from dsv41.ops.exactness import Bitwise
from dsv41.ops.w8a8_linear.native import OP

_EXACT = Bitwise(because="integer sums are exact in the chosen width; both multiply in one order")


@OP.backend(
    "cpu",
    exactness={"float32": _EXACT, "bfloat16": _EXACT},
    serves=("dsv41.model.w8a8._product",),
)
def cpu(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    return x @ w8a8.Int8Weight(codes.float(), scale).t()
