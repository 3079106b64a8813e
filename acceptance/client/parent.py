"""The parent's side of a wave: starts the measuring client, watches it, keeps what it wrote."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from acceptance.client.memory import ABORT, ABORTS, GO, Field, Memory
from acceptance.client.progress import LiveView, Progress
from acceptance.client.spec import WaveSpec
from acceptance.client.store import Ending, store_wave
from acceptance.errors import RunFailure
from acceptance.records import ClientReport, Wave

READY_TIMEOUT_S = 60
ABORT_TIMEOUT_S = 2.0
DRAIN_S = 30
PIPE_READ = 4096
ROOT = Path(__file__).parents[2]


class WaveClient:
    """One wave: `prepare`, `go`, `poll` as often as you like, `finish`. A context manager: on the
    way out the process is gone, whatever happened.

    directory: where `finish` stores the files. In every exit path call `abort(reason)` and then
    `finish()`, so that partial evidence is kept; a `WaveClient` is used once.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.wave: Wave | None = None
        self._spec: WaveSpec | None = None
        self._memory: Memory | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._control = -1
        self._errors: IO[bytes] | None = None
        self._conditions: dict[str, Any] = {}
        self._went: datetime | None = None
        self._abort_reason: str | None = None
        self._view: LiveView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Of the measuring client; None before `prepare`."""
        return self._process.pid if self._process else None

    def prepare(self, spec: WaveSpec) -> None:
        """Start the client and wait until it is ready at the barrier. Nothing is sent yet.

        RunFailure (P3.6) when it does not become ready, with what it said.
        """
        if self._spec is not None:
            raise ValueError("a WaveClient is used once")
        self._spec = spec
        family, address = _resolve(spec.host, spec.port)
        requests = [spec.request_bytes(request) for request in spec.requests]
        self._memory = Memory.create(
            requests, capacity_bytes=spec.capacity_bytes, reads_max=spec.reads_max
        )
        self._view = LiveView(self._memory)
        setup = {
            "slots": len(requests),
            "reads_max": spec.reads_max,
            "request_bytes": sum(map(len, requests)),
            "family": int(family),
            "address": address,
            "concurrency": min(spec.concurrency or len(requests), len(requests)),
            "http_timeout_ns": spec.http_timeout_ns,
            "barrier_timeout_ns": spec.barrier_timeout_ns,
            "tick_ns": spec.tick_ns,
            "priority": spec.priority,
        }
        status = self._spawn(self._memory.fd, json.dumps(setup).encode())
        try:
            self._conditions = self._await_ready(status)
        finally:
            os.close(status)

    def go(self) -> None:
        """Open the barrier. The origin of the wave's times is taken by the client."""
        self._went = datetime.now(UTC)
        self._tell(GO)

    def poll(self) -> Progress:
        """Where the wave stands: reads the shared memory, never the client."""
        memory, process = self._open()
        assert self._view is not None
        is_done = process.poll() is not None
        origin = memory.field(Field.ORIGIN)
        return Progress(
            slots=self._view.slots(),
            elapsed_ns=time.perf_counter_ns() - origin if origin else None,
            alive=not is_done,
            done=is_done,
        )

    def abort(self, reason: str) -> None:
        """Stop the wave: unfinished requests end as `aborted`. Returns once the client is gone."""
        if self._process is None or self._process.poll() is not None:
            return
        self._abort_reason = reason
        self._tell(ABORT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ABORT_TIMEOUT_S)
        self._kill()

    def finish(self) -> Wave:
        """Wait for the end of the wave, store its files, and only then say what they are.

        A client that died, or that outlived every timeout, leaves its unfinished requests as
        `client-died`; what they had received is kept. OSError when the files can't be written.
        """
        if self.wave is not None:
            return self.wave
        memory, process = self._open()
        status = self._wait(process)
        assert self._spec is not None
        ending = Ending(
            aborted=self._why(memory, status),
            unfinished="aborted" if self._abort_reason else "client-died",
            started_utc=self._started(memory),
            report=self._report(memory),
        )
        self.wave = store_wave(self._spec, memory, self.directory, ending)
        return self.wave

    def close(self) -> None:
        """End the process, if any, and give the memory back."""
        self._kill()
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        if self._errors is not None:
            self._errors.close()
            self._errors = None
        if self._memory is not None:
            fd, memory = self._memory.fd, self._memory
            self._memory = None
            memory.close()
            os.close(fd)

    def _spawn(self, memory_fd: int, setup: bytes) -> int:
        control_read, self._control = os.pipe()
        status_read, status_write = os.pipe()
        inherited = (memory_fd, control_read, status_write)
        self._errors = os.fdopen(os.memfd_create("client-stderr", os.MFD_CLOEXEC), "w+b")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "acceptance.client.wave", *map(str, inherited)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=inherited,
                # A group of its own: Ctrl-C reaches the parent, which decides.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": _python_path()},
            )
        except BaseException:
            os.close(status_read)
            raise
        finally:
            os.close(control_read)
            os.close(status_write)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(setup)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        return status_read

    def _await_ready(self, status: int) -> dict[str, Any]:
        deadline = time.monotonic() + READY_TIMEOUT_S
        said = b""
        poll = select.poll()
        poll.register(status, select.POLLIN)
        while not said.endswith(b"\n"):
            left_ms = max(deadline - time.monotonic(), 0) * 1000
            more = os.read(status, PIPE_READ) if poll.poll(left_ms) else b""
            if not more:
                self._kill()
                reason = f"not ready within {READY_TIMEOUT_S} s, or gone: {self._last_words()}"
                raise RunFailure("P3.6", f"the measuring client was {reason}")
            said += more
        conditions: dict[str, Any] = json.loads(said)
        return conditions

    def _last_words(self) -> str:
        if self._errors is None:
            return "it said nothing"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _open(self) -> tuple[Memory, subprocess.Popen[bytes]]:
        if self._memory is None or self._process is None:
            raise ValueError("the wave was not prepared, or is closed")
        return self._memory, self._process

    def _tell(self, word: bytes) -> None:
        # A client that is gone can't be told; `finish` says what became of it.
        with suppress(BrokenPipeError):
            os.write(self._control, word)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Exit status of the client, at the latest when every request must have timed out."""
        assert self._spec is not None
        turns = -(-len(self._spec.requests) // (self._spec.concurrency or len(self._spec.requests)))
        seconds = self._spec.barrier_timeout_ns / 1e9 + turns * self._spec.http_timeout_ns / 1e9
        try:
            return process.wait(seconds + DRAIN_S)
        except subprocess.TimeoutExpired:
            self._kill()
            return process.wait()

    def _why(self, memory: Memory, status: int) -> str | None:
        """Why the wave did not run to its end by itself; None when it did."""
        if memory.field(Field.DONE) and not memory.field(Field.ABORT):
            return None
        if self._abort_reason is not None:
            return self._abort_reason
        if memory.field(Field.ABORT):
            return ABORTS[memory.field(Field.ABORT)]
        if status < 0:
            return f"the measuring client was killed by {signal.Signals(-status).name}"
        return f"the measuring client ended with status {status}: {self._last_words()}"

    def _started(self, memory: Memory) -> str:
        ns = memory.field(Field.UTC)
        when = datetime.fromtimestamp(ns / 1e9, UTC) if ns else self._went or datetime.now(UTC)
        return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _report(self, memory: Memory) -> ClientReport | None:
        if not self._conditions:
            return None
        assert self._spec is not None
        return ClientReport(
            pid=self._conditions["pid"],
            scheduler=self._conditions["scheduler"],
            nice=self._conditions["nice"],
            affinity=tuple(self._conditions["affinity"]),
            gc_collections=memory.field(Field.COLLECTIONS),
            ticks=memory.field(Field.TICKS),
            tick_ns=self._spec.tick_ns,
            stall_ns_max=memory.field(Field.STALL_MAX),
            read_ns_max=memory.field(Field.PASS_MAX),
            barrier_wait_ns=memory.field(Field.BARRIER_WAIT),
        )

    def _kill(self) -> None:
        """By pid, and only what we started; it has no children."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def run_wave(
    spec: WaveSpec,
    directory: Path,
    watch: Callable[[Progress], None] | None = None,
    interval_s: float = 0.25,
) -> Wave:
    """Prepare, go, watch, finish. An exception in between (Ctrl-C too) aborts the wave, stores what
    there is, and goes on its way; the wave is then its attribute `wave`."""
    with WaveClient(directory) as client:
        client.prepare(spec)
        try:
            client.go()
            while not (progress := client.poll()).done:
                if watch is not None:
                    watch(progress)
                time.sleep(interval_s)
            if watch is not None:
                watch(client.poll())
        except BaseException as error:
            client.abort(f"interrupted: {type(error).__name__}")
            error.wave = client.finish()  # type: ignore[attr-defined]
            raise
        return client.finish()


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Address of the service, looked up before the barrier."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise RunFailure("P3.6", f"{host}:{port}: {error.strerror}") from None
    return found[0], found[4]


def _python_path() -> str:
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(ROOT), given] if given else [str(ROOT)])
