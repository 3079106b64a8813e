"""Services on record in `runs/.services/`: what an earlier crash left running, and what to do.

A record is written when a server is spawned and removed when it is shown to be gone. Nothing is
ever ended from here, and nothing is looked for by name.
"""

import os
from pathlib import Path

import msgspec

from acceptance import processes
from acceptance.archive import write_record
from acceptance.records import Record
from acceptance.service.tree import survivors


class ProcessId(Record, frozen=True, kw_only=True):
    """A process beyond doubt: start ticks are clock ticks after boot."""

    pid: int
    start_ticks: int


class ServiceRecord(Record, frozen=True, kw_only=True):
    """`<service_id>.json`: who started what, where it listens, where its evidence lies."""

    schema: int
    service_id: str
    boot_id: str
    started_utc: str
    owner: ProcessId
    warden: ProcessId
    server: ProcessId
    port: int
    argv: tuple[str, ...]
    directory: str


class Orphan(Record, frozen=True, kw_only=True):
    """A service whose owner is gone. `running`: what still runs of it, as `pid/ticks command`."""

    record: str
    service_id: str
    running: tuple[str, ...]
    advice: str


def write(records: Path, record: ServiceRecord) -> Path:
    """Put a service on record."""
    path = records / f"{record.service_id}.json"
    write_record(path, record)
    return path


def process_id(process: processes.Process | None) -> ProcessId:
    """How a record names a process; zeros where it was gone before it could be read."""
    if process is None:
        return ProcessId(pid=0, start_ticks=0)
    return ProcessId(pid=process.pid, start_ticks=process.start_ticks)


def find_orphans(records: Path) -> list[Orphan]:
    """Services on record whose owner does not run any more, each with one line of advice."""
    found = []
    for path in sorted(records.glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=ServiceRecord)
        except (OSError, msgspec.DecodeError) as error:
            advice = f"{path}: can't be read ({error}); see whether a server still runs, remove it"
            found.append(Orphan(record=str(path), service_id=path.stem, running=(), advice=advice))
            continue
        if not _is_owned(record):
            found.append(_orphan(path, record))
    return found


def _is_owned(record: ServiceRecord) -> bool:
    return record.boot_id == processes.boot_id() and processes.is_running(
        record.owner.pid, record.owner.start_ticks
    )


def _orphan(path: Path, record: ServiceRecord) -> Orphan:
    running = left_of(record)
    if running:
        pids = " ".join(str(process.pid) for process in running)
        advice = (
            f"service {record.service_id}, started {record.started_utc} on port {record.port}, "
            f"outlived its owner (pid {record.owner.pid}); look at it with `ps -fp {pids}`, end it "
            f"with `kill {pids}` (`kill -9` if it stays), then remove {path}"
        )
    else:
        advice = f"service {record.service_id} is gone, only its record is left; remove {path}"
    return Orphan(
        record=str(path),
        service_id=record.service_id,
        running=tuple(
            f"{p.pid}/{p.start_ticks} {' '.join(processes.command(p.pid) or (p.name,))}"
            for p in running
        ),
        advice=advice,
    )


def left_of(record: ServiceRecord) -> list[processes.Process]:
    """What still runs of a service: its warden, its server, whatever descends from it."""
    if record.boot_id != processes.boot_id():
        return []
    server = processes.Process(
        record.server.pid, 0, record.server.pid, record.server.start_ticks, "?", 0, ""
    )
    members = [(record.warden.pid, record.warden.start_ticks)]
    found = survivors(record.service_id, server, members)
    return [process for process in found if process.pid != os.getpid()]
