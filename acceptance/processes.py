"""What Linux says of processes: /proc -> who runs, who descends from whom, who owns a port.

Standard library only: the warden of a service stands on it and must start in no time. A process
is named by (pid, start ticks), because a pid alone is used again.
"""

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
GONE = "ZX"
"""States of a process that runs no more: waiting to be reaped, or dead."""

_LISTEN = "0A"


class Process(NamedTuple):
    """/proc/PID/stat. `start_ticks`: clock ticks after boot at which the process started."""

    pid: int
    ppid: int
    session: int
    start_ticks: int
    state: str
    threads: int
    name: str

    @property
    def is_running(self) -> bool:
        """A main thread that has ended looks like a zombie while others still run."""
        return self.state not in GONE or self.threads > 1


def read_process(pid: int) -> Process | None:
    """The process as it is now; None if there is none."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may itself hold blanks and parentheses.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Process(
        pid=pid,
        ppid=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        state=fields[0],
        threads=int(fields[17]),
        name=head.partition("(")[2],
    )


def all_processes() -> list[Process]:
    """Every process that this one can see."""
    found = (read_process(int(name)) for name in os.listdir(PROC) if name.isdigit())
    return [process for process in found if process is not None]


def descendants(pid: int) -> list[Process]:
    """Children of `pid`, their children and so on; without `pid` itself, zombies included."""
    children: dict[int, list[Process]] = {}
    for process in all_processes():
        children.setdefault(process.ppid, []).append(process)
    found: list[Process] = []
    queue = list(children.get(pid, ()))
    while queue:
        process = queue.pop()
        found.append(process)
        queue += children.get(process.pid, ())
    return sorted(found)


def is_running(pid: int, start_ticks: int) -> bool:
    """Whether this very process runs still; another with the same pid does not count."""
    process = read_process(pid)
    return process is not None and process.start_ticks == start_ticks and process.is_running


def send_signal(process: Process, number: int) -> bool:
    """Signal this very process; False if it is gone. A new owner of the pid is not touched."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):
        # A kernel before 5.3, or a Python built on one, has no such call: a small race is left.
        if not is_running(process.pid, process.start_ticks):
            return False
        return _kill(process.pid, number)
    try:
        if not is_running(process.pid, process.start_ticks):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def boot_id() -> str:
    """Changes with each boot: start ticks of two boots can't be compared."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def command(pid: int) -> tuple[str, ...] | None:
    """Arguments of the process; None if it is gone or not ours to read."""
    data = _read(pid, "cmdline")
    if data is None:
        return None
    # A process may overwrite its arguments with a title, padded with NUL or blanks.
    return tuple(part.decode(errors="replace") for part in data.rstrip(b"\0 ").split(b"\0"))


def environment(pid: int) -> dict[str, str] | None:
    """Environment that the process was started with; None if it is gone or not ours to read."""
    data = _read(pid, "environ")
    if data is None:
        return None
    pairs = (part.decode(errors="surrogateescape").partition("=") for part in data.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def _read(pid: int, name: str) -> bytes | None:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return None


def listening_sockets(port: int) -> set[int]:
    """Inodes of all sockets that listen on this TCP port, whatever their address.

    There may be several: with SO_REUSEPORT two servers share one port without an error.
    """
    found = set()
    for name in ("net/tcp", "net/tcp6"):
        try:
            lines = (PROC / "self" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(int(fields[9]))
    return found


def socket_owners(inodes: set[int], pids: Iterable[int]) -> dict[int, set[int]]:
    """For each socket the pids, of those asked about, that hold it open."""
    owners: dict[int, set[int]] = {inode: set() for inode in inodes}
    names = {f"socket:[{inode}]": inode for inode in inodes}
    for pid in pids:
        for target in open_files(pid):
            if target in names:
                owners[names[target]].add(pid)
    return owners


def open_files(pid: int) -> list[str]:
    """Where the descriptors of the process point to; empty if it is gone or not ours to read."""
    found = []
    try:
        descriptors = os.listdir(PROC / str(pid) / "fd")
    except OSError:
        return []
    for descriptor in descriptors:
        try:
            found.append(os.readlink(PROC / str(pid) / "fd" / descriptor))
        except OSError:
            continue
    return found


def mapped_files(pid: int) -> set[str]:
    """Paths that the process has mapped into its memory; deleted ones end in ` (deleted)`."""
    data = _read(pid, "maps") or b""
    lines = (line.split(maxsplit=5) for line in data.decode(errors="replace").splitlines())
    return {fields[5] for fields in lines if len(fields) == 6 and fields[5].startswith("/")}
