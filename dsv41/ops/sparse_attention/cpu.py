"""Attention as it serves: the sink as one more logit, after the scores, or as a row of zeros."""

import torch
from torch import Tensor

from dsv41.model import attend, attention
from dsv41.ops.exactness import Close
from dsv41.ops.registry import Rule
from dsv41.ops.sparse_attention.native import OP

_EXACTNESS = {
    "float32": Close(
        rtol=2.0**-15, atol=2.0**-17, because="logits of at most 30 are float32 sums, exp follows"
    ),
    "bfloat16": Close(rtol=2.0**-7, atol=2.0**-17, because="the same, then one bfloat16 rounding"),
}

_SOME = Rule("no rows", lambda query, *rest: query.shape[0] > 0)
_FLOAT32 = Rule("query is not float32", lambda query, *rest: query.element_size() == 4)


@OP.backend(
    "cpu",
    exactness=_EXACTNESS,
    serves=("dsv41.model.attention.native_attend",),
    rules=(_SOME,),
)
def cpu(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    return attention.native_attend(query, keys, visible, sink)


@OP.backend(
    "sink_after",
    exactness={"float32": _EXACTNESS["float32"]},
    serves=("dsv41.model.attend.attend_sink_after",),
    rules=(_SOME, _FLOAT32),
)
def sink_after(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    return attend.attend_sink_after(query, keys, visible, sink)


@OP.backend(
    "fused",
    exactness={"float32": _EXACTNESS["float32"]},
    serves=("dsv41.model.attend.attend_fused",),
    rules=(_SOME, _FLOAT32),
)
def fused(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    return attend.attend_fused(query, keys, visible, sink)


@OP.backend("log_sum_exp", exactness=_EXACTNESS, rules=(_SOME,))
def log_sum_exp(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """Plain softmax, then one factor per head from the log-sum-exp: what an attention without a
    sink allows."""
    r, q, h, d = query.shape
    flat, wide = query.reshape(r, q * h, d).float(), keys.float()
    score = (torch.bmm(flat, wide.mT) * d**-0.5).view(r, q, h, -1)
    score = score.masked_fill(~visible.unsqueeze(2), -torch.inf)
    total = score.logsumexp(-1, keepdim=True)
    # A query that sees nothing has no softmax: its weights are NaN and its factor is 0.
    weight = (score - total).exp().masked_fill(~visible.unsqueeze(2), 0.0)
    weight = weight * (total - sink.view(1, 1, h, 1)).sigmoid()
    return torch.bmm(weight.reshape(r, q * h, -1), wide).view(r, q, h, d).to(query.dtype)
