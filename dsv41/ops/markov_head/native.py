"""The meaning of the Markov correction and the confidence, in float64."""

from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="l = base + head e(previous); c = conf . (x, e(previous)), x before its norm",
    source="model-spec 3.3 step 5",
    consumers=("greedy_verification",),
)
def markov_head(
    folded: Tensor,
    base: Tensor,
    previous: Tensor,
    embed: Tensor,
    head: Tensor,
    confidence: Tensor,
) -> tuple[Tensor, Tensor]:
    """`folded [n, d]`, `base [n, V]` float32, `previous [n]` int64, `embed [V, r]`, `head [r, V]`,
    `confidence [d + r, 1]` to float32 logits `[n, V]` and confidence logits `[n]`."""
    looked_up = embed[previous].double()
    logits = base.double() + looked_up @ head.double()
    d = folded.shape[1]
    own = folded.double() @ confidence[:d].double() + looked_up @ confidence[d:].double()
    return logits.float(), own.squeeze(-1).float()


OP = markov_head
