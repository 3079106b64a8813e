"""Which implementation did the work: counters per operation and path, kept by each process.

Every choice between implementations counts itself here, fall-backs included, so that a run can
show which one it used.  With `DSV41_PATHS_DIR` set, a process keeps `<pid>.json` there, written
whole and at most once a second.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from dsv41 import envs

_WRITE_EVERY_NS = 1_000_000_000


@dataclass
class _Counters:
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    written_ns: int = 0
    pid: int = 0


_counters = _Counters()
_lock = threading.Lock()


def count(operation: str, path: str, rows: int = 0) -> None:
    """One call of `operation` took `path`, for `rows` rows."""
    key = (operation, path)
    with _lock:
        _counters.calls[key] = _counters.calls.get(key, 0) + 1
        _counters.rows[key] = _counters.rows.get(key, 0) + rows


def add(name: str, value: float) -> None:
    """Add to a named sum; divide by a call count to get a mean."""
    with _lock:
        _counters.sums[name] = _counters.sums.get(name, 0.0) + value


def snapshot() -> dict[str, dict[str, dict[str, int]] | dict[str, float]]:
    """`{"paths": {operation/path: {"calls", "rows"}}, "sums": {name: value}}` of this process."""
    with _lock:
        paths = {
            "/".join(key): {"calls": calls, "rows": _counters.rows[key]}
            for key, calls in sorted(_counters.calls.items())
        }
        return {"paths": paths, "sums": dict(sorted(_counters.sums.items()))}


def reset() -> None:
    """Forget everything counted so far."""
    with _lock:
        _counters.calls.clear()
        _counters.rows.clear()
        _counters.sums.clear()


def publish(now_ns: int | None = None) -> None:
    """Write this process's counters if a directory is set and the last write is old enough."""
    directory = envs.paths_directory()
    if directory is None:
        return
    if _counters.pid != os.getpid():
        # First time in this process, or a fork's child: its own file, at its end too.
        _counters.pid, _counters.written_ns = os.getpid(), 0
        atexit.register(_write, Path(directory))
    now_ns = time.monotonic_ns() if now_ns is None else now_ns
    if _counters.written_ns == 0 or now_ns - _counters.written_ns >= _WRITE_EVERY_NS:
        _counters.written_ns = now_ns
        _write(Path(directory))


def write() -> None:
    """Write this process's counters now, if a directory is set."""
    if (directory := envs.paths_directory()) is not None:
        _write(Path(directory))


def _write(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"{os.getpid()}.json"
    work = target.with_suffix(".tmp")
    work.write_text(json.dumps({"schema": 1, "pid": os.getpid(), **snapshot()}), encoding="utf-8")
    os.replace(work, target)
