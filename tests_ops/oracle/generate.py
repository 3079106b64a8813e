"""Greedy generation with and without speculation, every step from scratch. 3.4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests_ops.oracle import dspark, numerics
from tests_ops.oracle.config import Model
from tests_ops.oracle.model import Trace, forward

Drafter = Callable[[Model, Trace, int], Sequence[int]]


@dataclass(kw_only=True)
class Generation:
    """Tokens, and how clearly each was chosen."""

    tokens: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # top-1 minus top-2 logit
    accepted: list[int] = field(default_factory=list)  # drafts accepted per verify step

    @property
    def acceptance_length(self) -> float | None:
        """1 + accepted / drafts, None when nothing was drafted."""
        return 1 + sum(self.accepted) / len(self.accepted) if self.accepted else None

    def _emit(self, logits: Tensor) -> int:
        token = numerics.first_argmax(logits)
        top = torch.topk(logits, 2).values
        self.tokens.append(token)
        self.gaps.append(float(top[0] - top[1]))
        return token


def generate(
    model: Model, prompt: Sequence[int], max_tokens: int, stop: frozenset[int] = frozenset()
) -> Generation:
    """Greedy decoding; stops after a token of `stop` (which is emitted)."""
    out, sequence = Generation(), list(prompt)
    for _ in range(max_tokens):
        token = out._emit(forward(model, sequence).logits[-1])
        sequence.append(token)
        if token in stop:
            break
    return out


def own_drafter(model: Model, trace: Trace, anchor: int) -> Sequence[int]:
    """The DSpark module of the checkpoint."""
    return dspark.draft(model, trace.main_hidden, trace.positions, anchor).tokens


def generate_with_drafts(
    model: Model,
    prompt: Sequence[int],
    max_tokens: int,
    drafter: Drafter = own_drafter,
    stop: frozenset[int] = frozenset(),
) -> Generation:
    """The same tokens as `generate`, whatever the drafter returns; drafts start after prefill."""
    out, sequence = Generation(), list(prompt)
    trace = forward(model, sequence)
    anchor = out._emit(trace.logits[-1])
    while len(out.tokens) < max_tokens and anchor not in stop:
        drafts = list(drafter(model, trace, anchor))
        verify = forward(model, [*sequence, anchor, *drafts])
        rows = verify.logits[len(sequence) :]
        accepted = 0
        for i, row in enumerate(rows):
            token = out._emit(row)
            done = token in stop or len(out.tokens) == max_tokens
            if i < len(drafts) and drafts[i] == token:
                accepted += 1
            else:
                done = True
            if done:
                break
        out.accepted.append(accepted)
        sequence = (list(prompt) + out.tokens)[:-1]
        anchor = out.tokens[-1]
        trace = forward(model, sequence)
    return out
