"""A parent's existing rounds -> P(C), or why there is none (P4.2, P4.2.1).

Which rounds count is frozen before the first request, by run, path and hash; it is never chosen by
the candidate's result, and no older version takes the place of a missing one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from acceptance.exact import decimal, median, parse
from acceptance.judgement import Obstacle
from acceptance.records import Record
from acceptance.utc import parse_utc

NS_PER_H = 3_600_000_000_000

COMPARABLE = (
    "profile",
    "rounds",
    "machine",
    "configuration",
    "weights",
    "inputs",
    "client",
)
"""What must be equal for two runs to be comparable (P3.1: `rounds`, for one)."""


class ParentRound(Record, frozen=True, kw_only=True):
    """One round of the direct parent. `tpot_ns` maps a level to "n/d" ns per token, null unknown;
    `environment` maps each name of COMPARABLE to a text or hash; `obstacle`: why not complete."""

    version: str
    run_id: str
    round: str
    path: str
    sha256: str
    ended_utc: str
    environment: dict[str, str | None]
    tpot_ns: dict[str, str | None]
    obstacle: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """P(C) in ns per token (None: unknown), what is in its way, and what must be disclosed."""

    parent_ns: dict[str, Fraction | None]
    obstacles: tuple[Obstacle, ...]
    disclosure: str


def reference(
    *,
    rounds: Sequence[ParentRound],
    version: str,
    environment: Mapping[str, str | None],
    levels: Sequence[str],
    started_utc: str,
) -> Reference:
    """P(C) = median of the round means of all frozen rounds.

    `version` is the direct parent's commit, `environment` the candidate's, `started_utc` the
    candidate's start, read by `utc.parse_utc`. One round that can't be used is an obstacle; it is
    not left out, because leaving out is choosing.
    """
    obstacles = []
    if not rounds:
        obstacles.append(_obstacle(None, "the parent has no round on record; measure it first"))
    for one in rounds:
        name = f"parent {one.run_id} {one.round}"
        if one.version != version:
            obstacles.append(_obstacle(None, f"{name} is of {one.version}, not of {version}"))
        if one.obstacle is not None:
            obstacles.append(_obstacle(None, f"{name}: {one.obstacle}"))
        obstacles += [
            _obstacle(None, f"{name}: {text}") for text in differences(one.environment, environment)
        ]
    names = [(one.run_id, one.round) for one in rounds]
    if len(set(names)) < len(names):
        obstacles.append(_obstacle(None, "a round of the parent is listed twice"))
    parent_ns: dict[str, Fraction | None] = {}
    for level in levels:
        times = [_time(one.tpot_ns.get(level)) for one in rounds]
        known = [time for time in times if time is not None]
        parent_ns[level] = median(known) if known and len(known) == len(times) else None
        if rounds and parent_ns[level] is None:
            obstacles.append(_obstacle(level, "a round of the parent has no mean TPOT"))
    return Reference(
        parent_ns=parent_ns,
        obstacles=tuple(obstacles),
        disclosure=_disclosure(rounds, started_utc),
    )


def differences(
    parent: Mapping[str, str | None], candidate: Mapping[str, str | None]
) -> tuple[str, ...]:
    """Why two environments are not comparable; what is unknown can't be compared either."""
    found = []
    for name in COMPARABLE:
        one, two = parent.get(name), candidate.get(name)
        if one is None or two is None:
            found.append(f"{name} is unknown")
        elif one != two:
            found.append(f"{name} was {one[:40]}, now {two[:40]}")
    return tuple(found)


def _obstacle(level: str | None, reason: str) -> Obstacle:
    return Obstacle(rule="P4.2.1", level=level, reason=reason)


def _time(text: str | None) -> Fraction | None:
    """A usable time, or None: unknown, malformed or not positive."""
    try:
        time = parse(text) if text is not None else None
    except ValueError:
        return None
    return time if time is not None and time > 0 else None


def _disclosure(rounds: Sequence[ParentRound], started_utc: str) -> str:
    """P4.2: old controls carry their age and what they can't show."""
    ages = [_hours(one.ended_utc, started_utc) for one in rounds]
    if not ages:
        return "no parent round"
    if None in ages:
        return "the time between the parent's rounds and the candidate's is unknown"
    known = [age for age in ages if age is not None]
    first, last = decimal(max(known), 1), decimal(min(known), 1)
    return (
        f"{len(known)} parent rounds, measured {last} to {first} h before the candidate; what "
        "changed on the host in between is not shown by them"
    )


def _hours(earlier: str, later: str) -> Fraction | None:
    try:
        return Fraction(parse_utc(later) - parse_utc(earlier), NS_PER_H)
    except ValueError:
        return None
