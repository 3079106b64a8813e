"""What a verdict is: the verdict, its rule, where, why, and the exact figures behind it."""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from acceptance.exact import write
from acceptance.protocol import Verdict
from acceptance.records import Record, ScopeVerdict

SCOPES = ("performance", "accuracy", "function")


class Cause(StrEnum):
    """What a verdict came from, finer than its rule: no gain shown is not the same as slower."""

    ACCEPTED = "accepted"
    EVIDENCE = "evidence"
    PATH_NOT_RUN = "path-not-run"
    SLOWER = "slower"
    OVER_LIMIT = "over-limit"
    OPPOSITE_SIGNS = "opposite-signs"
    AT_THRESHOLD = "at-threshold"
    NO_GAIN = "no-gain"
    NOT_TRIED = "not-tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why evidence can't be used: the rule it misses, the level (None: all), and the reason."""

    rule: str
    level: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelInputs:
    """The exact figures of one level as they entered the rules; None is unknown or unused."""

    level: str
    is_target: bool
    b1_ns: Fraction | None
    b2_ns: Fraction | None
    limit_ns: Fraction | None
    parent_ns: Fraction | None
    threshold: Fraction | None

    @property
    def tpot_ns(self) -> Fraction | None:
        """TPOT(C) of P4.0: the median of two round means, which is their mean."""
        if self.b1_ns is None or self.b2_ns is None:
            return None
        return (self.b1_ns + self.b2_ns) / 2

    @property
    def gains(self) -> tuple[Fraction, Fraction] | None:
        """g1 and g2 of P4.2; None where they can't be computed."""
        if self.parent_ns is None or self.parent_ns <= 0:
            return None
        if self.b1_ns is None or self.b2_ns is None:
            return None
        parent = self.parent_ns
        return (parent - self.b1_ns) / parent, (parent - self.b2_ns) / parent

    @property
    def gain_median(self) -> Fraction | None:
        """median(g1, g2)."""
        return None if self.gains is None else (self.gains[0] + self.gains[1]) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with the rule that decided it, where, why, and everything it was computed from.

    `level` is the first level at which the rule applied; None where no single level decided.
    """

    verdict: Verdict
    rule: str
    cause: Cause
    level: str | None
    reason: str
    levels: tuple[LevelInputs, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """P4.8. `decided_by` is the first scope that has the verdict; `is_final_acceptance` holds
    when all three scopes were planned and passed, performance by P4.4 (P1.1)."""

    verdict: Verdict
    decided_by: str | None
    reason: str
    is_final_acceptance: bool


class LevelRecord(Record, frozen=True, kw_only=True):
    """`LevelInputs` as it is written: exact ratios "n/d"; times in ns per token."""

    level: str
    is_target: bool
    parent_ns: str | None
    b1_ns: str | None
    b2_ns: str | None
    tpot_ns: str | None
    limit_ns: str | None
    g1: str | None
    g2: str | None
    gain_median: str | None
    threshold: str | None


class JudgementRecord(Record, frozen=True, kw_only=True):
    """`Judgement` as it is written."""

    scope: str
    verdict: Verdict
    rule: str
    cause: Cause
    level: str | None
    reason: str
    levels: tuple[LevelRecord, ...]


def record(scope: str, judgement: Judgement) -> JudgementRecord:
    """The full record of a judgement, for `results/verdict.json` and reports."""
    return JudgementRecord(
        scope=scope,
        verdict=judgement.verdict,
        rule=judgement.rule,
        cause=judgement.cause,
        level=judgement.level,
        reason=judgement.reason,
        levels=tuple(_level_record(case) for case in judgement.levels),
    )


def scope_verdict(scope: str, judgement: Judgement) -> ScopeVerdict:
    """The short record of `Figures.scopes`. ValueError for a scope that is not known."""
    if scope not in SCOPES:
        raise ValueError(f"unknown scope {scope!r}")
    return ScopeVerdict(
        scope=scope,  # type: ignore[arg-type]
        verdict=judgement.verdict.value,
        rule=judgement.rule,
        reason=judgement.reason,
    )


def _level_record(case: LevelInputs) -> LevelRecord:
    def text(value: Fraction | None) -> str | None:
        return None if value is None else write(value)

    gains = case.gains
    return LevelRecord(
        level=case.level,
        is_target=case.is_target,
        parent_ns=text(case.parent_ns),
        b1_ns=text(case.b1_ns),
        b2_ns=text(case.b2_ns),
        tpot_ns=text(case.tpot_ns),
        limit_ns=text(case.limit_ns),
        g1=text(gains[0]) if gains else None,
        g2=text(gains[1]) if gains else None,
        gain_median=text(case.gain_median),
        threshold=text(case.threshold),
    )
