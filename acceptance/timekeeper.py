"""Phases of a run as they begin and end -> lines of `plan/time-ledger.jsonl` (P6.5)."""

import os
import platform
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from acceptance.archive import write_once, write_record
from acceptance.ledger import Category, Span, read_lines, render, summarise, write_line
from acceptance.processes import boot_id
from acceptance.records import SCHEMA

LEDGER = "plan/time-ledger.jsonl"
SUMMARY = "results/time-summary"


class Timekeeper:
    """Appends to one ledger. A phase inside another is its child, and is not added to it."""

    def __init__(self, run_dir: Path, iteration: str) -> None:
        self.run_dir = run_dir
        self.iteration = iteration
        self.clock_id = f"monotonic@{boot_id()}"
        self.open: list[str] = []
        self.count = 0

    @contextmanager
    def phase(
        self,
        category: Category,
        command: str,
        *,
        round_name: str | None = None,
        attempt: str | None = None,
    ) -> Generator[None]:
        """One phase. An exception ends it as `failed`, an interruption as `aborted`."""
        self.count += 1
        span = Span(
            schema=SCHEMA,
            id=f"{self.count:03d}",
            parent=self.open[-1] if self.open else None,
            iteration=self.iteration,
            round=round_name,
            attempt=attempt,
            actor="gate",
            command=command,
            host=platform.node(),
            clock_id=self.clock_id,
            category=category,
            start_utc=_now(),
            end_utc=None,
            duration_ns=None,
            status="open",
            blocked=None,
            evidence=None,
            evidence_sha256=None,
        )
        self._append(span)
        self.open.append(span.id)
        begin_ns = time.monotonic_ns()
        status: Literal["done", "failed", "aborted"] = "aborted"
        try:
            yield
            status = "done"
        except Exception:
            status = "failed"
            raise
        finally:
            self.open.pop()
            took_ns = time.monotonic_ns() - begin_ns
            self._append(
                msgspec.structs.replace(span, end_utc=_now(), duration_ns=took_ns, status=status)
            )

    def _append(self, span: Span) -> None:
        with (self.run_dir / LEDGER).open("ab") as file:
            file.write(write_line(span))
            file.flush()
            os.fsync(file.fileno())

    def summary(self) -> None:
        """Write what the time went into (P6.6), once, from the ledger as it stands on disk."""
        path = self.run_dir / LEDGER
        data = path.read_bytes() if path.exists() else b""
        found = summarise(read_lines(data, LEDGER), self.iteration)
        write_record(self.run_dir / f"{SUMMARY}.json", found)
        write_once(self.run_dir / f"{SUMMARY}.md", render(found).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
