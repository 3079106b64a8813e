"""The grouped projection as it serves."""

from types import SimpleNamespace

from torch import Tensor

from dsv41.model import attention
from dsv41.model.quant import EXACT
from dsv41.ops.exactness import Close
from dsv41.ops.grouped_wo.native import OP
from dsv41.ops.registry import Rule


@OP.backend(
    "cpu",
    exactness={
        "float32": Close(
            rtol=1e-5, atol=5e-5, because="a rotation and two float32 products to size 1"
        )
    },
    serves=("dsv41.model.attention.project_out",),
    rules=(
        Rule("no rows", lambda attended, *rest: attended.shape[0] > 0),
        Rule("rows are not float32", lambda attended, *rest: attended.element_size() == 4),
    ),
)
def cpu(attended: Tensor, inverse: Tensor, wo_a: Tensor, wo_b: Tensor) -> Tensor:
    params = SimpleNamespace(wo_a=wo_a, wo_b=wo_b)
    return attention.project_out(attended, params, inverse, EXACT)
