"""The meaning of the int8 experts: quantise, multiply, dequantise, one choice after another."""

import torch
from torch import Tensor

from dsv41.ops.dynamic_quant.native import dynamic_quant
from dsv41.ops.registry import register


@register(
    formula="per choice: int8 product, dequantise, clipped SwiGLU times w_k, quantise, int8"
    " product, dequantise; summed in float32 in the order of the choices; masked rows give 0",
    source="model-spec 4.3; ascend 2.6 and 2.9",
    consumers=("hc_post",),
)
def experts_w8a8(
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
    """`x [n, d]`, `index [n, k]`, `weight [n, k]`, `active [n]` bool, int8 codes `w13 [E, 2*i, d]`
    and `w2 [E, d, i]` with scales `[E, out, 1]`, to float32 `[n, d]`."""
    out = torch.zeros(x.shape, dtype=torch.float32)
    for t in range(x.shape[0]):
        if not active[t]:
            continue
        for choice, e in enumerate(index[t].tolist()):
            gate, up = _linear(x[t : t + 1].float(), w13[e], w13_scale[e]).double().chunk(2, -1)
            if limit > 0:
                gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            hidden = (gate / (1 + (-gate).exp()) * up).float() * weight[t, choice]
            out[t] += _linear(hidden.float(), w2[e], w2_scale[e])[0]
    return out


def _linear(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    quantised, step = dynamic_quant.native(x)
    total = torch.from_numpy(quantised.long().numpy() @ codes.long().t().numpy())
    return total.float() * scale.t() * step


OP = experts_w8a8
