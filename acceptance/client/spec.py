"""What a wave is to send: values only. Bytes of a request are built here and nowhere else."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PERFORMANCE_PATH = "/v1/completions"
"""P3.5."""

MIB = 1 << 20
_OWN_HEADERS = ("host", "content-type", "content-length", "x-data-parallel-rank", "connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRequest:
    """One request. `prompt_sha256` is that of the canonical JSON list of its token IDs; `rank`
    is the value of `X-data-parallel-rank` (P3.6); `body` the JSON as it goes out."""

    slot: int
    prompt_index: int
    prompt_sha256: str
    rank: int
    cache_salt: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveSpec:
    """A wave, whole. Slots are 0..N-1 in order, and are started in that order.

    concurrency: None sends all at once (P3.6); smaller than N starts the next request when one
        ends (P5.3).
    name: prefix of the stored files, the kind when None.
    tick_ns: period of the ticker that witnesses stalls.
    capacity_bytes, reads_max: room for all responses together. It is address space: what is not
        used costs nothing. A wave that outgrows it is aborted, saying so.
    priority: SCHED_FIFO priority to try for; 0 leaves the scheduler alone.
    """

    kind: Literal["warmup", "measured"]
    host: str
    port: int
    requests: tuple[WaveRequest, ...]
    http_timeout_ns: int
    barrier_timeout_ns: int
    path: str = PERFORMANCE_PATH
    headers: Mapping[str, str] = field(default_factory=dict)
    concurrency: int | None = None
    name: str | None = None
    tick_ns: int = 5_000_000
    capacity_bytes: int = 1024 * MIB
    reads_max: int = 1 << 22
    priority: int = 10

    def __post_init__(self) -> None:
        if not self.requests:
            raise ValueError("a wave needs at least one request")
        if [request.slot for request in self.requests] != list(range(len(self.requests))):
            raise ValueError("slots must be 0..N-1 in order")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError(f"concurrency {self.concurrency}: at least 1")
        for what in ("http_timeout_ns", "barrier_timeout_ns", "tick_ns"):
            if getattr(self, what) <= 0:
                raise ValueError(f"{what} must be positive")

    def request_bytes(self, request: WaveRequest) -> bytes:
        """The bytes that go out for one request of this wave."""
        return http_request(
            host=self.host,
            port=self.port,
            path=self.path,
            headers=self.headers,
            rank=request.rank,
            body=request.body,
        )

    def file_name(self, slot: int, suffix: str) -> str:
        """`measured-03.raw`: the prefix, the slot with two digits or more, the suffix."""
        digits = max(2, len(str(len(self.requests) - 1)))
        return f"{self.name or self.kind}-{slot:0{digits}d}.{suffix}"


def http_request(
    *, host: str, port: int, path: str, rank: int, body: bytes, headers: Mapping[str, str] = {}
) -> bytes:
    """One HTTP/1.1 POST. Our own headers stand first, in this order, then `headers` as given.

    ValueError for a header that is ours, or for one with a line break in it.
    """
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"X-data-parallel-rank: {rank}",
        "Connection: close",
    ]
    for name, value in headers.items():
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"header {name}: set by the client itself")
        lines.append(f"{name}: {value}")
    if any("\r" in line or "\n" in line for line in lines) or " " in path:
        raise ValueError("a path or header with a line break or a space in it can't be sent")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def prompt_sha256(token_ids: list[int]) -> str:
    """SHA-256 of the canonical JSON list: no spaces, decimal integers."""
    return hashlib.sha256(("[" + ",".join(map(str, token_ids)) + "]").encode()).hexdigest()
