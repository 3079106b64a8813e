"""How many tokens a step yields with five drafts, measured without an engine.

The walk is the engine's: after the prompt the first answer token is the anchor; each step drafts
five tokens, keeps those that equal the target's greedy text, and adds the target's next token.
Drafts behind the end of the text count as wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dsv41.model.config import ModelConfig
from dsv41.model.draft import Context, context_rows, draft_hidden, greedy_drafts
from dsv41.model.forward import rotation_rows
from dsv41.model.full import forward_hidden
from dsv41.model.params import ModelParams
from dsv41.model.quant import EXACT
from dsv41.model.vocabulary import TokenMap
from dsv41.tiny.decode import padded


class Count(NamedTuple):
    """Draft steps, drafted tokens, and accepted ones by position in the block."""

    drafts: int
    accepted: tuple[int, ...]

    @property
    def length(self) -> float:
        """1 + accepted / drafts, as counted from a service's metrics."""
        return 1 + sum(self.accepted) / self.drafts


def measure(
    params: ModelParams,
    config: ModelConfig,
    token_map: TokenMap,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    batch: int = 50,
) -> Count:
    """The walk over every answer; `answers` are the target's own greedy tokens."""
    drafts, accepted = 0, [0] * config.dspark_block_size
    for start in range(0, len(prompts), batch):
        some = slice(start, start + batch)
        blocks = draft_everywhere(params, config, token_map, prompts[some], answers[some])
        for answer, rows in zip(answers[some], blocks, strict=True):
            at = 0
            while at < len(answer) - 1:
                kept = _agreed(rows[at], answer[at + 1 :])
                for i in range(kept):
                    accepted[i] += 1
                drafts += 1
                at += kept + 1
    return Count(drafts, tuple(accepted))


@torch.inference_mode()
def draft_everywhere(
    params: ModelParams,
    config: ModelConfig,
    token_map: TokenMap,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
) -> list[list[list[int]]]:
    """For each answer and each of its tokens as the anchor: the drafted block."""
    assert params.draft is not None
    ids = padded([[*p, *a] for p, a in zip(prompts, answers, strict=True)])
    captured = forward_hidden(params, config, ids, token_map).captured
    assert captured is not None
    length, window = ids.shape[1], config.sliding_window
    rotation = rotation_rows(
        config, torch.arange(length).repeat(len(ids)), config.head_dim, compressed=False
    )
    rows = context_rows(captured, params.draft, config, rotation, EXACT)
    row = torch.tensor([i for i, a in enumerate(answers) for _ in a])
    anchors = torch.tensor(
        [len(p) + j for p, a in zip(prompts, answers, strict=True) for j in range(len(a))]
    )
    reach = anchors.unsqueeze(1) - window + torch.arange(window)
    index = (reach.clamp(min=0) + row.unsqueeze(1) * length).flatten()
    contexts = [
        Context(rows[:, s].index_select(0, index).unflatten(0, (-1, window)), reach >= 0)
        for s in range(len(params.draft.stages))
    ]
    anchor = ids[row, anchors]
    folded = draft_hidden(params, config, anchor, anchors - 1, contexts, EXACT)
    tokens: Tensor = greedy_drafts(folded, anchor, params, config).tokens
    made = iter(tokens.tolist())
    return [[next(made) for _ in a] for a in answers]


def _agreed(draft: Sequence[int], text: Sequence[int]) -> int:
    kept = 0
    while kept < min(len(draft), len(text)) and draft[kept] == text[kept]:
        kept += 1
    return kept
