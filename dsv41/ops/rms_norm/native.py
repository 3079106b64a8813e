"""The meaning of the norm: float32 products, a float64 mean, one rounding at the end."""

from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="y = w * x * rsqrt(mean(x^2) + eps), float32, rounded once to the dtype of x",
    source="model-spec 2.3; every block, q, kv, compressor, key and final norm",
    consumers=("dynamic_quant", "gate_topk"),
)
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x [n, d]` and `weight [d]` to `[n, d]`; eps may be 1e-20 and stays in float32."""
    wide = x.float()
    mean = wide.square().double().mean(-1, keepdim=True).float()
    return (wide * (mean + eps).rsqrt() * weight.float()).to(x.dtype)


OP = rms_norm
