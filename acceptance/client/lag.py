"""How late the client's stamps are: a wave against a clocked service, and the error it bounds.

Lag of a frame = stamp of the read that completed it - time at which the service handed it to the
kernel, one clock for both. A constant lag shifts TTFT and leaves TPOT alone; what spreads is the
error of TPOT.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from acceptance.canonical import canonical
from acceptance.client.parent import ROOT, run_wave
from acceptance.client.spec import WaveRequest, WaveSpec, prompt_sha256
from acceptance.errors import RunFailure
from acceptance.metrics import parse_reads
from acceptance.protocol import completion_body
from acceptance.records import Wave

_STAMPED = re.compile(rb": t=([0-9]{20})\n")
_SERVER_EXIT_S = 10

Reads = Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Lags of all frames, and for each stream the relative error of its TPOT. All in ns or exact.

    tpot_error_bound_ns: no TPOT over the same number of tokens can be wrong by more, per token:
        (largest lag - smallest lag) / (tokens - 1).
    """

    frames: int
    lag_ns_p50: int
    lag_ns_p99: int
    lag_ns_max: int
    tpot_error_max: Fraction
    tpot_error_bound_ns: Fraction


def lags_of(reads: Reads) -> tuple[list[int], list[int]]:
    """(sent, read) times of each stamped event of one stream, the last one being its end.

    reads: (absolute time, bytes) as they came.
    """
    sent, read, rest = [], [], b""
    for t_ns, data in reads:
        events, mark, rest = (rest + data).rpartition(b"\n\n")
        if mark:
            found = [int(one) for one in _STAMPED.findall(events)]
            sent += found
            read += [t_ns] * len(found)
    return sent, read


def summarise(streams: Sequence[Reads]) -> Lag:
    """ValueError when a stream holds fewer than three stamped events."""
    lags: list[int] = []
    errors: list[Fraction] = []
    tokens = 0
    for reads in streams:
        sent, read = lags_of(reads)
        if len(sent) < 3:
            raise ValueError(f"{len(sent)} stamped events: not the stream of a clocked service")
        lags += [b - a for a, b in zip(sent, read, strict=True)]
        errors.append(abs(Fraction(read[-1] - read[0], sent[-1] - sent[0]) - 1))
        tokens = len(sent) - 1
    lags.sort()
    return Lag(
        frames=len(lags),
        lag_ns_p50=lags[len(lags) // 2],
        lag_ns_p99=lags[len(lags) * 99 // 100],
        lag_ns_max=lags[-1],
        tpot_error_max=max(errors),
        tpot_error_bound_ns=Fraction(lags[-1] - lags[0], tokens - 1),
    )


@contextmanager
def clock_server(streams: int, frames: int, interval_ns: int) -> Iterator[int]:
    """A clocked service on a free port, in a process of its own; gone on the way out."""
    numbers = map(str, (streams, frames, interval_ns))
    process = subprocess.Popen(
        [sys.executable, "-m", "acceptance.client.clock_server", *numbers],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RunFailure("P4.0", "the clocked service did not start")
        yield int(line)
        process.wait(_SERVER_EXIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def clock_spec(port: int, streams: int, frames: int, priority: int) -> WaveSpec:
    """The wave that a clocked service answers."""
    prompts = [[slot, slot + 1] for slot in range(streams)]
    return WaveSpec(
        kind="measured",
        name="clock",
        host="127.0.0.1",
        port=port,
        http_timeout_ns=600 * 10**9,
        barrier_timeout_ns=60 * 10**9,
        priority=priority,
        requests=tuple(
            WaveRequest(
                slot=slot,
                prompt_index=slot,
                prompt_sha256=prompt_sha256(prompt),
                rank=0,
                cache_salt=f"clock-{slot}",
                body=canonical(
                    completion_body(
                        model="clock",
                        prompt=prompt,
                        output_tokens=frames,
                        cache_salt=f"clock-{slot}",
                    )
                ),
            )
            for slot, prompt in enumerate(prompts)
        ),
    )


def measure_lag(
    directory: Path,
    *,
    streams: int = 16,
    frames: int = 40,
    interval_ns: int = 25_000_000,
    priority: int = 10,
) -> tuple[Lag, Wave]:
    """Run one wave of this client against a clocked service; its files go to `directory`.

    RunFailure (P4.0) when a stream did not come whole.
    """
    with clock_server(streams, frames, interval_ns) as port:
        wave = run_wave(clock_spec(port, streams, frames, priority), directory)
    if any(request.outcome != "fin" for request in wave.requests):
        raise RunFailure("P4.0", f"lag of the client unknown: {wave.aborted or 'a stream broke'}")
    return summarise([_stored(directory, wave, slot) for slot in range(streams)]), wave


def _stored(directory: Path, wave: Wave, slot: int) -> list[tuple[int, bytes]]:
    """(absolute time, bytes) of each read of a slot."""
    request = wave.requests[slot]
    raw = (directory / request.raw).read_bytes()
    origin, offset, reads = int(wave.origin_ns), 0, []
    for t_ns, count in parse_reads((directory / request.reads).read_bytes()):
        reads.append((origin + t_ns, raw[offset : offset + count]))
        offset += count
    return reads
