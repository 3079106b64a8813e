"""The warden: a small process that starts one server and ends its whole tree in every case.

It takes one JSON order on its standard input, then stays as the tree's subreaper: whatever the
server forks, however often, stays below the warden. A line `stop`, the end of its input (which is
what the death of its starter looks like, also by SIGKILL) or SIGTERM make it end the tree: SIGTERM
to the server, a wait, SIGTERM to what outlived it, SIGKILL to the rest, until none is left. It
tells what happened as JSON lines on its standard output. `python -m acceptance.warden`
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from acceptance.processes import Process, descendants, read_process, send_signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LOOK_S = 0.02
ORPHAN_GRACE_S = 1.0
"""How long what outlives the server may take to end by itself before it is asked to."""

KILL_TIMEOUT_S = 30.0
"""How long after SIGKILL a process that the kernel can't end (state D) is waited for."""

Find = Callable[[], list[Process]]


def prctl(option: int, value: int) -> None:
    """The system call of that name. OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def end_all(find: Find, first: Process | None, stop_timeout_s: float) -> dict[str, Any]:
    """End what `find` finds, `first` before the others; `find` must reap what it can.

    Returns the pids that took SIGTERM and SIGKILL and those that are left.
    """
    asked: dict[int, Process] = {}
    killed: dict[int, Process] = {}

    def ask(processes: list[Process]) -> None:
        for process in processes:
            if process.pid not in asked and send_signal(process, signal.SIGTERM):
                asked[process.pid] = process

    begin = time.monotonic()
    first_gone: float | None = None
    while (left := find()) and time.monotonic() - begin < stop_timeout_s:
        if first is not None and first.pid in {process.pid for process in left}:
            ask([first])
        else:
            first_gone = first_gone or time.monotonic()
            if first is None or time.monotonic() - first_gone > ORPHAN_GRACE_S:
                ask(left)
        time.sleep(LOOK_S)
    begin = time.monotonic()
    while (left := find()) and time.monotonic() - begin < KILL_TIMEOUT_S:
        for process in left:
            if send_signal(process, signal.SIGKILL):
                killed[process.pid] = process
        time.sleep(LOOK_S)
    return {
        "terminated": [[p.pid, p.start_ticks] for p in asked.values()],
        "killed": [[p.pid, p.start_ticks] for p in killed.values()],
        "left": [[p.pid, p.start_ticks] for p in left],
    }


class Warden:
    """One server and all that it started. `statuses`: wait status of each pid that was reaped."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.server: Process | None = None
        self.statuses: dict[int, int] = {}

    def spawn(self) -> None:
        """Start the server in a session of its own. OSError where it can't be started."""
        with open(self.order["log"], "xb") as log:
            child = subprocess.Popen(
                self.order["argv"],
                env=self.order["environment"],
                cwd=self.order["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        self.server = read_process(child.pid)
        # The tree is reaped below, by whoever comes: Popen must not wait for it as well.
        child.returncode = 0
        say(event="spawned", pid=child.pid, start_ticks=self.server and self.server.start_ticks)

    def reap(self) -> None:
        """Take in all that has ended; the server's own end is told at once."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.statuses[pid] = os.waitstatus_to_exitcode(status)
            if self.server and pid == self.server.pid:
                say(event="exited", pid=pid, exit_status=self.statuses[pid])

    def find(self) -> list[Process]:
        """What still runs below the warden."""
        self.reap()
        return [process for process in descendants(os.getpid()) if process.is_running]

    def watch(self, wakeup: int) -> str:
        """Sleep until there is a reason to end the tree; says which."""
        pending = b""
        while True:
            ready, _, _ = select.select([0, wakeup], [], [])
            if wakeup in ready:
                signals = os.read(wakeup, 4096)
                if signal.SIGTERM in signals:
                    return "SIGTERM"
                self.reap()
            if 0 in ready:
                data = os.read(0, 4096)
                pending += data
                if not data:
                    return "the starter is gone"
                if b"stop\n" in pending:
                    return "stop"

    def end(self, why: str) -> None:
        """End the tree and tell it."""
        ended = end_all(self.find, self.server, self.order["stop_timeout_s"])
        # The last one may have ended between the reaping and the look.
        self.reap()
        status = self.statuses.get(self.server.pid) if self.server else None
        say(event="stopped", why=why, exit_status=status, **ended)


def say(**event: Any) -> None:
    """One JSON line to the starter, if it still listens."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(event).encode() + b"\n")


def main() -> int:
    """Take the order, start, watch, end."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    # Handlers that do nothing, not SIG_IGN: that would be passed on to the server.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Unbuffered: what follows the order is read from the descriptor itself.
    with open(0, "rb", buffering=0, closefd=False) as orders:
        line = orders.readline()
    if not line:
        return 0
    warden = Warden(json.loads(line))
    try:
        warden.spawn()
    except OSError as error:
        say(event="failed", error=str(error))
        return 1
    try:
        why = warden.watch(read_end)
    except BaseException as error:
        why = f"the warden failed: {error!r}"
    warden.end(why)
    return 0


if __name__ == "__main__":
    sys.exit(main())
