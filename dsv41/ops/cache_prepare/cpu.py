"""The projections as they serve."""

from types import SimpleNamespace

from torch import Tensor

from dsv41.model import attention
from dsv41.model.quant import EXACT
from dsv41.ops.cache_prepare.native import OP
from dsv41.ops.exactness import Close
from dsv41.ops.registry import Rule


@OP.backend(
    "cpu",
    exactness={
        "float32": Close(
            rtol=1e-5, atol=5e-5, because="float32 products, norms to size 1, one rotation"
        )
    },
    serves=("dsv41.model.attention.project",),
    rules=(
        Rule("no rows", lambda x, *rest: x.shape[0] > 0),
        Rule("rows are not float32", lambda x, *rest: x.element_size() == 4),
    ),
)
def cpu(
    x: Tensor,
    wq_a_kv: Tensor,
    q_norm: Tensor,
    wq_b: Tensor,
    kv_norm: Tensor,
    rotation: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    params = SimpleNamespace(wq_a_kv=wq_a_kv, q_norm=q_norm, wq_b=wq_b, kv_norm=kv_norm)
    config = SimpleNamespace(
        rms_norm_eps=eps, q_lora_rank=q_norm.shape[0], head_dim=kv_norm.shape[0]
    )
    projected = attention.project(x, params, config, rotation, EXACT)
    return projected.query, projected.row, projected.low_rank
