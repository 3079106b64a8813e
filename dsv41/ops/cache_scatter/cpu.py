"""The cache write of the paged state, on a copy of the records."""

from types import SimpleNamespace

from torch import Tensor

from dsv41.model.paged import Batch, PagedState
from dsv41.ops.cache_scatter.native import OP
from dsv41.ops.exactness import Bitwise
from dsv41.ops.registry import Rule

_FIELD = ("window", 0)


@OP.backend(
    "cpu",
    exactness={"float32": Bitwise(because="rows are copied, the rest is untouched")},
    serves=("dsv41.model.paged.PagedState.write",),
    rules=(Rule("no rows", lambda records, rows, *rest: rows.shape[0] > 0),),
    eager="the paged state reads the batch's lengths on the host to lay out its rectangles",
)
def cpu(
    records: Tensor,
    rows: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    block_size: int,
    column: int,
) -> Tensor:
    out = records.clone()
    layout = SimpleNamespace(columns={_FIELD: slice(column, column + rows.shape[1])})
    batch = Batch(query_start, seq_lens, block_table, block_size)
    PagedState(out, layout, batch, window=4).write(_FIELD, rows)
    return out
