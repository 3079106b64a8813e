"""The meaning of the post: float64 sums over the source copies, rounded once."""

from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="out_j = post_j * y + sum_i comb[i, j] * residual_i",
    source="model-spec 2.4; ascend 2.12 (sum over the first index of comb)",
    consumers=("hc_pre",),
)
def hc_post(y: Tensor, residual: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """`y [n, d]`, `residual [n, hc, d]`, `post [n, hc]`, `comb [n, hc, hc]` to `[n, hc, d]`."""
    out = post.double().unsqueeze(-1) * y.double().unsqueeze(1)
    for i in range(residual.shape[1]):
        out = out + comb[:, i, :, None].double() * residual[:, i, None].double()
    return out.to(residual.dtype)


OP = hc_post
