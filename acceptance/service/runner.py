"""One service: started from its spec, proved, watched cheaply, stopped, shown to be gone (P6.7)."""

import os
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import httpx
import msgspec

from acceptance import probes, processes
from acceptance.archive import write_record
from acceptance.errors import RunFailure, UsageError
from acceptance.records import SCHEMA, Record
from acceptance.service import orphans, shared_memory
from acceptance.service.identity import (
    Identity,
    Member,
    expected_text,
    interpreter_versions,
    read_identity,
)
from acceptance.service.ready import Readiness, client
from acceptance.service.spec import Command, ServiceSpec, check, environment, expand, free_port
from acceptance.service.tree import Tree

GONE_TIMEOUT_S = 2.0
DEAD_TIMEOUT_S = 0.2
"""How long a service that has ended is waited for, when it is asked all the same."""
LOOK_S = 0.02


class StopRecord(Record, frozen=True, kw_only=True):
    """`stop.json`: how the service ended and the proof that nothing is left of it.

    - `state`: REAPED only if every process, socket and shared segment of it is gone.
    - `how`: what ended it: `SIGTERM`, `SIGKILL` where something did not go on request, `itself`
      where it was dead before. `exit_status` is the server's, negative for a signal.
    - `pids`: every process that was seen of it; `pids_left` run still.
    - `shared_memory_removed`: segments that it left and that were removed here;
      `shared_memory_new`: segments that are new since its start and can't be ascribed to anybody.
    - `stop_ns`: from the request to the proof.
    """

    schema: int
    service_id: str
    state: Literal["REAPED", "NOT_REAPED"]
    how: Literal["SIGTERM", "SIGKILL", "itself"]
    exit_status: int | None
    pids: tuple[Member, ...]
    pids_left: tuple[int, ...]
    port_free: bool
    shared_memory_removed: tuple[str, ...]
    shared_memory_left: tuple[str, ...]
    shared_memory_new: tuple[str, ...]
    stopped_utc: str
    stop_ns: int
    reasons: tuple[str, ...]


