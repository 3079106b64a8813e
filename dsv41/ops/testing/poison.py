"""Uninitialised memory filled with values that no result may contain."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor


def poison(x: Tensor) -> Tensor:
    """Fill in place: NaN, 0x7f bytes, or True."""
    with torch.no_grad():
        if x.dtype.is_floating_point or x.dtype.is_complex:
            return x.fill_(torch.nan)
        return x.fill_(x.dtype is torch.bool or 0x7F)


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """`torch.empty` and its kin give poison while this lasts: an unwritten output cannot pass."""

    def filled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args, **kwargs: poison(function(*args, **kwargs))

    targets: tuple[tuple[Any, str], ...] = (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch, "empty_strided"),
        (torch.Tensor, "new_empty"),
        (torch.Tensor, "new_empty_strided"),
    )
    with contextlib.ExitStack() as stack:
        for owner, name in targets:
            stack.enter_context(mock.patch.object(owner, name, filled(getattr(owner, name))))
        yield
