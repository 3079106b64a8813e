"""Cases of the Markov head: first and last token, equal predecessors, the original weights."""

from __future__ import annotations

import torch

from dsv41.ops.case import Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Bitwise
from dsv41.ops.markov_head.native import OP


def make(rows: int, dtype: torch.dtype, g: torch.Generator, d: int, vocab: int, rank: int) -> Args:
    return (
        normal(g, rows, d, dtype=dtype),
        normal(g, rows, vocab),
        integers(g, 0, vocab, rows),
        normal(g, vocab, rank, dtype=dtype),
        normal(g, rank, vocab, scale=rank**-0.5),
        normal(g, d + rank, 1, scale=d**-0.5),
    )


def specials(dtype: torch.dtype) -> dict[str, Args]:
    folded, base, previous, *rest = make(6, dtype, generator("markov"), 32, 50, 8)
    return {
        "first-token": (folded, base, previous * 0, *rest),
        "last-token": (folded, base, previous * 0 + 49, *rest),
        "zeros": (folded * 0, base * 0, previous, *rest),
        "base-of-minus-infinity": (folded, base - torch.inf, previous, *rest),
    }


def loads(model) -> tuple[Args, Args]:
    config, bound = model.config, model.params.draft
    g = generator("markov loader")
    folded, base = normal(g, 5, config.hidden_size), normal(g, 5, config.vocab_size)
    previous = integers(g, 0, config.vocab_size, 5)
    last = f"mtp.{config.num_nextn_predict_layers - 1}."
    by_hand = (
        model.official[last + "markov_head.embed.weight"],
        model.official[last + "markov_head.head.weight"].t(),
        model.official[last + "confidence_head.proj.weight"].t(),
    )
    loaded = (bound.markov_embed, bound.markov_head, bound.confidence)
    return (folded, base, previous, *loaded), (folded, base, previous, *by_hand)


CASES = Cases(
    make=make,
    dims={"d": (32, 100), "vocab": (50, 300), "rank": (8, 32)},
    inputs=(0, 1, 2),
    weights=(3, 4, 5),
    specials=specials,
    loads=loads,
    consumers={
        "drafted token": Consumer(
            apply=lambda out, args: out[0].argmax(-1),
            exactness=Bitwise(because="the largest of random logits leads by more than the error"),
        )
    },
    faults={
        "correction forgotten": lambda f, b, p, e, h, c: OP.native(f, b, p, e, h * 0, c),
        "corrected by the token after": lambda f, b, p, e, h, c: OP.native(
            f, b, p.roll(-1), e, h, c
        ),
        "base forgotten": lambda f, b, p, e, h, c: OP.native(f, b * 0, p, e, h, c),
        "confidence halves swapped": lambda f, b, p, e, h, c: OP.native(
            f, b, p, e, h, c.roll(f.shape[1], 0)
        ),
        "confidence without the token": lambda f, b, p, e, h, c: OP.native(
            f, b, p, e, h, torch.cat((c[: f.shape[1]], c[f.shape[1] :] * 0))
        ),
    },
    timing={"d": 5120, "vocab": 129280, "rank": 256},
    bound=lambda args: (
        (args[4].numel() + 2 * args[1].numel()) * 4,
        2 * args[0].shape[0] * args[4].numel(),
    ),
)
