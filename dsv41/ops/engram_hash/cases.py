"""Cases of the hash: the released multipliers and primes, the largest ids, padding."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import F32, Args, Cases, Consumer, generator, integers
from dsv41.ops.engram_hash.native import OP
from dsv41.ops.exactness import Bitwise

# model-spec 2.11, layers 1 and 14.
MULTIPLIERS = {
    1: (76632096046245, 4839876093313, 35959672319349, 73987337458391),
    14: (67716810739261, 51510806800915, 30921347202721, 82619226485591),
}
COMPRESSED = 99092


def make(rows: int, dtype: torch.dtype, g: torch.Generator, layer: int, heads: int) -> Args:
    primes = primes_from(16_000_000, 3 * heads)
    history = integers(g, 0, COMPRESSED, rows, 4)
    return history, torch.tensor(MULTIPLIERS[layer]), primes, primes.cumsum(0) - primes


def primes_from(start: int, count: int) -> Tensor:
    found: list[int] = []
    number = start
    while len(found) < count:
        if all(number % d for d in range(2, int(number**0.5) + 1)):
            found.append(number)
        number += 1
    return torch.tensor(found)


def specials(dtype: torch.dtype) -> dict[str, Args]:
    history, *rest = make(6, F32, generator("hash"), 1, 2)
    return {
        "all-padding": (history * 0 + 2, *rest),
        "largest-ids": (history * 0 + COMPRESSED - 1, *rest),
        "zeros": (history * 0, *rest),
    }


def loads(model) -> tuple[Args, Args]:
    """The plan that the config implies, with its primes found again."""
    from dsv41.model.engram import hash_plans

    config = model.config
    plan = hash_plans(config)[config.engram_layer_ids[0]]
    g = generator("hash loader")
    ids = integers(g, 0, config.engram_compressed_vocab_size, 6, config.engram_max_ngram_size)
    primes = primes_from(config.engram_vocab_size, config.engram_columns)
    offsets = primes.cumsum(0) - primes
    loaded = (ids, plan.multipliers, plan.primes, plan.offsets)
    return loaded, (ids, plan.multipliers, primes, offsets)


def sums(history: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor) -> Tensor:
    heads = len(primes) // (history.shape[1] - 1)
    mixed = (history * multipliers // 4).cumsum(1)[:, 1:]
    return mixed.repeat_interleave(heads, 1) % primes + offsets


CASES = Cases(
    make=make,
    dims={"layer": (1, 14), "heads": (2, 1, 8)},
    dtypes=(F32,),
    weights=(1, 3),
    specials=specials,
    loads=loads,
    consumers={
        "lookup": Consumer(
            apply=lambda out, args: out[0] - args[3],
            exactness=Bitwise(because="integers"),
        )
    },
    faults={
        "sums instead of xor": sums,
        "oldest token first": lambda h, m, p, o: OP.native(h.flip(1), m, p, o),
        "offsets forgotten": lambda h, m, p, o: OP.native(h, m, p, o * 0),
        "first prime for all": lambda h, m, p, o: OP.native(h, m, p[:1].expand_as(p), o),
        "products in 32 bits": lambda h, m, p, o: OP.native(h, m % 2**31, p, o),
    },
    timing={"heads": 8},
    bound=lambda args: (
        8 * args[0].shape[0] * len(args[2]) * 2,
        args[0].shape[0] * len(args[2]),
    ),
)
