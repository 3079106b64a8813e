"""Operators on `vllm.ir`, with what it lacks: exactness, reasons for declining, and counters.

`vllm.ir` keeps the reference, the implementations and their order.  It falls back with a debug
message; here every call counts the path that it took, and a declined one its reason (P7.3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import vllm.ir
from torch import Tensor

from dsv41 import paths
from dsv41.ops.exactness import Exactness

Function = Callable[..., Any]


@dataclass(frozen=True)
class Rule:
    """One condition on the arguments, and the reason given where it does not hold."""

    reason: str
    holds: Callable[..., bool]


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One implementation.

    `exactness` is keyed by the dtype of an output ("float32").  `serves` names the function of
    the serving model that it calls.  `eager` says why it cannot be captured in a graph.
    `missing` says why this machine cannot run it.
    """

    op: str
    provider: str
    function: Function
    exactness: Mapping[str, Exactness]
    serves: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    eager: str | None = None
    missing: str | None = None

    def eligible(self, *args: Any) -> tuple[bool, str]:
        """Whether it takes these arguments, and if not the first reason."""
        if self.missing is not None:
            return False, self.missing
        for rule in self.rules:
            if not rule.holds(*args):
                return False, rule.reason
        return True, ""

    def exactness_of(self, dtype: torch.dtype) -> Exactness | None:
        """What is declared for outputs of `dtype`; None if nothing is."""
        return self.exactness.get(str(dtype).removeprefix("torch."))


class Op:
    """A reference, its backends and its call; `formula` and `source` say what it means."""

    def __init__(self, function: Function, formula: str, source: str, consumers: tuple[str, ...]):
        self.name = function.__name__
        self.formula, self.source, self.consumers = formula, source, consumers
        self.native = function
        self.backends: dict[str, Backend] = {}
        self.ir = vllm.ir.register_op(_counted(self.name, "native", function), name=self.ir_name)
        self.ir.register_fake(function)

    @property
    def ir_name(self) -> str:
        """The name in `vllm.ir`, apart from anyone else's."""
        return f"dsv41_{self.name}"

    def backend(
        self,
        provider: str,
        *,
        exactness: Mapping[str, Exactness],
        serves: tuple[str, ...] = (),
        rules: tuple[Rule, ...] = (),
        eager: str | None = None,
        missing: str | None = None,
    ) -> Callable[[Function], Function]:
        """Register the decorated function."""

        def register(function: Function) -> Function:
            if not exactness:
                raise ValueError(f"{self.name}/{provider}: no exactness is declared (P7.1)")
            made = Backend(
                op=self.name,
                provider=provider,
                function=function,
                exactness=exactness,
                serves=serves,
                rules=rules,
                eager=eager,
                missing=missing,
            )
            self.backends[provider] = made
            self.ir.register_impl(
                provider, supported=missing is None, supports_args=_supports(made)
            )(_counted(self.name, provider, function))
            return function

        return register

    def settle(self) -> None:
        """Prefer the first backend that can run here, then the reference."""
        usable = [b.provider for b in self.backends.values() if b.missing is None]
        self.ir.set_default([*usable[:1], "native"])

    def __call__(self, *args: Any) -> Any:
        return self.ir(*args)

    def using(self, provider: str) -> Any:
        """Context in which calls prefer `provider` and fall back to the reference."""
        chosen = ["native"] if provider == "native" else [provider, "native"]
        return self.ir.set_priority(chosen)


def register(
    *, formula: str, source: str, consumers: tuple[str, ...] = ()
) -> Callable[[Function], Op]:
    """Make an operator of the decorated reference, which gives it its name and its schema."""
    return lambda function: Op(function, formula, source, consumers)


def rows_of(args: tuple[Any, ...]) -> int:
    """Rows of the first tensor among the arguments."""
    return next((a.shape[0] for a in args if isinstance(a, Tensor) and a.dim()), 0)


def _counted(name: str, provider: str, function: Function) -> Function:
    @functools.wraps(function)
    def counted(*args: Any) -> Any:
        paths.count(f"op.{name}", provider, rows=rows_of(args))
        return function(*args)

    return counted


def _supports(backend: Backend) -> Function:
    @functools.wraps(backend.function)
    def supports(*args: Any) -> bool:
        ok, reason = backend.eligible(*args)
        if not ok:
            paths.count(f"op.{backend.op}.declined", f"{backend.provider}: {reason}", rows_of(args))
        return ok

    return supports
