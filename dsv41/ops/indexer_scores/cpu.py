"""The scores as they serve, after the preparation of the query."""

from torch import Tensor

from dsv41.model import indexer
from dsv41.model.quant import Rounding
from dsv41.ops.exactness import Close
from dsv41.ops.indexer_scores.native import OP
from dsv41.ops.registry import Rule


@OP.backend(
    "cpu",
    exactness={
        "float32": Close(
            rtol=2.0**-16,
            atol=2.0**-13,
            because="heads cancel: the error is that of float32 sums of terms of up to 100",
        )
    },
    serves=("dsv41.model.indexer.scores",),
    rules=(Rule("no rows", lambda query, *rest: query.shape[0] > 0),),
)
def cpu(query: Tensor, weight: Tensor, keys: Tensor, prepare: bool) -> Tensor:
    return indexer.scores(Rounding(prepare).index(query), weight, keys)
