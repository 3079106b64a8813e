"""Exact round means -> verdicts, by P4.2, P4.4 and P4.8 in their order.

All times are Fractions of ns per token. Nothing is rounded, so equal means equal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Means = Mapping[str, Fraction]
"""Level -> ns per token; a level that is not there is unknown."""

WORST_FIRST = ("FAIL", "INCONCLUSIVE", "NOT_RUN", "PASS")
THRESHOLD_MIN = Fraction(1, 100)


@dataclass(frozen=True)
class Ruling:
    """A verdict, the rule that gave it, and why."""

    verdict: str
    rule: str
    reason: str


def overall(verdicts: Iterable[str]) -> str:
    """P4.8: the worst of the planned scopes; nothing planned is nothing run."""
    return min(verdicts, key=WORST_FIRST.index, default="NOT_RUN")


def tpot(b1: Fraction, b2: Fraction) -> Fraction:
    """P4.0: the median of the two round means."""
    return (b1 + b2) / 2


def final(
    levels: tuple[str, ...], b1: Means, b2: Means, limits: Means, obstacles: list[str]
) -> Ruling:
    """P4.4: two valid rounds, and TPOT(C) within its limit at every level."""
    missing = [*obstacles, *_missing(levels, {"B1": b1, "B2": b2, "limit": limits})]
    if missing:
        return Ruling("INCONCLUSIVE", "P4.4", "; ".join(missing))
    over = [level for level in levels if tpot(b1[level], b2[level]) > limits[level]]
    if over:
        return Ruling("FAIL", "P4.4", f"over the limit: {', '.join(over)}")
    return Ruling("PASS", "P4.4", "every level is within its limit")


def calibration(
    levels: tuple[str, ...], services: tuple[str, ...], means: Mapping[str, Means]
) -> Ruling:
    """P4.5: complete with every service valid at every level."""
    missing = [
        f"{service} {level}"
        for service in services
        for level in levels
        if level not in means[service]
    ]
    if missing or not levels:
        return Ruling("INCONCLUSIVE", "P4.5", f"not complete: {', '.join(missing)}")
    return Ruling("PASS", "P4.5", "six complete services")


def candidate(
    levels: tuple[str, ...],
    targets: tuple[str, ...],
    parent: Means | None,
    b1: Means,
    b2: Means,
    thresholds: Means | None,
    limits: Means,
    path_ran: bool | None,
    obstacles: list[str],
) -> Ruling:
    """P4.2 with P7.3. `path_ran`: the new path ran everywhere; None where nothing shows it."""
    if path_ran is False:
        return Ruling("INCONCLUSIVE", "P7.3", "the new path did not run everywhere")
    parent, thresholds = parent or {}, thresholds or {}
    missing = [*obstacles, *_missing(levels, {"P": parent, "B1": b1, "B2": b2, "limit": limits})]
    missing += [f"{one}: no threshold" for one in levels if one not in thresholds]
    missing += [
        f"{one}: threshold under 1 %"
        for one in levels
        if thresholds.get(one, THRESHOLD_MIN) < THRESHOLD_MIN
    ]
    missing += [] if targets else ["no target level"]
    missing += [f"target {one} is no level" for one in targets if one not in levels]
    if missing:
        return Ruling("INCONCLUSIVE", "P4.2.1", "; ".join(missing))
    if path_ran is None:
        return Ruling("INCONCLUSIVE", "P7.3", "nothing shows that the new path ran")
    gains = {
        one: ((parent[one] - b1[one]) / parent[one], (parent[one] - b2[one]) / parent[one])
        for one in levels
    }
    middle = {one: sum(pair) / 2 for one, pair in gains.items()}
    worse = [one for one in levels if middle[one] < -thresholds[one]]
    worse += [one for one in levels if parent[one] <= limits[one] < tpot(b1[one], b2[one])]
    if worse:
        return Ruling("FAIL", "P4.2.2", f"worse: {', '.join(worse)}")
    aims = [one for one in levels if one in targets]
    if split := [one for one in aims if min(gains[one]) < 0 < max(gains[one])]:
        return Ruling("INCONCLUSIVE", "P4.2.3", f"gains of opposite sign: {', '.join(split)}")
    better = [one for one in aims if min(gains[one]) > 0]
    if shown := [one for one in better if middle[one] > thresholds[one]]:
        return Ruling("PASS", "P4.2.4", f"over the threshold: {', '.join(shown)}")
    if equal := [one for one in better if middle[one] == thresholds[one]]:
        return Ruling("INCONCLUSIVE", "P4.2.5", f"exactly the threshold: {', '.join(equal)}")
    return Ruling("FAIL", "P4.2.6", "no gain shown on a target level")


def _missing(levels: tuple[str, ...], sources: Mapping[str, Means]) -> list[str]:
    """What is unknown, or impossible because it is not positive."""
    if not levels:
        return ["no level is planned"]
    return [
        f"{level}: {name} is missing"
        for level in levels
        for name, means in sources.items()
        if means.get(level, 0) <= 0
    ]
