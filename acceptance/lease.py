"""One owner operates the devices at a time (P6.9): a lock file that names its owner.

The lock is the kernel's (flock), so it ends with its owner, however that ends; the record in the
file says who it is. A second owner is refused in one line. A record without its lock is stale:
it is explained to the next owner, who gets the lease with a higher fence number.
"""

import fcntl
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from acceptance.canonical import canonical
from acceptance.errors import UsageError
from acceptance.processes import boot_id, is_running, read_process
from acceptance.records import SCHEMA, Record


class LeaseRecord(Record, frozen=True, kw_only=True):
    """What the lock file holds. `fence` grows with each grant: an older one is void."""

    schema: int
    owner: str
    purpose: str
    pid: int
    start_ticks: int
    boot_id: str
    since_utc: str
    fence: int
    is_released: bool


@dataclass(slots=True)
class Lease:
    """A granted lease; leaving its context releases it. `note` explains a stale predecessor."""

    path: Path
    record: LeaseRecord
    note: str | None
    _handle: int | None

    @property
    def fence(self) -> int:
        """This grant's number."""
        return self.record.fence

    def is_valid(self) -> bool:
        """Whether the lock file still is ours: nobody replaced it or was granted it after us."""
        if self._handle is None:
            return False
        try:
            same_file = os.path.samestat(os.fstat(self._handle), self.path.stat())
        except OSError:
            return False
        return same_file and _read(self._handle) == self.record

    def release(self) -> None:
        """Give the lease back; a second call does nothing."""
        if self._handle is None:
            return
        if self.is_valid():
            _write(self._handle, msgspec.structs.replace(self.record, is_released=True))
        os.close(self._handle)
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def acquire(path: Path, owner: str, purpose: str) -> Lease:
    """The lease of what `path` stands for. UsageError, in one line, if another owner has it."""
    handle = _open(path)
    try:
        previous = _read(handle)
        _lock(handle, path, previous)
        # Read again: its owner may have written between the first look and the lock.
        previous = _read(handle)
        if previous is not None and not previous.is_released and _lives(previous):
            raise UsageError(
                f"{path}: {_who(previous)} still runs but holds no lock on the file (a network "
                "file system, or a file that was replaced); end it or give another lease file"
            )
        process = read_process(os.getpid())
        record = LeaseRecord(
            schema=SCHEMA,
            owner=owner,
            purpose=purpose,
            pid=os.getpid(),
            start_ticks=process.start_ticks if process else 0,
            boot_id=boot_id(),
            since_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            fence=(previous.fence if previous else 0) + 1,
            is_released=False,
        )
        _write(handle, record)
    except BaseException:
        os.close(handle)
        raise
    return Lease(path, record, _note(path, previous), handle)


def check_free(path: Path) -> None:
    """UsageError, in the words of `acquire`, if another owner has it now; nothing is written."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _lock(handle, path, _read(handle))
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{path}: can't open the lease file: {error.strerror}") from None


def _lock(handle: int, path: Path, previous: LeaseRecord | None) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = _who(previous) if previous else "an owner that has not written its name yet"
        raise UsageError(
            f"{path}: leased by {who}; wait until it has ended, there is one owner at a time"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: can't be locked: {error.strerror}") from None


def _note(path: Path, previous: LeaseRecord | None) -> str | None:
    if previous is None or previous.is_released:
        return None
    when = "before the last boot" if previous.boot_id != boot_id() else "and runs no more"
    return (
        f"{path}: the lease of {_who(previous)} was never released; that process ended {when}, "
        "so look for what it left running before anything starts"
    )


def _who(record: LeaseRecord) -> str:
    return f"{record.owner} (pid {record.pid}, since {record.since_utc}, for {record.purpose})"


def _lives(record: LeaseRecord) -> bool:
    is_own = record.pid == os.getpid()
    return record.boot_id == boot_id() and is_running(record.pid, record.start_ticks) and not is_own


def _read(handle: int) -> LeaseRecord | None:
    """The record in the file; None for an empty file or one that holds something else."""
    try:
        return msgspec.json.decode(os.pread(handle, 1 << 16, 0), type=LeaseRecord)
    except msgspec.DecodeError:
        return None


def _write(handle: int, record: LeaseRecord) -> None:
    """In place, because the lock is on this very file; a torn record reads as none."""
    data = canonical(record)
    os.ftruncate(handle, 0)
    os.pwrite(handle, data, 0)
    os.fsync(handle)
