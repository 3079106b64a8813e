"""The time ledger of an iteration: spans as they were written -> where the time went (P6.5, P6.6).

Parallel spans are taken as a union of intervals; a phase and its children are never added up: the
time of a child is the child's alone. Unknown stays unknown: it is never 0, never a remainder, and a
sum beside it is "at least".
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NamedTuple

import msgspec

from acceptance.canonical import canonical
from acceptance.errors import UsageError
from acceptance.exact import decimal
from acceptance.records import Record
from acceptance.utc import NS_PER_S, parse_utc

Interval = tuple[int, int]
"""Start and end in ns since 1970 UTC."""


class Category(StrEnum):
    """P6.5. `analysis` is a phase of work, not a model's inference time."""

    ANALYSIS = "analysis"
    KNOWLEDGE = "knowledge"
    CODING = "coding"
    BUILD_DEPLOY = "build-deploy"
    DEBUGGING = "debugging"
    COMPONENT_VERIFICATION = "component-verification"
    SERVICE_PREPARE_RECLAIM = "service-prepare-reclaim"
    PERFORMANCE_WARMUP = "performance-warmup"
    PERFORMANCE_MEASURED = "performance-measured"
    ACCURACY = "accuracy"
    RECOMPUTE_REVIEW = "recompute-review"
    ARCHIVE_COMMIT = "archive-commit"
    WAITING_PAUSED = "waiting-paused"
    UNATTRIBUTED = "unattributed"


class Span(Record, frozen=True, kw_only=True):
    """One line of `time-ledger.jsonl`. A phase is written when it begins (status `open`) and once
    more, with the same id, when it ends.

    `parent` is the id of the phase of which this one is a part. `clock_id` names the monotonic
    clock from which `duration_ns` comes (null: there was none). Times are UTC texts, null unknown.
    """

    schema: int
    id: str
    parent: str | None
    iteration: str
    round: str | None
    attempt: str | None
    actor: str
    command: str | None
    host: str
    clock_id: str | None
    category: Category
    start_utc: str | None
    end_utc: str | None
    duration_ns: int | None
    status: Literal["open", "done", "failed", "aborted"]
    blocked: str | None
    evidence: str | None
    evidence_sha256: str | None


class Share(Record, frozen=True, kw_only=True):
    """Time of a group of spans. `known_ns` is the union of those with known bounds, null where no
    span has any; with `unknown` spans beside it, it is a lower bound."""

    spans: int
    known_ns: int | None
    unknown: tuple[str, ...]


class Summary(Record, frozen=True, kw_only=True):
    """`time-summary.json`. `wall` goes from the first start to the last end; `active` is the union
    of all work without pauses. A phase counts with the time that none of its children took."""

    schema: int
    iteration: str
    wall: Share
    active: Share
    paused: Share
    categories: dict[str, Share]
    actors: dict[str, Share]
    commands: dict[str, Share]
    statuses: dict[str, int]
    problems: tuple[str, ...]


CLOCK_TOLERANCE_NS = 1_000_000_000
"""Above this, UTC and the monotonic clock contradict each other: the wall clock was stepped."""


def write_line(span: Span) -> bytes:
    """The span as one line of the ledger."""
    return canonical(span) + b"\n"


def read_lines(data: bytes, source: str) -> tuple[Span, ...]:
    """Lines -> spans. UsageError names file and line; a last line without its end is refused."""
    lines = data.split(b"\n")
    if lines.pop():
        raise UsageError(f"{source}:{len(lines) + 1}: the last line is cut off")
    spans = []
    for number, line in enumerate(lines, 1):
        try:
            span = msgspec.json.decode(line, type=Span)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{source}:{number}: {error}") from None
        if span.schema != 1:
            raise UsageError(f"{source}:{number}: schema {span.schema}; 1 is known here")
        spans.append(span)
    return tuple(spans)


def problems(spans: Sequence[Span]) -> tuple[str, ...]:
    """What contradicts itself in a ledger; empty when nothing does."""
    found = []
    last: dict[str, Span] = {}
    for number, span in enumerate(spans, 1):
        before = last.get(span.id)
        if before is not None and before.status != "open":
            found.append(f"line {number}: {span.id} had ended already")
        if before is not None and _identity(before) != _identity(span):
            found.append(f"line {number}: {span.id} ends as another phase than it began")
        last[span.id] = span
        found += [f"line {number}: {span.id}: {text}" for text in _contradictions(span)]
    if len({span.iteration for span in spans}) > 1:
        found.append("spans of several iterations in one ledger")
    for span in last.values():
        if span.parent is not None and span.parent not in last:
            found.append(f"{span.id}: its phase {span.parent} is not in the ledger")
        if _is_circular(span, last):
            found.append(f"{span.id}: is a part of itself")
    return tuple(found)


def _identity(span: Span) -> tuple[object, ...]:
    return (
        span.parent,
        span.round,
        span.attempt,
        span.actor,
        span.host,
        span.category,
        span.start_utc,
    )


def _contradictions(span: Span) -> list[str]:
    found = []
    times: dict[str, int | None] = {}
    for name, text in (("start", span.start_utc), ("end", span.end_utc)):
        try:
            times[name] = None if text is None else parse_utc(text)
        except ValueError as error:
            found.append(f"{name} is {error}")
            times[name] = None
    start, end = times["start"], times["end"]
    if start is not None and end is not None and end < start:
        found.append("ends before it begins")
    if span.duration_ns is not None and span.duration_ns < 0:
        found.append("has a negative duration")
    if span.duration_ns is not None and span.clock_id is None:
        found.append("has a duration of no clock")
    if span.status == "open" and (end is not None or span.duration_ns is not None):
        found.append("is open and has an end")
    if start is not None and end is not None and span.duration_ns is not None:
        step = end - start - span.duration_ns
        if abs(step) > CLOCK_TOLERANCE_NS:
            found.append(f"the wall clock was stepped by {step} ns")
    if (span.evidence is None) != (span.evidence_sha256 is None):
        found.append("evidence needs both a path and a hash")
    return found


