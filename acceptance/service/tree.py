"""The starter's end of a warden: spawn a server, hear that it died, end all that it started.

The warden ends the tree when its input ends, so nothing outlives the starter, however that dies.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from acceptance.errors import RunFailure
from acceptance.processes import (
    Process,
    all_processes,
    descendants,
    environment,
    is_running,
    read_process,
)
from acceptance.service.spec import MARKER
from acceptance.settings import ROOT
from acceptance.warden import KILL_TIMEOUT_S, end_all

SPAWN_TIMEOUT_S = 30.0
STOP_MARGIN_S = 10.0


def survivors(
    service_id: str, server: Process | None, members: Iterable[tuple[int, int]]
) -> list[Process]:
    """What runs of a service, by its record alone: its members, its session, its marked heirs.

    Never by name. `members` are (pid, start ticks). A pid is not used again for a process as long
    as a session bears that number, so whoever is in the server's session descends from it.
    """
    known = set(members) | ({(server.pid, server.start_ticks)} if server else set())
    found = {}
    for process in all_processes():
        if process.pid == os.getpid() or not process.is_running:
            continue
        is_of_session = (
            server is not None
            and process.session == server.pid
            and process.start_ticks >= server.start_ticks
        )
        if (
            (process.pid, process.start_ticks) in known
            or is_of_session
            or (environment(process.pid) or {}).get(MARKER) == service_id
        ):
            found[process.pid] = process
            found |= {p.pid: p for p in descendants(process.pid) if p.is_running}
    return sorted(found.values())


class Tree:
    """A server and all that it started, under a warden of its own.

    `server` and `warden` stay known after their end; `exit_status` is that of the server, None
    while it runs or where it is unknown.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        log: Path,
        service_id: str,
        stop_timeout_s: float,
    ) -> None:
        self.service_id = service_id
        self.stop_timeout_s = stop_timeout_s
        self.exit_status: int | None = None
        self.ended: dict[str, Any] | None = None
        self.members: tuple[Process, ...] = ()
        self._has_died = False
        self._is_eof = False
        self._buffer = b""
        self._warden = subprocess.Popen(
            [sys.executable, "-m", "acceptance.warden"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.warden = read_process(self._warden.pid)
        self.server: Process | None = None
        order = {
            "argv": argv,
            "environment": {**environment, MARKER: service_id},
            "cwd": str(ROOT),
            "log": str(log),
            "stop_timeout_s": stop_timeout_s,
        }
        try:
            self._spawn(json.dumps(order).encode() + b"\n", argv[0])
        except BaseException:
            self.stop()
            raise

    def _spawn(self, order: bytes, program: str) -> None:
        self._tell(order)
        deadline = time.monotonic() + SPAWN_TIMEOUT_S
        while self.server is None:
            for event in self._events(deadline - time.monotonic()):
                if event["event"] == "failed":
                    raise RunFailure("P6.7", f"{program} can't be started: {event['error']}")
                if event["event"] == "spawned":
                    ticks = event["start_ticks"] or 0
                    self.server = read_process(event["pid"]) or Process(
                        event["pid"], self._warden.pid, event["pid"], ticks, "X", 0, program
                    )
            if self.server is None and (self._is_eof or time.monotonic() > deadline):
                raise RunFailure("P6.7", f"{program} can't be started: its warden does not answer")

    def _tell(self, data: bytes) -> None:
        stdin = self._warden.stdin
        if stdin is None or stdin.closed:
            return
        try:
            os.write(stdin.fileno(), data)
        except BrokenPipeError:
            self._has_died = True

    def _events(self, timeout_s: float) -> list[dict[str, Any]]:
        """What the warden said, waiting at most `timeout_s` for it; notes a death on the way."""
        stdout = self._warden.stdout
        if self._is_eof or stdout is None:
            return []
        if not select.select([stdout], [], [], max(timeout_s, 0.0))[0]:
            return []
        data = os.read(stdout.fileno(), 65536)
        if not data:
            self._is_eof = self._has_died = True
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        events = [json.loads(line) for line in lines]
        for event in events:
            if event["event"] in ("exited", "stopped"):
                self._has_died = True
                if event["exit_status"] is not None:
                    self.exit_status = event["exit_status"]
            if event["event"] == "stopped":
                self.ended = event
        return events

    def wait_for_death(self, timeout_s: float) -> bool:
        """True as soon as the server or its warden has ended; False after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while not self._has_died:
            self._events(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                break
        return self._has_died

    def processes(self) -> list[Process]:
        """All that runs of the tree now."""
        if is_running(self._warden.pid, self.warden.start_ticks if self.warden else -1):
            return [p for p in descendants(self._warden.pid) if p.is_running]
        return self._survivors()

    def _survivors(self) -> list[Process]:
        members = [(p.pid, p.start_ticks) for p in self.members]
        return survivors(self.service_id, self.server, members)

    def stop(self) -> dict[str, Any]:
        """End the tree and wait for that; may be called again. Keys are those of `end_all`."""
        self._tell(b"stop\n")
        deadline = time.monotonic() + self.stop_timeout_s + KILL_TIMEOUT_S + STOP_MARGIN_S
        while self.ended is None and not self._is_eof and time.monotonic() < deadline:
            self._events(deadline - time.monotonic())
        if self._warden.stdin:
            self._warden.stdin.close()
        if self.ended is None or self._survivors():
            # The warden itself was killed: its work is done here, by the record of the tree.
            ended = end_all(self._survivors, None, self.stop_timeout_s)
            self.ended = {"why": "the warden was gone", "exit_status": None, **ended}
        try:
            self._warden.wait(STOP_MARGIN_S)
        except subprocess.TimeoutExpired:
            self._warden.kill()
            self._warden.wait()
        if self._warden.stdout:
            self._warden.stdout.close()
        self._has_died = self._is_eof = True
        return self.ended
