"""The routed experts as they serve: by fetching, by groups, or every expert for few tokens."""

from types import SimpleNamespace

import torch
from torch import Tensor

from dsv41.model import moe
from dsv41.model.quant import EXACT
from dsv41.ops.exactness import Close
from dsv41.ops.experts.native import OP
from dsv41.ops.registry import Rule

_EXACTNESS = {
    "float32": Close(
        rtol=1e-5, atol=5e-5, because="float32 products of size 1 and a sum of at most 6"
    )
}
_FEW = 512  # pairs of a token and an expert, as the model counts them


@OP.backend(
    "cpu",
    exactness=_EXACTNESS,
    serves=("dsv41.model.moe.experts",),
    rules=(
        Rule("no rows", lambda x, *rest: x.shape[0] > 0),
        Rule("rows are not float32", lambda x, *rest: x.element_size() == 4),
    ),
    eager="the rows of the fullest expert are read on the host: they set the padded shape",
)
def cpu(x: Tensor, index: Tensor, weight: Tensor, w13: Tensor, w2: Tensor, limit: float) -> Tensor:
    params = SimpleNamespace(bias=w13.new_zeros(w13.shape[0]), w13=w13, w2=w2)
    return moe.experts(x, index, weight, params, SimpleNamespace(swiglu_limit=limit), EXACT)


@OP.backend(
    "every",
    exactness=_EXACTNESS,
    serves=("dsv41.model.moe._every_expert",),
    rules=(
        Rule("no rows", lambda x, *rest: x.shape[0] > 0),
        Rule("rows are not float32", lambda x, *rest: x.element_size() == 4),
        Rule("many rows times experts", lambda x, i, w, w13, *r: len(x) * len(w13) <= _FEW),
    ),
)
def every(
    x: Tensor, index: Tensor, weight: Tensor, w13: Tensor, w2: Tensor, limit: float
) -> Tensor:
    # The model keeps the shared expert last in the same two matrices; here it is zero.
    shared13, shared2 = torch.zeros_like(w13[:1]), torch.zeros_like(w2[:1])
    params = SimpleNamespace(
        bias=w13.new_zeros(w13.shape[0]),
        every_w13=torch.cat((w13, shared13)).transpose(0, 1).flatten(1),
        every_w2=torch.cat((w2, shared2)).flatten(0, 1),
    )
    return moe._every_expert(x, index, weight, params, SimpleNamespace(swiglu_limit=limit), EXACT)