def _is_circular(span: Span, last: dict[str, Span]) -> bool:
    seen = {span.id}
    while span.parent is not None and span.parent in last:
        if span.parent in seen:
            return True
        seen.add(span.parent)
        span = last[span.parent]
    return False


def interval(span: Span) -> Interval | None:
    """(start, end) in ns UTC, or None. With a monotonic duration the end is start + duration: it
    does not move when the wall clock is stepped. An end is never taken from anywhere else."""
    try:
        if span.start_utc is None:
            return None
        start = parse_utc(span.start_utc)
        if span.duration_ns is not None:
            end = start + span.duration_ns
        elif span.end_utc is not None:
            end = parse_utc(span.end_utc)
        else:
            return None
    except ValueError:
        return None
    return (start, end) if end >= start else None


def union_ns(intervals: Iterable[Interval]) -> int:
    """Length of the union of intervals, in ns."""
    return sum(end - start for start, end in _merged(intervals))


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The union as disjoint intervals in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(whole: Interval, parts: Iterable[Interval]) -> list[Interval]:
    """What of an interval no part covers."""
    left, reached = [], whole[0]
    for start, end in _merged(parts):
        if start > reached:
            left.append((reached, min(start, whole[1])))
        reached = max(reached, end)
        if reached >= whole[1]:
            return left
    return [*left, (reached, whole[1])]


def summarise(spans: Sequence[Span], iteration: str) -> Summary:
    """P6.6, from the newest line of every span."""
    newest = {span.id: span for span in spans}
    own = [_Own(span, _own_time(span, newest)) for span in newest.values()]
    pauses = [one for one in own if one.span.category is Category.WAITING_PAUSED]
    work = [one for one in own if one.span.category is not Category.WAITING_PAUSED]
    bounds = [found for span in newest.values() if (found := interval(span)) is not None]
    wall = max(end for _, end in bounds) - min(start for start, _ in bounds) if bounds else None
    return Summary(
        schema=1,
        iteration=iteration,
        wall=Share(
            spans=len(newest),
            known_ns=wall,
            unknown=tuple(id for id, span in newest.items() if interval(span) is None),
        ),
        active=_share(work),
        paused=_share(pauses),
        categories={
            name.value: _share([one for one in own if one.span.category is name])
            for name in Category
        },
        actors=_by(own, [one.span.actor for one in own]),
        commands=_by(own, [one.span.command for one in own]),
        statuses=dict(Counter(span.status for span in newest.values())),
        problems=problems(spans),
    )


class _Own(NamedTuple):
    """A span and the time that is its own; None where that is unknown."""

    span: Span
    time: list[Interval] | None


def _own_time(span: Span, newest: dict[str, Span]) -> list[Interval] | None:
    """The span's time without that of its children. With a child of unknown time the rest is
    unknown as well: it would be a remainder."""
    bounds = interval(span)
    if bounds is None:
        return None
    parts = [interval(one) for one in newest.values() if one.parent == span.id != one.id]
    known = [part for part in parts if part is not None]
    return _without(bounds, known) if len(known) == len(parts) else None


def _by(own: list[_Own], keys: Sequence[str | None]) -> dict[str, Share]:
    names = sorted({key for key in keys if key is not None})
    return {
        name: _share([one for one, key in zip(own, keys, strict=True) if key == name])
        for name in names
    }


def _share(own: list[_Own]) -> Share:
    known = [one.time for one in own if one.time is not None]
    return Share(
        spans=len(own),
        known_ns=union_ns(part for time in known for part in time) if known else None,
        unknown=tuple(one.span.id for one in own if one.time is None),
    )


def render(summary: Summary) -> str:
    """`time-summary.md`. Seconds; "unknown" where nothing is known, ">=" where something is not."""
    lines = [
        f"# Time of {summary.iteration}",
        "",
        "Parallel work is counted once per row (union of intervals), so rows don't add up. A phase",
        "counts without its parts. Unknown is unknown: a `>=` stands beside spans without bounds.",
        "",
        "| what | s | spans | of unknown length |",
        "|---|--:|--:|---|",
        *(
            _row(name, share)
            for name, share in [
                ("wall clock", summary.wall),
                ("active", summary.active),
                ("paused", summary.paused),
                *((f"category {name}", share) for name, share in summary.categories.items()),
                *((f"actor {name}", share) for name, share in summary.actors.items()),
                *((f"command `{name}`", share) for name, share in summary.commands.items()),
            ]
        ),
    ]
    if summary.problems:
        lines += ["", "Contradictions:", *(f"- {text}" for text in summary.problems)]
    return "\n".join(lines) + "\n"


def _row(name: str, share: Share) -> str:
    if share.known_ns is None:
        seconds = "unknown" if share.spans else "not recorded"
    else:
        sign = ">= " if share.unknown else ""
        seconds = sign + decimal(Fraction(share.known_ns, NS_PER_S), 3)
    return f"| {name} | {seconds} | {share.spans} | {', '.join(share.unknown) or '-'} |"
