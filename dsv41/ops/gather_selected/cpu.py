"""The gather as the paged state does it: either rows of its own, or all groups under a mask."""

from types import SimpleNamespace

import torch
from torch import Tensor
from torch.nn import functional as F

from dsv41.model.paged import Batch, PagedState
from dsv41.ops.exactness import Bitwise
from dsv41.ops.gather_selected.native import OP
from dsv41.ops.registry import Rule

_FIELD = ("latent", 0)


@OP.backend(
    "cpu",
    exactness={"float32": Bitwise(because="rows are copied")},
    serves=("dsv41.model.paged.PagedSegment.selected",),
    rules=(Rule("no rows", lambda records, table, lens, index, *rest: index.shape[0] > 0),),
    eager="the paged state reads the batch's lengths on the host to lay out its rectangles",
)
def cpu(
    records: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    index: Tensor,
    valid: Tensor,
    block_size: int,
    ratio: int,
) -> Tensor:
    r, q, k = index.shape
    layout = SimpleNamespace(columns={_FIELD: slice(0, records.shape[1])})
    batch = Batch(torch.arange(r + 1) * q, seq_lens, block_table, block_size)
    state = PagedState(records, layout, batch, window=1)
    keys, visible = state.segments[0].selected(_FIELD, ratio, index, valid)
    # What each query sees, in front: the model leaves it to the mask of the attention.
    first = (~visible).to(torch.uint8).argsort(dim=-1, stable=True)[..., :k]
    seen = visible.gather(-1, first).unsqueeze(-1)
    rows = keys.unsqueeze(1).expand(-1, q, -1, -1)
    rows = rows.gather(2, first.unsqueeze(-1).expand(-1, -1, -1, keys.shape[-1]))
    rows = torch.where(seen, rows, 0.0)
    return F.pad(rows, (0, 0, 0, k - rows.shape[2]))
