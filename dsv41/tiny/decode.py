"""Greedy answers of many questions at once, by whole-sequence passes of `dsv41.model`.

A guess of the rest may be given; it is verified as drafts are: kept as far as every token is the
model's own choice, corrected there.  So guesses save passes and never change an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dsv41.model.config import ModelConfig
from dsv41.model.forward import logits
from dsv41.model.full import forward_hidden
from dsv41.model.params import ModelParams
from dsv41.model.vocabulary import TokenMap

EOS, PAD = 1, 2


@torch.inference_mode()
def greedy(
    params: ModelParams,
    config: ModelConfig,
    token_map: TokenMap,
    prompts: Sequence[Sequence[int]],
    guesses: Sequence[Sequence[int]],
    cap: int,
    batch: int = 50,
) -> list[list[int]]:
    """Answer tokens of each prompt up to its end token or `cap` tokens."""
    answers: list[list[int]] = [[] for _ in prompts]
    open_ = list(range(len(prompts)))
    while open_:
        for start in range(0, len(open_), batch):
            some = open_[start : start + batch]
            drafts = [_rest(answers[i], guesses[i]) for i in some]
            known = [[*prompts[i], *answers[i]] for i in some]
            chosen = _choices(params, config, token_map, known, drafts)
            for i, draft, tokens in zip(some, drafts, chosen, strict=True):
                answers[i] += accepted(draft, tokens)[: cap - len(answers[i])]
                if EOS in answers[i]:
                    answers[i] = answers[i][: answers[i].index(EOS) + 1]
        open_ = [i for i in open_ if len(answers[i]) < cap and answers[i][-1] != EOS]
    return answers


def accepted(draft: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """The drafts that agree with the model's choices `tokens`, and the choice after them."""
    agreed = 0
    while agreed < len(draft) and draft[agreed] == tokens[agreed]:
        agreed += 1
    return list(tokens[: agreed + 1])


def _rest(answer: Sequence[int], guess: Sequence[int]) -> list[int]:
    """What the guess still says, nothing once it was wrong."""
    return list(guess[len(answer) :]) if list(guess[: len(answer)]) == list(answer) else []


def _choices(
    params: ModelParams,
    config: ModelConfig,
    token_map: TokenMap,
    known: Sequence[Sequence[int]],
    drafts: Sequence[Sequence[int]],
) -> list[list[int]]:
    """The model's choice after each known text and after each further draft token."""
    rows = [[*k, *d] for k, d in zip(known, drafts, strict=True)]
    ids = padded(rows)
    folded = forward_hidden(params, config, ids, token_map).folded
    best = logits(folded, params, config).argmax(-1).view(ids.shape)
    return [
        best[i, len(k) - 1 : len(k) + len(d)].tolist()
        for i, (k, d) in enumerate(zip(known, drafts, strict=True))
    ]


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows on the left of a rectangle `[B, S]`."""
    ids = torch.full((len(rows), max(map(len, rows))), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids
