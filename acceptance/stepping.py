"""What is asked of a session, and what a step of it ended with."""

from dataclasses import dataclass
from pathlib import Path

from acceptance.prepare import Kind
from acceptance.protocol import Verdict
from acceptance.records import ScopeVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for."""

    profile: Path
    run_id: str | None = None
    kind: Kind = "final"
    candidate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step ended with: PASS, or a verdict with its rule and reason."""

    verdict: Verdict
    rule: str
    reason: str


def round_of(step: str) -> str | None:
    """The round that a step belongs to, None for a step of the whole run."""
    name, dash, _ = step.partition("-")
    return name if dash else None


def of_scope(scope: ScopeVerdict) -> StepResult:
    """What the verdict of a scope makes of its step."""
    return StepResult(verdict=Verdict(scope.verdict), rule=scope.rule, reason=scope.reason)


def passed() -> StepResult:
    """A step that did what it had to."""
    return StepResult(verdict=Verdict.PASS, rule="", reason="")
