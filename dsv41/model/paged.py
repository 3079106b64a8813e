"""The paged state: one record per token in an engine's blocks, read through block tables.

Every row that a token leaves (window, raw compressor input, latent, index key, id) lies in that
token's slot; a group's rows lie in its last token's.  Nothing else is kept, so chunked prefill,
prefix hits, preemption and rejected drafts need no care beyond the engine's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dsv41.model.config import ModelConfig
from dsv41.model.state import TOKEN, Field, band, picked

# Requests of similar query length share a rectangle: 1..8, ..32, ..128, ...
_FIRST_RECTANGLE, _GROWTH = 8, 4


class RecordLayout:
    """Where each field lies in a token's record, in float32 values."""

    def __init__(self, config: ModelConfig, num_draft_stages: int) -> None:
        self.columns: dict[Field, slice] = {}
        self.width = 0
        self._add(TOKEN, 1)
        for plan in config.layer_plans():
            self._add(("window", plan.index), config.head_dim)
            if plan.owns_compressor:
                if plan.ratio > 1:
                    self._add(("raw", plan.index), 2 * config.head_dim)
                self._add(("latent", plan.index), config.head_dim)
                self._add(("key", plan.index), config.index_head_dim)
        for stage in range(num_draft_stages):
            self._add(("window", config.num_hidden_layers + stage), config.head_dim)

    def _add(self, field: Field, width: int) -> None:
        self.columns[field] = slice(self.width, self.width + width)
        self.width += width


@dataclass(frozen=True)
class Batch:
    """One step's requests: `query_start [R+1]`, `seq_lens [R]` (new tokens included),
    `block_table [R, blocks]` and `block_size`, all as the engine gives them, int64."""

    query_start: Tensor
    seq_lens: Tensor
    block_table: Tensor
    block_size: int

    def slots(self, request: Tensor, positions: Tensor) -> Tensor:
        """Slots of `positions` of the requests in `request` (shapes broadcast), int64."""
        number = torch.div(positions, self.block_size, rounding_mode="floor")
        return self.block_table[request, number] * self.block_size + positions % self.block_size


