"""The meaning of the compressor: groups one after another, float64, rounded at the end."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="L_j = norm(sum_i softmax_i(g_i) v_i) over the R tokens of group j; key = norm(L_j wk);"
    " both turned at the group's first position",
    source="model-spec 2.8; ascend 2.13",
    consumers=("gather_selected", "indexer_scores"),
)
def compressor(
    x: Tensor,
    wkv: Tensor,
    norm: Tensor,
    wk: Tensor,
    key_norm: Tensor,
    latent_rotation: Tensor,
    key_rotation: Tensor,
    ratio: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """`x [n, d]` from position 0, `wkv [d, D]` (ratio 1) or `[d, 2*D]` (ratio 2: values, gates),
    `wk [D, w]`, and rotations `[n // ratio, D/2]` and `[n // ratio, w/2]` complex64, to latents
    `[n // ratio, D]` and keys `[n // ratio, w]` in the dtype of x."""
    width, groups = norm.shape[0], x.shape[0] // ratio
    raw = x.double() @ wkv.double()
    latents = torch.zeros(groups, width, dtype=torch.float64)
    for j in range(groups):
        rows = raw[j * ratio : (j + 1) * ratio]
        if ratio == 1:
            latents[j] = rows[0]
        else:
            latents[j] = (rows[:, width:].softmax(0) * rows[:, :width]).sum(0)
    latents = _norm(latents, norm, eps)
    keys = _norm(latents @ wk.double(), key_norm, eps)
    return _turn(latents, latent_rotation).to(x.dtype), _turn(keys, key_rotation).to(x.dtype)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def _turn(x: Tensor, rotation: Tensor) -> Tensor:
    cos, sin = rotation.real.double(), rotation.imag.double()
    a, b = x[:, 0::2], x[:, 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


OP = compressor
