"""The meaning of the n-gram hash, in Python's integers."""

import torch
from torch import Tensor

from dsv41.ops.registry import register


@register(
    formula="x_s = t_0 m_0 xor ... xor t_s m_s; row = x_s mod prime + offset, heads per s = 1..",
    source="model-spec 2.11",
    consumers=("engram_gate",),
)
def engram_hash(history: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor) -> Tensor:
    """`history [n, ngram]` of compressed ids (newest first), `multipliers [ngram]`, `primes` and
    `offsets [columns]` to table rows `[n, columns]`; all int64."""
    n, ngram = history.shape
    columns = len(primes)
    heads = columns // (ngram - 1)
    out = torch.zeros(n, columns, dtype=torch.int64)
    for t in range(n):
        mixed = int(history[t, 0]) * int(multipliers[0])
        for s in range(1, ngram):
            mixed ^= int(history[t, s]) * int(multipliers[s])
            for c in range((s - 1) * heads, s * heads):
                out[t, c] = mixed % int(primes[c]) + int(offsets[c])
    return out


OP = engram_hash
