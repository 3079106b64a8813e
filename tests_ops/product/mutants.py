"""All planted bugs of the product by name: backbone, paging and drafting.

Each replaces named functions of `dsv41.model` while the block runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from dsv41.model import attention, draft, forward, paged
from tests_ops.product.mutants_backbone import BACKBONE, narrow, unit
from tests_ops.product.planting import (
    CHUNKS,
    DECODE,
    DRAFTS,
    LATE_DRAFTS,
    SPECULATION,
    Mutant,
    Seen,
    instead,
)


def _forgets(kind: str) -> Callable[[Any], Any]:
    """`before` sees nothing older than this step's first token, for one kind of field."""

    def wrap(original: Any) -> Any:
        def before(self: Any, field: Any, rows: Any, back: int) -> Any:
            found = original(self, field, rows, back)
            first = self.batch.seq_lens - self.batch.query_start.diff()
            old = self.positions - back < first[self.request]
            return found.masked_fill(old.unsqueeze(-1), 0) if field[0] == kind else found

        return before

    return wrap


def _window_of_the_chunk(original: Any) -> Any:
    """Window rows of earlier chunks are lost (T-23)."""

    def window(self: Any, field: Any) -> Any:
        rows, visible = original(self, field)
        # Columns stand at first - (W - 1), .., so the chunk's own rows begin at column W - 1.
        own = torch.arange(visible.shape[-1]) >= self.state.window_size - 1
        return rows, visible & own

    return window


def _with_keys_of(segment: Any, layer: int) -> Seen:
    def groups(field: Any, ratio: int) -> Any:
        if field[0] != "key":
            return segment.groups(field, ratio)
        return segment.groups(("key", layer), 1)[:, : segment.num_groups(ratio)]

    return Seen(segment, groups=groups)


def _stale_keys(original: Any) -> Any:
    """The released reference's quirk: a half-filled group scores the keys published last (U-18)."""

    def select(segment: Any, query: Any, weight: Any, plan: Any, config: Any, *rest: Any) -> Any:
        half_filled = plan.ratio == 2 and segment.positions.numel() == 1
        if half_filled and int(segment.positions) % 2 == 0:
            segment = _with_keys_of(segment, max(config.kv_source_layer_ids))
        return original(segment, query, weight, plan, config, *rest)

    return select


PAGED = [
    Mutant(
        name="half-group-dropped-at-chunk-edge",
        patches=((paged.PagedState, "before", _forgets("raw")),),
        caught_by=CHUNKS,
    ),
    Mutant(
        name="engram-history-reset-at-chunk-start",
        patches=((paged.PagedState, "before", _forgets("token")),),
        caught_by=CHUNKS,
    ),
    Mutant(
        name="window-lost-at-chunk-start",
        patches=((paged.PagedSegment, "window", _window_of_the_chunk),),
        caught_by=CHUNKS,
    ),
    Mutant(
        name="window-one-short-over-pages", patches=((paged, "band", narrow),), caught_by=CHUNKS
    ),
    Mutant(
        name="stale-index-keys-in-decode",
        patches=((attention, "select", _stale_keys),),
        caught_by=DECODE,
    ),
]


def _causal(original: Any) -> Any:
    def attend(query: Any, keys: Any, visible: Any, sink: Any) -> Any:
        size = query.shape[1]
        ahead = torch.ones(size, size, dtype=torch.bool).triu(1)
        visible = visible.clone()
        visible[..., -size:] &= ~ahead
        return original(query, keys, visible, sink)

    return attend


def _leaving_captures(original: Any) -> Any:
    """Captures of what leaves the target layers instead of what enters them."""

    def run_layers(params: Any, run: Any, token_ids: Any, token_map: Any) -> Any:
        kept, block = [], forward.block

        def keeping(stream: Any, carried: Any, layer: Any, plan: Any, scratch: Any) -> Any:
            stream, carried = block(stream, carried, layer, plan, scratch)
            if plan.is_captured:
                kept.append(stream.mean(1))
            return stream, carried

        with mock.patch.object(forward, "block", keeping):
            hidden = original(params, run, token_ids, token_map)
        return hidden._replace(captured=torch.cat(kept, -1))

    return run_layers


def _other_noise(original: Any) -> Any:
    def draft_hidden(params: Any, config: Any, *rest: Any) -> Any:
        return original(params, replace(config, dspark_noise_token_id=0), *rest)

    return draft_hidden


def _late_context(original: Any) -> Any:
    def rows(captured: Any, params: Any, config: Any, rotation: Any, rounding: Any) -> Any:
        one = forward.rotation_rows(config, torch.tensor([1]), config.head_dim, compressed=False)
        return original(captured, params, config, rotation * one, rounding)

    return rows


def _no_main_norm(original: Any) -> Any:
    def rows(captured: Any, params: Any, *rest: Any) -> Any:
        plain = replace(params, main_norm=torch.ones_like(params.main_norm))
        return original(captured, plain, *rest)

    return rows


def _normed_confidence(original: Any) -> Any:
    def corrected(folded: Any, base: Any, previous: Any, params: Any) -> Any:
        scored, _ = original(folded, base, previous, params)
        _, confidence = original(unit(folded) * params.norm, base, previous, params)
        return scored, confidence

    return corrected


def _markov_of_anchor(folded: Any, anchor: Any, params: Any, config: Any) -> Any:
    previous = anchor.unsqueeze(1).expand(folded.shape[:2])
    base = draft.base_logits(folded, params, config)
    scored, confidence = draft.corrected(folded, base, previous, params.draft)
    return draft.Drafts(scored.argmax(-1), confidence)


def _noise(folded: Any, anchor: Any, params: Any, config: Any) -> Any:
    shape = folded.shape[:2]
    tokens = (anchor.unsqueeze(1) * 31 + 17 * torch.arange(shape[1])) % config.vocab_size
    return draft.Drafts(tokens, torch.zeros(shape))


DRAFT = [
    Mutant(name="draft-block-causal", patches=((draft, "attend", _causal),), caught_by=DRAFTS),
    Mutant(
        name="draft-captures-layer-outputs",
        patches=((forward, "run_layers", _leaving_captures),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-noise-id-wrong",
        patches=((draft, "draft_hidden", _other_noise),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-context-one-late",
        patches=((draft, "context_rows", _late_context),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-no-main-norm",
        patches=((draft, "context_rows", _no_main_norm),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-confidence-after-norm",
        patches=((draft, "corrected", _normed_confidence),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-markov-from-anchor",
        patches=((draft, "greedy_drafts", instead(_markov_of_anchor)),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-context-never-written",
        patches=((draft, "write_context", instead(lambda *args: None)),),
        caught_by=LATE_DRAFTS,
    ),
    Mutant(
        name="drafter-returns-noise",
        patches=((draft, "greedy_drafts", instead(_noise)),),
        caught_by=SPECULATION,
    ),
]

MUTANTS = {mutant.name: mutant for mutant in BACKBONE + PAGED + DRAFT}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The named bug is in the product inside the block."""
    with contextlib.ExitStack() as stack:
        for owner, function, wrap in MUTANTS[name].patches:
            original = getattr(owner, function)
            stack.enter_context(mock.patch.object(owner, function, wrap(original)))
        yield
