"""The meaning of the n-gram memory's lookup and gate, in float64."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="gate_c = sigmoid(sign(dot) sqrt(max(|dot|, 1e-6))), dot of h_c and key_c, both of"
    " unit mean square per copy; h_c + gate_c * value",
    source="model-spec 2.11",
    consumers=("hc_pre",),
)
def engram_gate(
    stream: Tensor, rows: Tensor, table: Tensor, wkv: Tensor, gate_weight: Tensor, eps: float
) -> Tensor:
    """`stream [n, hc, d]`, `rows [n, columns]` int64 of `table [N, w]`, `wkv [columns*w,
    (hc+1)*d]` (keys per copy, then the value), `gate_weight [hc, d]` to `[n, hc, d]`."""
    _, hc, d = stream.shape
    joined = table[rows].double().flatten(1) @ wkv.double()
    out = stream.double().clone()
    for c in range(hc):
        h, key = stream[:, c].double(), joined[:, c * d : (c + 1) * d]
        size = (h.square().mean(-1) + eps).rsqrt() * (key.square().mean(-1) + eps).rsqrt()
        dot = (h * gate_weight[c].double() * key).sum(-1) * size * d**-0.5
        root = dot.abs().clamp(min=1e-6).sqrt()
        gate = torch.where(dot < 0, -root, root).sigmoid()
        out[:, c] += gate.unsqueeze(-1) * joined[:, hc * d :]
    return out.to(stream.dtype)


OP = engram_gate
