"""The int8 experts as they serve, over the active rows."""

from types import SimpleNamespace

import torch
from torch import Tensor

from dsv41.model import moe
from dsv41.model.quant import EXACT
from dsv41.model.w8a8 import Int8Weight
from dsv41.ops.exactness import Close
from dsv41.ops.experts_w8a8.native import OP
from dsv41.ops.registry import Rule


@OP.backend(
    "cpu",
    exactness={
        "float32": Close(
            rtol=0.005,
            atol=0.001,
            because="P7.1 as seen for MoE; a last-bit difference before the second quantisation may"
            " move a code by one",
        )
    },
    serves=("dsv41.model.moe.experts", "dsv41.model.w8a8._product"),
    rules=(
        Rule("no rows", lambda x, *rest: x.shape[0] > 0),
        Rule("rows are not float32", lambda x, *rest: x.element_size() == 4),
    ),
    eager="the rows of the fullest expert are read on the host: they set the padded shape",
)
def cpu(
    x: Tensor,
    index: Tensor,
    weight: Tensor,
    active: Tensor,
    w13: Tensor,
    w13_scale: Tensor,
    w2: Tensor,
    w2_scale: Tensor,
    limit: float,
) -> Tensor:
    params = SimpleNamespace(
        bias=w13_scale.new_zeros(len(w13)),
        w13=Int8Weight(w13.float(), w13_scale).transpose(1, 2),
        w2=Int8Weight(w2.float(), w2_scale).transpose(1, 2),
    )
    config = SimpleNamespace(swiglu_limit=limit)
    out = moe.experts(x, index, weight, params, config, EXACT)
    return torch.where(active.unsqueeze(-1), out, out.new_zeros(()))
