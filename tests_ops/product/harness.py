"""The product's model over whole sequences and over pages; the oracle beside it.

Both get the same float32 tensors under the official names, the product through its own loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from dsv41.model import draft, forward, params, quant, vocabulary
from dsv41.model.config import ModelConfig
from dsv41.model.loader import load_official
from dsv41.model.paged import Batch, PagedState, RecordLayout
from dsv41.model.state import DenseState
from tests_ops.oracle import Model, build_model, numerics
from tests_ops.oracle import quant as oracle_quant

# Declared: float32 sums in another order, through up to ten layers of unit-scale streams. The
# worst of some 2000 random models and schedules was 4.2e-5; the mildest classic bug moves 4e-3.
TOLERANCE = 1e-4
# A discrete choice (expert, group, block) whose two candidates are nearer than this may fall
# either way in float32; such an input is not compared (1 in 100).
CLEAR_MARGIN = 3e-5
NOISE_SLOTS = 3


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The product and the oracle of the same weights."""

    config: ModelConfig
    bound: params.ModelParams
    map: vocabulary.TokenMap
    oracle: Model  # float64


def pair_of_stored(text: Mapping[str, Any], stored: Mapping[str, Tensor]) -> Pair:
    """Bind both sides of tensors in the released formats, each through its own decoder."""
    return _pair(text, stored, oracle_quant.dequantise_all(stored))


