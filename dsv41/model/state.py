"""What earlier tokens left behind, and how this forward's tokens read it.

Layers see one interface.  `DenseState` holds whole sequences in ordinary tensors and lets
gradients through; `paged.PagedState` holds one record per token in an engine's pages.  A field
is `(kind, layer)`: "window" rows of every layer, "raw" compressor inputs, and one "latent" and
one "key" row per completed group of a kv source, and the compressed "token" ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

Field = tuple[str, int]
TOKEN: Field = ("token", 0)


class Segment(Protocol):
    """Requests laid out as a rectangle of `R` requests by `Q` queries.

    `positions` is `[R, Q]`; padded queries repeat the last real one.
    """

    positions: Tensor

    def take(self, rows: Tensor) -> Tensor:
        """Per-token rows `[n, ...]` as `[R, Q, ...]`."""

    def window(self, field: Field) -> tuple[Tensor, Tensor]:
        """Rows `[R, M, w]` around the queries, and which each query sees, `[R, Q, M]` bool."""

    def num_groups(self, ratio: int) -> int:
        """Completed groups of the longest request, T."""

    def groups(self, field: Field, ratio: int) -> Tensor:
        """All group rows `[R, T, w]`; rows beyond a request's own groups are arbitrary."""

    def selected(
        self, field: Field, ratio: int, index: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rows `[R, M, w]` that hold the picks `index [R, Q, K]`, and who sees which."""


class State(Protocol):
    """Where the `n` tokens of this forward stand, and the rows of the tokens before them."""

    positions: Tensor  # [n] int64
    segments: Sequence[Segment]

    def write(self, field: Field, rows: Tensor) -> None:
        """Store one row `[n, w]` per token."""

    def write_groups(self, field: Field, ratio: int, rows: Tensor) -> None:
        """Store a group's row where its last token stands; other tokens' rows are dropped."""

    def before(self, field: Field, rows: Tensor, back: int) -> Tensor:
        """Rows of the tokens `back` positions earlier (position 0 stands in where none is)."""

    def merge(self, parts: Sequence[Tensor]) -> Tensor:
        """The segments' `[R, Q, ...]` back to `[n, ...]`."""

    def tail(self, rows: int) -> tuple[State, Tensor | None]:
        """The state of each request's last `rows` tokens, and their indices; None: all of them.

        Windows of a shortened request end at its first kept row: rows below are not written.
        """


def band(key_positions: Tensor, query_positions: Tensor, window: int) -> Tensor:
    """Sliding-window visibility `[..., Q, M]`: `p - window < t <= p` and `t >= 0`."""
    keys, queries = key_positions.unsqueeze(-2), query_positions.unsqueeze(-1)
    return (keys <= queries) & (keys > queries - window) & (keys >= 0)


class DenseState:
    """Whole sequences `[B, S]` from position 0; the only state that has gradients."""

    def __init__(self, batch: int, length: int, window: int) -> None:
        row = torch.arange(length)
        self.batch, self.length = batch, length
        self.positions = row.repeat(batch)
        self.segments = (DenseSegment(self, row, window),)
        self.rows: dict[Field, Tensor] = {}

    def write(self, field: Field, rows: Tensor) -> None:
        self.rows[field] = rows.unflatten(0, (self.batch, self.length))

    def write_groups(self, field: Field, ratio: int, rows: Tensor) -> None:
        self.rows[field] = rows.unflatten(0, (self.batch, self.length))[:, ratio - 1 :: ratio]

    def before(self, field: Field, rows: Tensor, back: int) -> Tensor:
        grid = rows.unflatten(0, (self.batch, self.length))
        first = grid[:, :1].expand(-1, back, *grid.shape[2:])
        return torch.cat((first, grid), 1)[:, : self.length].flatten(0, 1)

    def merge(self, parts: Sequence[Tensor]) -> Tensor:
        return parts[0].flatten(0, 1)

    def tail(self, rows: int) -> tuple[State, Tensor | None]:
        raise NotImplementedError("bounded replay is a choice of serving: use a paged state")


class DenseSegment:
    """The whole batch as one rectangle; every query reads the same rows under its own mask."""

    def __init__(self, state: DenseState, row: Tensor, window: int) -> None:
        self.state = state
        self.positions = row.expand(state.batch, -1)
        self.visible = band(row, row, window).expand(state.batch, -1, -1)

    def take(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (self.state.batch, self.state.length))

    def window(self, field: Field) -> tuple[Tensor, Tensor]:
        return self.state.rows[field], self.visible

    def num_groups(self, ratio: int) -> int:
        return self.state.length // ratio

    def groups(self, field: Field, ratio: int) -> Tensor:
        return self.state.rows[field]

    def selected(
        self, field: Field, ratio: int, index: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self.state.rows[field], picked(index, valid, self.num_groups(ratio))


def picked(index: Tensor, valid: Tensor, width: int) -> Tensor:
    """Distinct picks `[R, Q, K]` as a mask `[R, Q, width]`."""
    mask = torch.zeros(*index.shape[:-1], width, dtype=torch.bool, device=index.device)
    return mask.scatter(-1, index, valid)
