"""The meaning of the cache write: one token after another to its slot."""

from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="records[block_table[r, p // B] * B + p % B, column:column+w] = row of position p",
    source="model-spec 6.1; ascend 2.11",
    consumers=("gather_selected", "sparse_attention"),
)
def cache_scatter(
    records: Tensor,
    rows: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    block_size: int,
    column: int,
) -> Tensor:
    """`records [slots, width]` with `rows [n, w]` at the last positions of each request.

    `query_start [R+1]`, `seq_lens [R]` with the new tokens, `block_table [R, blocks]`, all int64.
    Every other byte stays as it was.
    """
    out = records.clone()
    for r in range(len(seq_lens)):
        first, end = int(query_start[r]), int(query_start[r + 1])
        for i in range(first, end):
            position = int(seq_lens[r]) - end + i
            slot = int(block_table[r, position // block_size]) * block_size
            slot += position % block_size
            out[slot, column : column + rows.shape[1]] = rows[i].float()
    return out


OP = cache_scatter