class PagedState:
    """The state of one step over `records [num_slots, width]` float32."""

    def __init__(
        self,
        records: Tensor,
        layout: RecordLayout,
        batch: Batch,
        window: int,
        floor: Tensor | None = None,
    ) -> None:
        # Windows of request r do not reach below position floor[r].
        self.floor = floor
        self.records, self.layout, self.batch, self.window_size = records, layout, batch, window
        lengths = batch.query_start.diff()
        self.request = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        start = batch.seq_lens - lengths
        within = torch.arange(len(self.request)) - batch.query_start[:-1][self.request]
        self.positions = start[self.request] + within
        self.slot_mapping = batch.slots(self.request, self.positions)
        self.segments = tuple(self._rectangles(lengths))
        self._earlier: dict[int, Tensor] = {}

    def _rectangles(self, lengths: Tensor) -> list[PagedSegment]:
        shortest, longest = int(lengths.min()), int(lengths.max())
        if longest <= _FIRST_RECTANGLE or shortest == longest:
            return [PagedSegment(self, torch.arange(len(lengths)), lengths)]
        segments, low, high = [], 0, _FIRST_RECTANGLE
        while low < longest:
            chosen = ((lengths > low) & (lengths <= high)).nonzero().squeeze(1)
            if len(chosen):
                segments.append(PagedSegment(self, chosen, lengths[chosen]))
            low, high = high, high * _GROWTH
        return segments

    def write(self, field: Field, rows: Tensor) -> None:
        view = self.records[:, self.layout.columns[field]]
        view.index_copy_(0, self.slot_mapping, rows.float())

    def write_groups(self, field: Field, ratio: int, rows: Tensor) -> None:
        # Other tokens' slots take rows that nobody reads: a group is read where it ends.
        self.write(field, rows)

    def before(self, field: Field, rows: Tensor, back: int) -> Tensor:
        if back not in self._earlier:
            earlier = (self.positions - back).clamp(min=0)
            self._earlier[back] = self.batch.slots(self.request, earlier)
        return self.read(field, self._earlier[back])

    def read(self, field: Field, slots: Tensor) -> Tensor:
        """Rows `[..., w]` at `slots` of any shape."""
        view = self.records[:, self.layout.columns[field]]
        return view.index_select(0, slots.reshape(-1)).view(*slots.shape, -1)

    def window_before(self, field: Field, request: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """The window that ends at `last [G]` of `request [G]`: `[G, W, w]` and `[G, W]` bool."""
        positions = last.unsqueeze(1) + torch.arange(1 - self.window_size, 1)
        slots = self.batch.slots(request.unsqueeze(1), positions.clamp(min=0))
        return self.read(field, slots), positions >= 0

    def merge(self, parts: Sequence[Tensor]) -> Tensor:
        if len(parts) == 1 and self.segments[0].is_whole:
            return parts[0].flatten(0, 1)
        merged = parts[0].new_empty(len(self.positions), *parts[0].shape[2:])
        for segment, part in zip(self.segments, parts, strict=True):
            # Padded queries repeat the last one, so they write the same row again.
            merged.index_copy_(0, segment.token.reshape(-1), part.flatten(0, 1))
        return merged

    def tail(self, rows: int) -> tuple[PagedState, Tensor | None]:
        lengths = self.batch.query_start.diff()
        if int(lengths.max()) <= rows:
            return self, None
        keep = lengths.clamp(max=rows)
        end = self.batch.query_start[1:][self.request]
        kept = (torch.arange(len(self.request)) >= end - keep[self.request]).nonzero().squeeze(1)
        start = torch.cat((keep.new_zeros(1), keep.cumsum(0)))
        floor = torch.where(keep < lengths, self.batch.seq_lens - keep, 0)
        batch = replace(self.batch, query_start=start)
        return PagedState(self.records, self.layout, batch, self.window_size, floor), kept


class PagedSegment:
    """Requests of similar query length as a rectangle; `token [R, Q]` are rows of the step."""

    def __init__(self, state: PagedState, requests: Tensor, lengths: Tensor) -> None:
        self.state, self.requests = state, requests
        longest = int(lengths.max())
        # The whole step as it stands: rows are a plain view.
        everyone = len(requests) == len(state.batch.seq_lens)
        self.is_whole = everyone and bool((lengths == longest).all())
        query = torch.minimum(torch.arange(longest), lengths.unsqueeze(1) - 1)
        self.token = state.batch.query_start[requests].unsqueeze(1) + query
        self.positions = state.positions[self.token]
        self.longest_context = int(state.batch.seq_lens[requests].max())
        self._window: tuple[Tensor, Tensor] | None = None
        self._groups: dict[int, Tensor] = {}

    def take(self, rows: Tensor) -> Tensor:
        if self.is_whole:
            return rows.reshape(*self.token.shape, *rows.shape[1:])
        return rows[self.token]

    def window(self, field: Field) -> tuple[Tensor, Tensor]:
        if self._window is None:
            width = self.state.window_size - 1 + self.token.shape[1]
            first = self.positions[:, :1] - (self.state.window_size - 1)
            positions = first + torch.arange(width)
            # Rows past a request's last query are padding: the band hides them.
            reachable = torch.minimum(positions, self.positions[:, -1:]).clamp(min=0)
            slots = self.state.batch.slots(self.requests.unsqueeze(1), reachable)
            visible = band(positions, self.positions, self.state.window_size)
            if self.state.floor is not None:
                floor = self.state.floor[self.requests].unsqueeze(1)
                visible = visible & (positions >= floor).unsqueeze(1)
            self._window = slots, visible
        slots, visible = self._window
        return self.state.read(field, slots), visible

    def num_groups(self, ratio: int) -> int:
        return self.longest_context // ratio

    def groups(self, field: Field, ratio: int) -> Tensor:
        return self.state.read(field, self._group_slots(ratio))

    def _group_slots(self, ratio: int) -> Tensor:
        if ratio not in self._groups:
            ends = torch.arange(self.num_groups(ratio)) * ratio + ratio - 1
            self._groups[ratio] = self.state.batch.slots(self.requests.unsqueeze(1), ends)
        return self._groups[ratio]

    def selected(
        self, field: Field, ratio: int, index: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        _, q, k = index.shape
        num_groups = self.num_groups(ratio)
        if q * k >= num_groups:
            return self.groups(field, ratio), picked(index, valid, num_groups)
        slots = self._group_slots(ratio).gather(1, index.flatten(1))
        own = torch.eye(q, dtype=torch.bool).repeat_interleave(k, 1)
        return self.state.read(field, slots), own & valid.flatten(1).unsqueeze(1)
