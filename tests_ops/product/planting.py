"""What a planted bug is: functions of the product, wrapped, and the test that must then fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Patch = tuple[Any, str, Callable[[Any], Any]]

LAYERS = "test_every_layer_of_the_tiny_model_agrees"
UNCLIPPED = "test_a_swiglu_limit_of_0_clips_nothing"
DECODE = "test_one_token_decode_equals_prefill"
CHUNKS = "test_odd_chunks_over_pages_agree"
DRAFTS = "test_drafts_and_confidence_are_the_oracles"
LATE_DRAFTS = "test_drafts_after_chunks_are_those_after_one_piece"
SPECULATION = "test_speculation_gives_the_oracles_tokens_and_accept_counts"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """Functions replaced by `wrap(original)`, and the test that catches the bug."""

    name: str
    patches: tuple[Patch, ...]
    caught_by: str = LAYERS


def instead(replacement: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda original: replacement


def after(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda original: lambda *args, **kw: change(original(*args, **kw))


class Seen:
    """A segment with some of its answers replaced."""

    def __init__(self, segment: Any, **answers: Any) -> None:
        self._segment, self._answers = segment, answers

    def __getattr__(self, name: str) -> Any:
        return self._answers[name] if name in self._answers else getattr(self._segment, name)
