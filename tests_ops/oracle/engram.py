"""Engram n-gram memory: token ids -> rows -> gated addition to the stream. 2.11."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tests_ops.oracle import numerics
from tests_ops.oracle.config import Config, Model


def multipliers(cfg: Config, layer: int) -> list[int]:
    """One odd multiplier per lookback 0 .. max_ngram - 1."""
    bound = max(1, (2**63 - 1) // cfg.engram_compressed_vocab_size // 2)
    draws = np.random.default_rng(10007 * layer).integers(
        0, bound, size=cfg.engram_max_ngram_size, dtype=np.int64
    )
    return [2 * int(draw) + 1 for draw in draws]


def primes(cfg: Config) -> dict[int, list[list[int]]]:
    """Layer -> per n-gram size (2, 3, ..) the primes of its heads; all distinct."""
    seen: set[int] = set()
    table: dict[int, list[list[int]]] = {}
    for layer in cfg.engram_layer_ids:
        table[layer] = []
        for _ in range(2, cfg.engram_max_ngram_size + 1):
            table[layer].append([])
            for _ in range(cfg.engram_n_heads):
                found = next_prime(cfg.engram_vocab_size, seen)
                seen.add(found)
                table[layer][-1].append(found)
    return table


def next_prime(start: int, seen: set[int]) -> int:
    """The first prime >= start that is not in `seen`."""
    number = start
    while number in seen or not is_prime(number):
        number += 1
    return number


def is_prime(number: int) -> bool:
    """Trial division."""
    return number > 1 and all(number % d for d in range(2, math.isqrt(number) + 1))


def lookback(compressed: Tensor, pad: int, depth: int) -> Tensor:
    """int64 [n, depth] of t_0, t_1, ..: compressed ids of p, p-1, ..; `pad` before the start."""

    def shifted(s: int) -> Tensor:
        head = torch.full((min(s, compressed.numel()),), pad, dtype=torch.int64)
        return torch.cat((head, compressed[: max(compressed.numel() - s, 0)]))

    return torch.stack([shifted(s) for s in range(depth)], -1)


def hash_rows(cfg: Config, layer: int, compressed: Tensor, pad: int) -> Tensor:
    """int64 [n, columns]: row of each (n-gram size, head) column in the layer's table."""
    ids = lookback(compressed, pad, cfg.engram_max_ngram_size)
    factors = multipliers(cfg, layer)
    columns, offset = [], 0
    mixed = ids[:, 0] * factors[0]
    for s, heads in enumerate(primes(cfg)[layer], start=1):
        mixed = mixed ^ (ids[:, s] * factors[s])
        for prime in heads:
            columns.append(mixed % prime + offset)
            offset += prime
    return torch.stack(columns, -1)


def pad_id(model: Model) -> int:
    """The compressed id that stands before the first token."""
    return int(model.token_map[model.cfg.engram_pad_token_id])


def engram(model: Model, layer: int, h: Tensor, tokens: Tensor) -> Tensor:
    """h [n, hc, d] plus gate * value; the value is the same for all copies."""
    cfg, prefix = model.cfg, f"layers.{layer}.engram"
    rows = hash_rows(cfg, layer, model.token_map[tokens], pad_id(model))
    memory = model.w[f"{prefix}.embed.weight"][rows].flatten(-2)
    both = numerics.quantised_linear(memory, model.w[f"{prefix}.wkv.weight"], model.rounding)
    split = cfg.hc_mult * cfg.hidden_size
    key = both[:, :split].unflatten(-1, (cfg.hc_mult, cfg.hidden_size))
    value = both[:, split:]
    weight = model.w[f"{prefix}.q_weight"] * model.w[f"{prefix}.k_weight"]
    dot = (h * weight * key).sum(-1) * inverse_norms(cfg, h, key) * cfg.hidden_size**-0.5
    return h + gate(dot)[..., None] * value[:, None, :]


def inverse_norms(cfg: Config, h: Tensor, key: Tensor) -> Tensor:
    """[n, hc]: product of both reciprocal root mean squares, per copy."""
    eps = cfg.rms_norm_eps
    return torch.rsqrt(h.square().mean(-1) + eps) * torch.rsqrt(key.square().mean(-1) + eps)


def gate(dot: Tensor) -> Tensor:
    """sigmoid of the signed root; |argument| >= 1e-3, and +0 counts as positive."""
    return torch.sigmoid(torch.copysign(dot.abs().clamp_min(1e-6).sqrt(), dot))
