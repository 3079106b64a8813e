"""Cases of verification: none, some, all accepted; a match after a miss; equal logits."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41.ops.case import F32, Args, Cases, Consumer, generator, integers, normal
from dsv41.ops.exactness import Bitwise
from dsv41.ops.greedy_verification.native import OP


def make(rows: int, dtype: torch.dtype, g: torch.Generator, k: int, vocab: int) -> Args:
    logits = (normal(g, rows, k + 1, vocab) * 2).round()
    drafts = integers(g, 0, vocab, rows, k)
    # Most drafts are right, so that every length is accepted somewhere.
    right = torch.rand(rows, k, generator=g) < 0.7
    choice = torch.stack([_choice(logits[:, i]) for i in range(k)], 1)
    return logits, torch.where(right, choice, drafts)


def _choice(rows: Tensor) -> Tensor:
    return torch.tensor([r.index(max(r)) for r in rows.tolist()], dtype=torch.int64)


def specials(dtype: torch.dtype) -> dict[str, Args]:
    logits, _ = make(6, F32, generator("verify"), 5, 20)
    right = torch.stack([_choice(logits[:, i]) for i in range(5)], 1)
    hole = right.clone()
    hole[:, 2] = (hole[:, 2] + 1) % 20
    return {
        "all-accepted": (logits, right),
        "none-accepted": (logits, (right + 1) % 20),
        "right-again-after-a-miss": (logits, hole),
        "no-drafts": (logits, right * 0 - 1),
        "equal-logits": (logits * 0, right * 0),
        "minus-infinity-elsewhere": (
            torch.where(logits == logits.amax(-1, True), logits, -torch.inf),
            right,
        ),
    }


def counts_every_match(logits: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    best = torch.stack([_choice(logits[:, i]) for i in range(logits.shape[1])], 1)
    accepted = (best[:, :-1] == drafts).sum(1)
    emitted = torch.arange(best.shape[1]) <= accepted.unsqueeze(1)
    return torch.where(emitted, best, -1), accepted


def larger_token(logits: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    v = logits.shape[-1]
    tokens, accepted = OP.native(logits.flip(-1), torch.where(drafts < 0, -1, v - 1 - drafts))
    return torch.where(tokens < 0, -1, v - 1 - tokens), accepted


def no_bonus(logits: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    tokens, accepted = OP.native(logits, drafts)
    last = torch.arange(tokens.shape[1]) == drafts.shape[1]
    return torch.where(last, -1, tokens), accepted


CASES = Cases(
    make=make,
    dims={"k": (5, 1, 3), "vocab": (20, 2, 300)},
    dtypes=(F32,),
    inputs=(0, 1),
    specials=specials,
    consumers={
        "length": Consumer(
            apply=lambda out, args: (out[0] >= 0).sum(1),
            exactness=Bitwise(because="counts"),
        )
    },
    faults={
        "matches after a miss count": counts_every_match,
        "larger token among equals": larger_token,
        "no bonus token": no_bonus,
        "draft emitted at the miss": lambda x, d: (
            torch.cat((d, OP.native(x, d)[0][:, -1:]), 1),
            OP.native(x, d)[1],
        ),
        "compared with the row after": lambda x, d: OP.native(x.roll(-1, 1), d),
    },
    timing={"vocab": 129280},
    bound=lambda args: (args[0].numel() * 4, args[0].numel()),
)
