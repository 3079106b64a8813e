"""The correction as it drafts."""

from types import SimpleNamespace

from torch import Tensor

from dsv41.model import draft
from dsv41.ops.exactness import Close
from dsv41.ops.markov_head.native import OP


@OP.backend(
    "cpu",
    exactness={
        "float32": Close(rtol=1e-5, atol=2e-5, because="a float32 product of 256 terms and a sum")
    },
    serves=("dsv41.model.draft.corrected",),
)
def cpu(
    folded: Tensor,
    base: Tensor,
    previous: Tensor,
    embed: Tensor,
    head: Tensor,
    confidence: Tensor,
) -> tuple[Tensor, Tensor]:
    params = SimpleNamespace(markov_embed=embed, markov_head=head, confidence=confidence)
    return draft.corrected(folded, base, previous, params)