def pair(text: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Pair:
    """Bind both sides of plain tensors."""
    return _pair(text, tensors, tensors)


def _pair(
    text: Mapping[str, Any], tensors: Mapping[str, Tensor], plain: Mapping[str, Tensor]
) -> Pair:
    config = ModelConfig.from_dict({"text_config": dict(text)})
    flat, _ = load_official(tensors.items(), config, torch.float32)
    return Pair(
        config=config,
        bound=params.bind(flat, config),
        map=vocabulary.modulo_map(config),
        oracle=build_model(text, plain, dtype=torch.float64),
    )


@dataclass(kw_only=True)
class Run:
    """One forward of the product."""

    logits: Tensor
    captured: Tensor | None
    folded: Tensor
    streams: list[Tensor] = field(default_factory=list)
    mixes: list[Tensor] = field(default_factory=list)


@contextmanager
def watched(run: Run) -> Iterator[None]:
    """Keep the stream and the carried mix that leave every backbone layer."""
    original = forward.block

    def block(*args: Any, **kw: Any) -> Any:
        stream, carried = original(*args, **kw)
        run.streams.append(stream)
        run.mixes.append(carried)
        return stream, carried

    with mock.patch.object(forward, "block", block):
        yield


def whole(p: Pair, tokens: Sequence[int], rounding: bool = False) -> Run:
    """The product over one sequence from position 0, in one piece, without pages."""
    state = DenseState(1, len(tokens), p.config.sliding_window)
    return _run(p, state, torch.tensor(tokens), quant.Rounding(rounding))


def _run(p: Pair, state: Any, ids: Tensor, rounding: quant.Rounding, replay: bool = False) -> Run:
    scratch = forward.Forward(p.config, state, rounding, replay=replay)
    run = Run(logits=torch.empty(0), captured=None, folded=torch.empty(0))
    with torch.no_grad(), watched(run):
        hidden = forward.run_layers(p.bound, scratch, ids, p.map)
        if p.bound.draft is not None and isinstance(state, PagedState):
            draft.write_context(hidden.captured, p.bound.draft, scratch)
        run.logits = forward.logits(hidden.folded, p.bound, p.config)
    run.captured, run.folded = hidden.captured, hidden.folded
    return run


class Pages:
    """A paged cache of `requests` sequences of up to `longest` tokens, full of stale rows.

    Blocks lie in a seeded random order, as after much allocation and freeing.
    """

    def __init__(self, p: Pair, requests: int, longest: int, block_size: int, seed: int) -> None:
        self.p, self.block_size = p, block_size
        self.layout = RecordLayout(p.config, p.config.num_nextn_predict_layers)
        blocks = -(-longest // block_size)
        source = torch.Generator().manual_seed(seed)
        count = requests * blocks + NOISE_SLOTS
        order = torch.randperm(count, generator=source)[: requests * blocks]
        self.table = order.view(requests, blocks)
        stale = torch.randn(count * block_size, self.layout.width, generator=source)
        self.records = 30 * stale
        self.state: PagedState | None = None

    def step(
        self,
        chunks: Mapping[int, tuple[int, Sequence[int]]],
        rounding: bool = False,
        replay: bool = False,
    ) -> Run:
        """Process `request -> (tokens before, new tokens)` in one batch, in mapping order.

        With `replay` only each request's last window of rows has logits.
        """
        lengths = torch.tensor([0, *(len(new) for _, new in chunks.values())])
        batch = Batch(
            query_start=lengths.cumsum(0),
            seq_lens=torch.tensor([start + len(new) for start, new in chunks.values()]),
            block_table=self.table[list(chunks)],
            block_size=self.block_size,
        )
        self.state = PagedState(self.records, self.layout, batch, self.p.config.sliding_window)
        ids = torch.tensor([token for _, new in chunks.values() for token in new])
        return _run(self.p, self.state, ids, quant.Rounding(rounding), replay)

    def draft(self, rows: Sequence[int], last: Sequence[int], anchors: Sequence[int]) -> Any:
        """Greedy drafts for batch rows of the last step; `last` = position before the anchor."""
        assert self.state is not None
        assert self.p.bound.draft is not None
        at, position = torch.tensor(rows), torch.tensor(last)
        with torch.no_grad():
            contexts = [
                draft.Context(
                    *self.state.window_before(
                        draft.context_field(self.p.config, stage), at, position
                    )
                )
                for stage in range(self.p.config.num_nextn_predict_layers)
            ]
            anchor = torch.tensor(anchors)
            folded = draft.draft_hidden(
                self.p.bound, self.p.config, anchor, position, contexts, quant.Rounding()
            )
            return draft.greedy_drafts(folded, anchor, self.p.bound, self.p.config)


def chunked(
    p: Pair,
    tokens: Sequence[int],
    ends: Sequence[int],
    block_size: int,
    seed: int = 0,
    replay: bool = False,
) -> Tensor:
    """Logits of one sequence processed over pages in chunks that end at `ends`."""
    pages = Pages(p, 1, len(tokens), block_size, seed)
    parts, start = [], 0
    for end in ends:
        parts.append(pages.step({0: (start, tokens[start:end])}, replay=replay).logits)
        start = end
    return torch.cat(parts)


def greedy(p: Pair, prompt: Sequence[int], max_tokens: int, block_size: int = 4) -> list[int]:
    """Token by token over pages."""
    pages = Pages(p, 1, len(prompt) + max_tokens, block_size, 0)
    out: list[int] = []
    start, new = 0, list(prompt)
    while True:
        out.append(numerics.first_argmax(pages.step({0: (start, new)}).logits[-1]))
        if len(out) == max_tokens:
            return out
        start, new = start + len(new), out[-1:]


@dataclass(kw_only=True)
class Speculated:
    """Tokens and the number of accepted drafts of every verify step."""

    tokens: list[int]
    accepted: list[int]


def speculate(
    p: Pair, prompt: Sequence[int], max_tokens: int, drafter: Any = None, block_size: int = 4
) -> Speculated:
    """Greedy verification over pages; `drafter(step, anchor)` replaces the draft module."""
    size = p.config.dspark_block_size
    pages = Pages(p, 1, len(prompt) + max_tokens + size + 1, block_size, 0)
    logits = pages.step({0: (0, list(prompt))}).logits
    anchor = numerics.first_argmax(logits[-1])
    out, accepted, at = [anchor], [], len(prompt)
    while len(out) < max_tokens:
        if drafter is None:
            drafts = pages.draft([0], [at - 1], [anchor]).tokens[0].tolist()
        else:
            drafts = list(drafter(len(accepted), anchor))
        logits = pages.step({0: (at, [anchor, *drafts])}).logits
        best = [numerics.first_argmax(row) for row in logits]
        kept = 0
        while kept < len(drafts) and drafts[kept] == best[kept]:
            kept += 1
        out += best[: kept + 1]
        accepted.append(kept)
        at, anchor = at + kept + 1, best[kept]
    return Speculated(tokens=out[:max_tokens], accepted=accepted)


@contextmanager
def margins() -> Iterator[list[float]]:
    """Gaps between the last chosen and the first left-out score of the oracle's top-ks."""
    gaps: list[float] = []
    original = numerics.top_k_mask

    def top_k_mask(scores: Tensor, k: int) -> Tensor:
        mask = original(scores, k)
        if not scores.numel():
            return mask
        inside = scores.masked_fill(~mask, torch.inf).amin(-1)
        outside = scores.masked_fill(mask, -torch.inf).amax(-1)
        gap = inside - outside
        # Two equal scores are a decided tie: both sides take the smaller index.
        gaps.extend(gap[(gap > 0) & mask.any(-1)].tolist())
        return mask

    with mock.patch.object(numerics, "top_k_mask", top_k_mask):
        yield gaps
