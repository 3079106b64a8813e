"""What a planted bug is: one function of the oracle, wrapped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """`module.function` replaced by `wrap(original)`.

    `earliest`: the first position it can change, worked out for the tiny config.
    `exact`: it does change that very position, whatever the weights.
    `least`: smallest max |logit difference| a test must see on 64 tokens of the tiny config.
    """

    name: str
    module: Any
    function: str
    wrap: Wrap
    earliest: int = 0
    exact: bool = False
    least: float = 0.1


def instead(replacement: Callable[..., Any]) -> Wrap:
    return lambda original: replacement


def after(change: Callable[[Any], Any]) -> Wrap:
    return lambda original: lambda *args, **kw: change(original(*args, **kw))


def with_config(**changes: Any) -> Wrap:
    """Call the original with a changed config (first argument a Config or a Model)."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any, **kw: Any) -> Any:
            if hasattr(first, "cfg"):
                return original(replace(first, cfg=replace(first.cfg, **changes)), *rest, **kw)
            return original(replace(first, **changes), *rest, **kw)

        return call

    return wrap
