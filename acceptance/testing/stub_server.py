"""A service that does what a script says: the bytes, the order, the end of each connection.

Real sockets on 127.0.0.1, a free port, one thread per connection. Scripts wait for events that a
test sets; nothing here depends on how fast anything is.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until the test sets the event, or the server closes."""

    event: threading.Event


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait some seconds, so that frames come apart. Nothing may depend on how long it takes."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Say no more and keep the connection open until the server closes."""


@dataclass(frozen=True, slots=True)
class Reset:
    """End with a reset instead of a FIN."""


Step = Send | Wait | Pause | Hold | Reset


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it came. `headers` have lower-case names."""

    line: str
    headers: dict[str, str]
    body: bytes
    raw: bytes

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


@dataclass(slots=True)
class StubServer:
    """`script` turns a request into steps; after the last one the connection ends with FIN.

    requests: what came, in the order in which the requests were complete.
    """

    script: Callable[[Received], Iterable[Step]]
    requests: list[Received] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = 0
    _listener: socket.socket | None = None
    _closing: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _connections: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server((self.host, 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        self._spawn(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._connections):
            _shut(connection)
        for thread in self._threads:
            thread.join(10)

    def _spawn(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            received = _receive(connection)
            if received is None:
                return
            self.requests.append(received)
            for step in self.script(received):
                if self._closing.is_set() or not self._do(step, connection):
                    break
        except OSError:
            return  # The client went away: its side of the story is what tests look at.
        finally:
            _shut(connection)
            connection.close()

    def _do(self, step: Step, connection: socket.socket) -> bool:
        """Do one step; False when it is the last."""
        match step:
            case Send(data):
                connection.sendall(data)
            case Wait(event):
                while not event.wait(0.01) and not self._closing.is_set():
                    continue
            case Pause(seconds):
                self._closing.wait(seconds)
            case Hold():
                self._closing.wait()
            case Reset():
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.close()
                return False
        return True


def _receive(connection: socket.socket) -> Received | None:
    """One request with its body; None when the peer went away before it was complete."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(1 << 16)):
            return None
        data += more
    top, _, body = data.partition(b"\r\n\r\n")
    line, *rest = top.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        if not (more := connection.recv(1 << 16)):
            return None
        body += more
    return Received(line=line, headers=headers, body=body, raw=top + b"\r\n\r\n" + body)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # Already closed.
