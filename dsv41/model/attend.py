"""Other ways to compute what `attention.attend` means; each is chosen by `DSV41_ATTEND`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def attend_fused(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """The library's fused attention, in float32.

    The sink becomes one more row of zeros, whose score is the sink itself by way of the bias.
    """
    r, q, h, d = query.shape
    m = keys.shape[1]
    rows = torch.cat((keys, keys.new_zeros(r, 1, d)), 1).unsqueeze(1)
    bias = query.new_empty(r, q, h, m + 1)
    hidden = torch.zeros_like(visible, dtype=query.dtype).masked_fill_(~visible, -torch.inf)
    bias[..., :m] = hidden.unsqueeze(2)
    bias[..., m] = sink
    out = scaled_dot_product_attention(
        query.reshape(r, 1, q * h, d), rows, rows, attn_mask=bias.view(r, 1, q * h, m + 1)
    )
    return out.view(r, q, h, d)


def attend_sink_after(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """The sink enters the denominator after the scores, in float32: no row of scores is copied."""
    r, q, h, d = query.shape
    score = torch.bmm((query * d**-0.5).reshape(r, q * h, d), keys.transpose(1, 2))
    score = score.view(r, q, h, -1).masked_fill_(~visible.unsqueeze(2), -torch.inf)
    alone = sink.view(1, 1, h, 1)
    # The sink is finite, so that a query that sees nothing gives zeros and no NaN.
    top = torch.maximum(score.amax(-1, keepdim=True), alone)
    weight = score.sub_(top).exp_()
    total = weight.sum(-1, keepdim=True).add_((alone - top).exp_())
    return torch.bmm(weight.view(r, q * h, -1), keys).view(r, q, h, d).div_(total)


ATTEND: dict[str, Attend | None] = {
    "plain": None,
    "fused": attend_fused,
    "sink-after": attend_sink_after,
}
"""By the value of `DSV41_ATTEND`; None is the model's own."""
