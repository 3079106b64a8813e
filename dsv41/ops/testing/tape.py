"""Capture and replay without a device: the tensor operations of one call, run again as they were.

Like a device graph, a tape keeps the addresses of capture time and never runs Python again.
What the call read on the host, kept from an earlier call or took from another tensor is frozen,
so a replay after the inputs or weights changed in place gives a wrong result where a graph would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dsv41.ops.testing.poison import poison


class ReplayError(Exception):
    """A replay cannot do what the capture did; one line says what."""


@dataclass(frozen=True)
class _Step:
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Any]


class Tape(TorchDispatchMode):
    """Records every tensor operation below it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[_Step] = []
        self.host_reads = 0
        self.replays = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            self.host_reads += 1
        else:
            self.steps.append(_Step(func, args, kwargs, pytree.tree_leaves(result)))
        return result

    def replay(self) -> None:
        """Run the recorded operations again on the recorded tensors."""
        self.replays += 1
        for step in self.steps:
            if _is_view(step.function):
                continue
            results = pytree.tree_leaves(step.function(*step.args, **step.kwargs))
            for old, new in zip(step.outputs, results, strict=True):
                if isinstance(old, Tensor) and old is not new:
                    if old.shape != new.shape:
                        raise ReplayError(
                            f"{step.function}: {list(new.shape)} in a replay, captured as"
                            f" {list(old.shape)}: the shape depends on data"
                        )
                    old.copy_(new)


def _is_view(function: Any) -> bool:
    """Whether its outputs only look at its inputs: fixed addresses need no second look."""
    returns = function._schema.returns
    return bool(returns) and all(
        r.alias_info is not None and not r.alias_info.is_write for r in returns
    )


class Captured:
    """A function captured over static copies of its arguments."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.args = tuple(a.clone() if isinstance(a, Tensor) else a for a in args)
        with torch.no_grad():
            # As before a device graph: a first run, so that whatever is made once is made.
            function(*self.args)
            self.tape = Tape()
            with self.tape:
                result = function(*self.args)
        self.outputs = tuple(pytree.tree_leaves(result))

    def write(self, position: int, value: Tensor) -> None:
        """Change an argument in place, as a service does between replays."""
        self.args[position].copy_(value)

    def replay(self) -> tuple[Tensor, ...]:
        """Poison the outputs, run the tape, and give copies of what it wrote."""
        held = {a.untyped_storage().data_ptr() for a in self.args if isinstance(a, Tensor)}
        for out in self.outputs:
            if out.untyped_storage().data_ptr() not in held:
                poison(out)
        with torch.no_grad():
            self.tape.replay()
        return tuple(out.clone() for out in self.outputs)
