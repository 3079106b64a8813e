"""The rounding as it serves where DSV41_ROUNDING=1."""

from torch import Tensor

from dsv41.model import quant
from dsv41.ops.exactness import Bitwise
from dsv41.ops.fake_quantise.native import OP

_EXACT = Bitwise(because="scales are powers of two or one rounded quotient; codes are defined")


@OP.backend(
    "cpu",
    exactness={"float32": _EXACT, "bfloat16": _EXACT},
    serves=("dsv41.model.quant.Rounding.activation",),
)
def cpu(x: Tensor, kind: str) -> Tensor:
    rounding = quant.Rounding(True)
    if kind == "fp8":
        return rounding.activation(x)
    return rounding.index(x) if kind == "fp4" else rounding.latent(x)
