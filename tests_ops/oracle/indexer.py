"""Selection of compressed groups per query, with candidate blocks. 2.9 and 2.10."""

from __future__ import annotations

import torch
from torch import Tensor

from tests_ops.oracle import numerics, quant, rope
from tests_ops.oracle.compressor import Compressed
from tests_ops.oracle.config import Config, Model


def reach(positions: Tensor, ratio: int) -> Tensor:
    """Number of groups whose last token is <= p."""
    return (positions + 1) // ratio


def masked_scores(
    model: Model, layer: int, x: Tensor, qr: Tensor, positions: Tensor, source: Compressed
) -> Tensor:
    """Scores [n, T], -inf beyond each query's reach.

    `source` is the layer's own kv source, in every kind of forward: the released
    reference's stale key pointer (U-18) is deliberately not reproduced.
    """
    cfg, prefix = model.cfg, f"layers.{layer}.attn.indexer"
    wq_b = model.w[f"{prefix}.wq_b.weight"]
    q = numerics.quantised_linear(qr, wq_b, model.rounding)
    q = q.unflatten(-1, (cfg.index_n_heads, cfg.index_head_dim))
    q = rope.rotate(q, positions, rope.frequencies(cfg, source.ratio))
    if model.rounding:
        q = quant.fp4_index(q)
    weights = numerics.linear(x, model.w[f"{prefix}.weights_proj.weight"])
    weights = weights * (cfg.index_head_dim**-0.5 * cfg.index_n_heads**-0.5)
    scores = head_sum(q, source.index_keys, weights)
    groups = torch.arange(source.index_keys.shape[0])
    return scores.masked_fill(groups >= reach(positions, source.ratio)[:, None], -torch.inf)


def head_sum(q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """sum over heads of relu(q . k) * w: [n, H, D], [T, D], [n, H] -> [n, T]."""
    return torch.einsum("nht,nh->nt", torch.relu(torch.einsum("nhd,td->nht", q, keys)), weights)


def candidates(cfg: Config, scores: Tensor, reached: Tensor) -> Tensor:
    """Mask [n, T]: the union of the best blocks of the candidate source's scores."""
    rows, groups = scores.shape
    size = cfg.candidate_block_size
    padded = torch.full((rows, -(-groups // size) * size), -torch.inf, dtype=scores.dtype)
    padded[:, :groups] = scores
    best = pin_newest(cfg, padded.unflatten(1, (-1, size)).amax(-1), reached)
    kept = numerics.top_k_mask(best, cfg.candidate_topk_blocks)
    return kept.repeat_interleave(size, 1)[:, :groups]


def pin_newest(cfg: Config, blocks: Tensor, reached: Tensor) -> Tensor:
    """The block of the newest reachable group is always kept; a query reaching none pins none."""
    newest = (reached - 1).div(cfg.candidate_block_size, rounding_mode="floor")
    ids = torch.arange(blocks.shape[1])
    return blocks.masked_fill(ids == newest[:, None], torch.inf)


def restrict(scores: Tensor, candidate_mask: Tensor) -> Tensor:
    """A later index source sees candidates only."""
    return scores.masked_fill(~candidate_mask, -torch.inf)
