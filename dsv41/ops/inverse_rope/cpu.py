"""The inverse rotation as it serves: the same product with the conjugate."""

from torch import Tensor

from dsv41.model import rope
from dsv41.ops.inverse_rope.native import OP
from dsv41.ops.registry import Rule
from dsv41.ops.rope.cpu import BFLOAT16, FLOAT32


@OP.backend(
    "cpu",
    exactness={"float32": FLOAT32, "bfloat16": BFLOAT16},
    serves=("dsv41.model.rope.rotate",),
    rules=(Rule("no rows", lambda x, rotation: x.shape[0] > 0),),
)
def cpu(x: Tensor, rotation: Tensor) -> Tensor:
    return rope.rotate(x, rotation.conj().resolve_conj())
