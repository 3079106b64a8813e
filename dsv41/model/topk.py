"""Top-k with a defined order: larger first, and among equals the smaller index."""

from __future__ import annotations

import torch
from torch import Tensor

_SMALL = 64  # up to here one stable sort is cheaper than building keys


@torch.no_grad()
def top_k(scores: Tensor, k: int) -> Tensor:
    """Indices `[..., k]` int64 of the `k` largest of float32 `scores [..., m]`, m < 2**31.

    Library top-k leaves ties to chance and to the width, so that a chunked prefill could choose
    other rows than one in a single piece.  Here each score becomes a distinct integer: its
    order-preserving bits above the complement of its index.
    """
    if scores.shape[-1] <= _SMALL:
        return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    # + 0.0 makes -0.0 and 0.0 the same bits, as they compare equal.
    bits = (scores.float() + 0.0).view(torch.int32).long()
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    low = 0x7FFFFFFF - torch.arange(scores.shape[-1], device=scores.device)
    return torch.topk((ordered << 31) + low, k, dim=-1, sorted=True).indices
