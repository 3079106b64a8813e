"""N-gram memory: token ids hashed to table rows, gated into every residual copy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.norms import unit_rms
from dsv41.model.params import EngramParams
from dsv41.model.quant import Rounding
from dsv41.model.state import TOKEN, State

_DOT_FLOOR = 1e-6


@dataclass(frozen=True)
class HashPlan:
    """Constants of one layer's hash: `multipliers [ngram]`, `primes` and `offsets [columns]`."""

    multipliers: Tensor
    primes: Tensor
    offsets: Tensor


@lru_cache(maxsize=8)
def hash_plans(config: ModelConfig) -> dict[int, HashPlan]:
    """The hash constants of every Engram layer; table sizes are checked against the config."""
    plans, used = {}, set[int]()
    sizes, heads = config.engram_max_ngram_size - 1, config.engram_n_heads
    for layer, rows in zip(config.engram_layer_ids, config.engram_num_embeddings, strict=True):
        primes: list[int] = []
        while len(primes) < sizes * heads:
            primes.append(_next_prime(config.engram_vocab_size, used))
        if sum(primes) != rows:
            raise ConfigError(
                f"engram_num_embeddings of layer {layer} is {rows}, but its hash columns"
                f" need {sum(primes)} rows"
            )
        bound = max(1, (2**63 - 1) // config.engram_compressed_vocab_size // 2)
        draws = np.random.default_rng(10007 * layer).integers(
            0, bound, config.engram_max_ngram_size, dtype=np.int64
        )
        columns = torch.tensor(primes)
        plans[layer] = HashPlan(
            multipliers=torch.from_numpy(2 * draws + 1),
            primes=columns,
            offsets=columns.cumsum(0) - columns,
        )
    return plans


def _next_prime(start: int, used: set[int]) -> int:
    number = start
    while (
        number in used or number < 2 or any(number % d == 0 for d in range(2, int(number**0.5) + 1))
    ):
        number += 1
    used.add(number)
    return number


def lookback(state: State, compressed: Tensor, pad: int, config: ModelConfig) -> Tensor:
    """Compressed ids of each token and those before it, `[n, ngram]` int64, padded at the start.

    The ids are kept as float32 rows of the state: they stay below 2**24.
    """
    rows = compressed.float().unsqueeze(-1)
    state.write(TOKEN, rows)
    history = [compressed]
    for back in range(1, config.engram_max_ngram_size):
        earlier = state.before(TOKEN, rows, back).squeeze(-1).long()
        history.append(torch.where(state.positions < back, pad, earlier))
    return torch.stack(history, dim=-1)


def hash_rows(history: Tensor, plan: HashPlan) -> Tensor:
    """Table rows `[n, columns]` int64 of `history [n, ngram]`, offsets included.

    Products stay below 2**63 by the choice of multipliers, so int64 never wraps.
    """
    terms = history * plan.multipliers
    mixed, columns = terms[:, 0], []
    for s in range(1, history.shape[1]):
        mixed = mixed ^ terms[:, s]
        columns.append(mixed)
    heads = plan.primes.shape[0] // len(columns)
    return torch.stack(columns, -1).repeat_interleave(heads, -1) % plan.primes + plan.offsets


def engram(
    stream: Tensor, rows: Tensor, params: EngramParams, config: ModelConfig, rounding: Rounding
) -> Tensor:
    """Add the gated memory to `stream [n, hc, d]`; the same value for every copy."""
    hc, d = config.hc_mult, config.hidden_size
    found = torch.nn.functional.embedding(rows, params.table).flatten(-2)
    joined = rounding.activation(found.to(stream.dtype)) @ params.wkv
    key, value = joined[:, : hc * d].reshape(-1, hc, d).float(), joined[:, hc * d :].float()
    eps = config.rms_norm_eps
    # One statistic per copy, not over all of them.
    h = unit_rms(stream.float(), eps)
    dot = (h * params.gate_weight * unit_rms(key, eps)).sum(-1) * d**-0.5
    # clamp keeps the root's slope finite; +0 counts as positive.
    root = dot.abs().clamp(min=_DOT_FLOOR).sqrt()
    gate = torch.where(dot < 0, -root, root).sigmoid()
    return (stream.float() + gate.unsqueeze(-1) * value.unsqueeze(1)).to(stream.dtype)
