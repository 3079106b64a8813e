"""The record of runs: append-only, hash-chained, so that a missing or repeated run shows.

A run is written down when its RunSpec is frozen and once more when it has ended (P6.3). A valid
verdict is final for its candidate: no favourable re-run, no later change of targets (P4.7).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from acceptance.canonical import canonical, sha256
from acceptance.errors import UsageError
from acceptance.protocol import Verdict
from acceptance.records import Record
from acceptance.utc import parse_utc

START = "0" * 64
"""What the first line names as the hash of the line before it."""

FINAL_RULES = ("P4.2.2", "P4.2.3", "P4.2.4", "P4.2.5", "P4.2.6", "P4.4", "P5.4")
"""Rules that judge complete evidence. P4.2.1 and P7.3 say that there was none to judge."""


class Entry(Record, frozen=True, kw_only=True):
    """One line of the record.

    `candidate` is its name, `commit` and `configuration` (a hash) what it is, `targets` its target
    levels. `event`: `started` when the RunSpec was frozen, `ended` with verdict and the archive's
    seal, `retained` when the version became the parent of what follows (P6.8). `verdict` and
    `rule` are those of the scope that was judged first: performance, or accuracy for a run of that
    kind; `overall` is the fold of the planned scopes (P4.8).
    `follows` is the earlier run of the same candidate that left no final verdict, and `fault` what
    was wrong with it; both null for a first run. `previous` is the SHA-256 of the line before.
    """

    schema: int
    number: int
    event: Literal["started", "ended", "retained"]
    kind: Literal["candidate", "final", "calibration", "accuracy"]
    run_id: str
    time_utc: str
    candidate: str
    commit: str
    configuration: str
    targets: tuple[str, ...]
    runspec_sha256: str
    follows: str | None
    fault: str | None
    verdict: Verdict | None
    rule: str | None
    overall: Verdict | None
    seal_sha256: str | None
    previous: str


def append(entry: Entry, lines: Sequence[bytes]) -> bytes:
    """The next line for `entry`; its number and `previous` are set here.

    UsageError where the record so far is damaged, or the entry does not fit it.
    """
    if found := check(lines):
        raise UsageError(f"the record of runs is damaged: {found[0]}")
    line = write_line(entry, lines)
    if found := check([*lines, line]):
        raise UsageError(f"the record of runs refuses {entry.run_id}: {found[0]}")
    return line


def write_line(entry: Entry, lines: Sequence[bytes]) -> bytes:
    """The entry chained to the last line, unchecked. A line ends with a newline."""
    chained = msgspec.structs.replace(entry, number=len(lines) + 1, previous=head(lines))
    return canonical(chained) + b"\n"


def head(lines: Sequence[bytes]) -> str:
    """What the next line will name: bound into a RunSpec or a seal, it keeps the end of the record
    from being cut off unseen."""
    return sha256(lines[-1]) if lines else START


def split(data: bytes) -> tuple[bytes, ...]:
    """The bytes of the record as lines with their newlines; a cut line stays as it is."""
    return tuple(data.splitlines(keepends=True))


def read(lines: Sequence[bytes], source: str) -> tuple[Entry, ...]:
    """The entries of an intact record; UsageError with file and first problem otherwise."""
    if found := check(lines):
        raise UsageError(f"{source}: {found[0]}")
    return tuple(msgspec.json.decode(line, type=Entry) for line in lines)


def check(lines: Sequence[bytes]) -> tuple[str, ...]:
    """Everything that is wrong with a record; empty for an intact one. Never raises.

    A line whose bytes do not decode, that is not canonical, or that is out of the chain ends the
    check: what comes after it proves nothing.
    """
    entries: list[Entry] = []
    previous = START
    for number, line in enumerate(lines, 1):
        try:
            entry = msgspec.json.decode(line, type=Entry)
            is_canonical = canonical(entry) + b"\n" == line
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            return (*_story(entries), f"line {number}: {error}")
        if not is_canonical:
            return (*_story(entries), f"line {number}: not as it was written")
        if entry.schema != 1:
            return (*_story(entries), f"line {number}: schema {entry.schema}; 1 is known here")
        if entry.number != number or entry.previous != previous:
            text = f"line {number}: does not follow the line before; a line was changed or is gone"
            return (*_story(entries), text)
        entries.append(entry)
        previous = sha256(line)
    return tuple(_story(entries))


def _story(entries: Sequence[Entry]) -> list[str]:
    """What does not fit together in a chain that is intact byte by byte."""
    found: list[str] = []
    runs: dict[str, Entry] = {}
    ends: dict[str, Entry] = {}
    for entry in entries:
        place = f"line {entry.number}: {entry.run_id}"
        found += [f"{place}: {text}" for text in _form(entry)]
        try:
            parse_utc(entry.time_utc)
        except ValueError as error:
            found.append(f"{place}: {error}")
        if entry.event == "started":
            if entry.run_id in runs:
                found.append(f"{place}: a run id is used once (P6.3)")
            refused = refusal(entry, entries[: entry.number - 1])
            found += [f"{place}: {refused}"] if refused else []
            runs.setdefault(entry.run_id, entry)
            continue
        begun = runs.get(entry.run_id)
        if begun is None or _claim(begun) != _claim(entry):
            found.append(f"{place}: {entry.event} as what never started")
        if entry.event == "ended":
            if entry.run_id in ends:
                found.append(f"{place}: ended twice")
            ends.setdefault(entry.run_id, entry)
        elif (end := ends.get(entry.run_id)) is None or end.overall is not Verdict.PASS:
            found.append(f"{place}: retained without a PASS (P6.8)")
    return found


def _form(entry: Entry) -> list[str]:
    is_end = entry.event == "ended"
    found = []
    if any(is_end != (one is not None) for one in (entry.verdict, entry.rule, entry.overall)):
        found.append("verdicts and their rule stand where the run ends, and only there")
    if entry.event != "started" and entry.seal_sha256 is None:
        found.append("an archive has a seal")
    if (entry.follows is None) != (not entry.fault):
        found.append("a repeated run names the earlier run and its fault (P6.3)")
    return found


def _claim(entry: Entry) -> tuple[object, ...]:
    return (
        entry.kind,
        entry.candidate,
        entry.commit,
        entry.configuration,
        entry.targets,
        entry.runspec_sha256,
    )


def is_final(entry: Entry) -> bool:
    """P4.7: the line ends a run with a valid verdict. INCONCLUSIVE by P4.2.3 or P4.2.5 is one."""
    if entry.event != "ended" or entry.rule not in FINAL_RULES:
        return False
    by_evidence = entry.rule in ("P4.4", "P5.4") and entry.verdict is Verdict.INCONCLUSIVE
    return entry.verdict is not Verdict.NOT_RUN and not by_evidence


def refusal(claim: Entry, entries: Iterable[Entry]) -> str | None:
    """Why a run may not start, or None (P4.7, P5.4). Calibrations and final runs may be repeated;
    their records say how often they were."""
    if claim.kind in ("calibration", "final"):
        return None
    open_run: Entry | None = None
    for entry in entries:
        if entry.kind != claim.kind or entry.event == "retained":
            continue
        is_same = (entry.commit, entry.configuration) == (claim.commit, claim.configuration)
        if is_final(entry) and is_same:
            return (
                f"{entry.run_id} judged this commit and configuration: {entry.verdict} "
                f"({entry.rule}); a valid verdict is final (P4.7)"
            )
        if is_final(entry) and entry.candidate == claim.candidate:
            return (
                f"{entry.run_id} judged {claim.candidate}: {entry.verdict} ({entry.rule}); a new "
                "try is a new candidate with its own name (P4.7)"
            )
        if entry.candidate == claim.candidate:
            open_run = entry
    wanted = open_run.run_id if open_run else None
    if claim.follows != wanted:
        return f"must follow {wanted or 'no run'}, not {claim.follows or 'no run'} (P6.3)"
    return None


def open_runs(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Runs that started and never ended: killed, lost, or still at work."""
    runs: dict[str, bool] = {}
    for entry in entries:
        if entry.event == "started":
            runs.setdefault(entry.run_id, True)
        elif entry.event == "ended":
            runs[entry.run_id] = False
    return tuple(run for run, is_open in runs.items() if is_open)


def compare(entries: Iterable[Entry], seals: Mapping[str, str | None]) -> tuple[str, ...]:
    """The record against the archives that are there: run id -> SHA-256 of its seal, None for an
    unsealed one. A run without an archive, or an archive without a run, shows."""
    found = []
    known: dict[str, str | None] = {}
    for entry in entries:
        known[entry.run_id] = entry.seal_sha256 or known.get(entry.run_id)
    for run, seal in known.items():
        if run not in seals:
            found.append(f"{run}: on record, but its archive is gone")
        elif seal is not None and seals[run] != seal:
            found.append(f"{run}: its archive is not the one on record")
    found += [f"{run}: an archive that is not on record" for run in seals if run not in known]
    return tuple(found)


def direct_parent(entries: Iterable[Entry]) -> Entry | None:
    """P6.8: the version that was retained last; None before the first."""
    retained = [entry for entry in entries if entry.event == "retained"]
    return retained[-1] if retained else None


def tries(entries: Iterable[Entry]) -> int:
    """How many candidates were judged with a valid verdict: each is one more chance of a false
    PASS."""
    return len({e.candidate for e in entries if e.kind == "candidate" and is_final(e)})