class Service:
    """A running service. Made by `start` only; leaving its context stops it."""

    def __init__(
        self, spec: ServiceSpec, command: Command, directory: Path, records: Path | None
    ) -> None:
        self.spec = spec
        self.command = command
        self.directory = directory
        self.log = directory / "server.log"
        self._versions = interpreter_versions(command.argv, command.environment)
        self._segments_before = shared_memory.segments()
        self._segments: set[str] = set()
        self._seen: dict[int, processes.Process] = {}
        self._sockets: set[int] = set()
        self._stopped: StopRecord | None = None
        self._record: Path | None = None
        self._http = client(command.port)
        self._begin_ns = time.monotonic_ns()
        self._tree = Tree(
            command.argv, command.environment, self.log, self.service_id, spec.stop_timeout_s
        )
        try:
            if records is not None:
                self._record = orphans.write(records, self._service_record())
        except BaseException:
            self.stop()
            raise

    @property
    def service_id(self) -> str:
        """Random hexadecimal, one per start."""
        return self.command.service_id

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return self.command.port

    @property
    def pid(self) -> int:
        """Of the server's main process."""
        return self._tree.server.pid if self._tree.server else 0

    @property
    def process_start(self) -> str:
        """Start ticks of the main process, as text."""
        return str(self._tree.server.start_ticks if self._tree.server else 0)

    def alive(self) -> bool:
        """False as soon as the server's main process or the warden has ended; costs one poll."""
        return not self._tree.wait_for_death(0)

    def wait_for_death(self, timeout_s: float) -> bool:
        """Sleep for `timeout_s` seconds at most; True at once when the server has died."""
        return self._tree.wait_for_death(timeout_s)

    def is_healthy(self) -> bool:
        """Whether /health answers 200. One that has ended is not asked: what it left behind may
        still hold the socket, and then answers never."""
        if not self.alive():
            return False
        try:
            return self._http.get("/health").status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def metrics(self) -> tuple[bytes, int]:
        """/metrics as it came, and the cost of that read in ns; read at window edges only."""
        if not self.alive():
            raise RunFailure("P2.4a", "/metrics can't be read: the service has ended")
        begin = time.perf_counter_ns()
        try:
            response = self._http.get("/metrics").raise_for_status()
        except httpx.HTTPError as error:
            raise RunFailure("P2.4a", f"/metrics can't be read: {error}") from None
        return response.content, time.perf_counter_ns() - begin

    def kv_tokens(self) -> tuple[int | None, ...]:
        """KV capacity of each data-parallel engine in tokens, from the log (P2.3)."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            text = ""
        return probes.kv_tokens(text, self.spec.data_parallel_size)

    def identity(self) -> Identity:
        """A proof of the service as it is now; a dead service gives one full of differences."""
        self._look()
        if not self.alive():
            self._http.timeout = httpx.Timeout(DEAD_TIMEOUT_S)
        return read_identity(
            self.spec, self.command, self._tree, self._http, self.log, self._versions
        )

    def expected_identity(self) -> dict[str, str]:
        """What `Identity.as_text` must say: the command, the environment, no difference."""
        return expected_text(self.command)

    def stop(self) -> StopRecord:
        """End the whole tree, prove it, write `stop.json`; a second call gives the same record.

        After an interruption it may be called again and goes on. A disk that is full does not
        keep it from ending the service; the record's reasons then say that it is not stored.
        """
        if self._stopped is None:
            begin_ns = time.monotonic_ns()
            was_alive = self.alive()
            self._look()
            ended = self._tree.stop()
            record = self._prove_gone(ended, was_alive, begin_ns)
            self._http.close()
            try:
                write_record(self.directory / "stop.json", record)
            except OSError as error:
                reasons = (*record.reasons, f"stop.json is not stored: {error}")
                record = msgspec.structs.replace(record, reasons=reasons)
            if self._record and record.state == "REAPED":
                self._record.unlink(missing_ok=True)
            self._stopped = record
        return self._stopped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _wait_ready(self) -> None:
        readiness = Readiness(
            self.spec, self._tree, self.port, self.log, self._http, self._begin_ns
        )
        startup = readiness.wait()
        self._tree.members = tuple(self._tree.processes())
        write_record(self.directory / "startup.json", startup)
        write_record(self.directory / "identity.json", self.identity())

    def _service_record(self) -> orphans.ServiceRecord:
        return orphans.ServiceRecord(
            schema=SCHEMA,
            service_id=self.service_id,
            boot_id=processes.boot_id(),
            started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            owner=orphans.process_id(processes.read_process(os.getpid())),
            warden=orphans.process_id(self._tree.warden),
            server=orphans.process_id(self._tree.server),
            port=self.port,
            argv=self.command.argv,
            directory=str(self.directory),
        )

    def _look(self) -> None:
        """Note what the service holds now: it can't be asked any more once it is dead."""
        for process in self._tree.processes():
            self._seen[process.pid] = process
        pids = list(self._seen)
        self._segments |= shared_memory.held(pids)
        sockets = processes.listening_sockets(self.port)
        owners = processes.socket_owners(sockets, pids)
        self._sockets |= {inode for inode, pids in owners.items() if pids}

    def _prove_gone(
        self, ended: Mapping[str, list[list[int]]], was_alive: bool, begin_ns: int
    ) -> StopRecord:
        pids = {(p.pid, p.start_ticks): p.name for p in self._seen.values()}
        for pid, ticks in (*ended["terminated"], *ended["killed"], *ended["left"]):
            pids.setdefault((pid, ticks), "")
        port_free = self._wait_port_free()
        left = sorted(pid for pid, ticks in pids if processes.is_running(pid, ticks))
        left = sorted({*left, *(p.pid for p in self._tree.processes())})
        new = shared_memory.segments() - self._segments_before
        ours = (self._segments | shared_memory.named_for(new, (pid for pid, _ in pids))) & new
        removed, kept = shared_memory.remove(ours) if not left else ((), tuple(sorted(ours)))
        reasons = [f"process {pid} still runs" for pid in left]
        reasons += [] if port_free else [f"port {self.port} is still listened on by the service"]
        reasons += [f"/dev/shm/{name} is still there" for name in kept]
        return StopRecord(
            schema=SCHEMA,
            service_id=self.service_id,
            state="NOT_REAPED" if reasons else "REAPED",
            how="SIGKILL" if ended["killed"] else "SIGTERM" if was_alive else "itself",
            exit_status=self._tree.exit_status,
            pids=tuple(
                Member(pid=pid, start_ticks=ticks, name=name, is_running=pid in left)
                for (pid, ticks), name in sorted(pids.items())
            ),
            pids_left=tuple(left),
            port_free=port_free,
            shared_memory_removed=removed,
            shared_memory_left=kept,
            shared_memory_new=tuple(sorted(new - ours)),
            stopped_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
            stop_ns=time.monotonic_ns() - begin_ns,
            reasons=tuple(reasons),
        )

    def _wait_port_free(self) -> bool:
        """The sockets of the service listen no more; another's on the same port do not count."""
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while processes.listening_sockets(self.port) & self._sockets:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return True


def start(spec: ServiceSpec, directory: Path, *, records: Path | None = None) -> Service:
    """Start a service and wait until it is proved to answer; its evidence goes to `directory`.

    UsageError, with nothing started, for what can be mended beforehand. RunFailure, in one line,
    if it ends, answers for another or is late. Whatever is raised, the tree is ended before.
    `records`: where running services are put on record, for `find_orphans`.
    """
    check(spec)
    port = spec.port if spec.port is not None else free_port()
    command = Command(
        schema=SCHEMA,
        service_id=secrets.token_hex(8),
        argv=expand(spec, port),
        environment=environment(spec, os.environ),
        directory=str(directory),
        port=port,
        expect=dict(spec.expect),
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_record(directory / "command.json", command)
    except FileExistsError:
        raise UsageError(
            f"{directory}: a service was started for it before; give another directory"
        ) from None
    service = Service(spec, command, directory, records)
    try:
        service._wait_ready()
    except BaseException:
        service.stop()
        raise
    return service
