"""The record of runs on disk: `lineage.jsonl` among the runs, one writer at a time (P6.3, P4.7)."""

import fcntl
import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from acceptance import lineage
from acceptance.errors import UsageError
from acceptance.lineage import Entry
from acceptance.protocol import Verdict
from acceptance.records import SCHEMA

NAME = "lineage.jsonl"


class Register:
    """The lines as they are on disk; made by `opened` or `read`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.lines = list(lineage.split(path.read_bytes()))
        except FileNotFoundError:
            self.lines = []
        except OSError as error:
            raise UsageError(f"{path}: can't be read: {error.strerror}") from None
        self.entries = lineage.read(self.lines, str(path))

    @property
    def head(self) -> str:
        """SHA-256 of the last line: bound into a RunSpec, it keeps the end from being cut off."""
        return lineage.head(self.lines)

    def append(self, entry: Entry) -> None:
        """One more line, on disk when this returns. UsageError where it does not fit."""
        line = lineage.append(entry, self.lines)
        try:
            handle = os.open(
                self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            try:
                os.write(handle, line)
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise UsageError(f"{self.path}: can't be written: {error.strerror}") from None
        self.lines.append(line)
        self.entries = lineage.read(self.lines, str(self.path))


def read(runs: Path) -> Register:
    """The record as it is now. UsageError where it is damaged."""
    return Register(runs / NAME)


@contextmanager
def opened(runs: Path) -> Generator[Register]:
    """The record under its lock, to be read and appended to."""
    path = runs / f".{NAME}.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{path}: can't be opened: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield Register(runs / NAME)
    finally:
        os.close(handle)


def started(
    entries: Iterable[Entry],
    *,
    kind: Literal["candidate", "final", "calibration"],
    run_id: str,
    candidate: str,
    commit: str,
    configuration: str,
    targets: tuple[str, ...],
    runspec_sha256: str,
) -> Entry:
    """The line that a run begins with. UsageError where it may not start (P4.7).

    A candidate that was run before without a final verdict follows that run, with its fault.
    """
    known = tuple(entries)
    before = [e for e in known if kind == "candidate" == e.kind and e.candidate == candidate]
    last = next((e for e in reversed(before) if e.event != "retained"), None)
    fault = None
    if last is not None:
        is_open = last.event == "started"
        fault = "never ended" if is_open else f"{last.verdict} ({last.rule})"
    entry = Entry(
        schema=SCHEMA,
        number=0,
        event="started",
        kind=kind,
        run_id=run_id,
        time_utc=_now(),
        candidate=candidate,
        commit=commit,
        configuration=configuration,
        targets=targets,
        runspec_sha256=runspec_sha256,
        follows=last.run_id if last else None,
        fault=fault,
        verdict=None,
        rule=None,
        overall=None,
        seal_sha256=None,
        previous="",
    )
    if refused := lineage.refusal(entry, known):
        raise UsageError(refused)
    return entry


def ended(start: Entry, *, verdict: Verdict, rule: str, overall: Verdict, seal: str) -> Entry:
    """The line that the same run ends with."""
    return msgspec.structs.replace(
        start,
        event="ended",
        time_utc=_now(),
        verdict=verdict,
        rule=rule,
        overall=overall,
        seal_sha256=seal,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
