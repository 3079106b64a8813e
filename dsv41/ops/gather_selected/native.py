"""The meaning of the gather: one row after another through the block table."""

from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="row of group j = records[block_table[(j*R + R-1) // B] * B + (j*R + R-1) % B]",
    source="model-spec 2.7 and 6.1; P8 target-gather-fia2-001",
    consumers=("sparse_attention",),
)
def gather_selected(
    records: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    index: Tensor,
    valid: Tensor,
    block_size: int,
    ratio: int,
) -> Tensor:
    """Rows `[R, Q, K, w]` of the groups `index [R, Q, K]` that are `valid`, zeros for the rest.

    `records [slots, w]` float32, `block_table [R, blocks]` and `seq_lens [R]` int64; the order of
    a query's rows is free.  A group lies where its last token does.
    """
    r, q, k = index.shape
    out = records.new_zeros(r, q, k, records.shape[1])
    for i, j, n in valid.nonzero().tolist():
        last = int(index[i, j, n]) * ratio + ratio - 1
        slot = int(block_table[i, last // block_size]) * block_size + last % block_size
        out[i, j, n] = records[slot]
    return out


OP = gather_selected
