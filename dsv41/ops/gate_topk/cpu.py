"""The router as it serves."""

from types import SimpleNamespace

from torch import Tensor

from dsv41.model import moe
from dsv41.ops.exactness import Close
from dsv41.ops.gate_topk.native import OP


@OP.backend(
    "cpu",
    exactness={
        "float32": Close(
            rtol=2.0**-20,
            atol=0.0,
            because="a root, a sum of at most 6 positive numbers, a division and a product",
        )
    },
    serves=("dsv41.model.moe.route",),
)
def cpu(x: Tensor, gate: Tensor, bias: Tensor, k: int, scale: float) -> tuple[Tensor, Tensor]:
    params = SimpleNamespace(gate=gate, bias=bias, num_experts_per_tok=k)
    config = SimpleNamespace(norm_topk_prob=True, routed_scaling_factor=scale)
    return moe.route(x, params, config)
