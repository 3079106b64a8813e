"""Shared memory of a finished wave -> files, then the record that names them (P6.2).

The bytes go to disk as they came; nothing here looks into them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from acceptance.archive import write_once
from acceptance.canonical import canonical
from acceptance.client.memory import OUTCOMES, Field, Memory, Slot
from acceptance.client.spec import WaveRequest, WaveSpec
from acceptance.records import ClientReport, Request, Wave


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a wave ended. `unfinished` is the outcome of requests that have none."""

    aborted: str | None
    unfinished: Literal["aborted", "client-died"]
    started_utc: str
    report: ClientReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What came for one slot: the bytes, and (t_ns, byte count) of each read."""

    raw: bytes
    reads: tuple[tuple[int, int], ...]


def received(memory: Memory) -> tuple[Received, ...]:
    """Take the log apart by slot. A read that was being written when the client died is left."""
    parts: list[list[memoryview]] = [[] for _ in range(memory.slots)]
    reads: list[list[tuple[int, int]]] = [[] for _ in range(memory.slots)]
    offset = memory.arena_offset
    for index in range(memory.field(Field.READS)):
        read = memory.read(index)
        if read is None:
            break
        t_ns, slot, count = read
        parts[slot].append(memory.bytes_[offset : offset + count])
        reads[slot].append((t_ns, count))
        offset += count
    return tuple(
        Received(raw=b"".join(part), reads=tuple(read))
        for part, read in zip(parts, reads, strict=True)
    )


def store_wave(spec: WaveSpec, memory: Memory, directory: Path, ending: Ending) -> Wave:
    """Write `NAME.request`, `NAME.raw` and `NAME.reads` of every slot, once; returns the record.

    FileExistsError when a name is taken: nothing is overwritten.
    """
    for request, data in zip(spec.requests, received(memory), strict=True):
        write_once(
            directory / spec.file_name(request.slot, "request"), bytes(memory.request(request.slot))
        )
        write_once(directory / spec.file_name(request.slot, "raw"), data.raw)
        write_once(directory / spec.file_name(request.slot, "reads"), canonical(data.reads))
    return Wave(
        kind=spec.kind,
        origin_ns=str(memory.field(Field.ORIGIN)),
        started_utc=ending.started_utc,
        requests=tuple(_record(spec, memory, request, ending) for request in spec.requests),
        client=ending.report,
        aborted=ending.aborted,
    )


def _record(spec: WaveSpec, memory: Memory, request: WaveRequest, ending: Ending) -> Request:
    slot = request.slot
    return Request(
        slot=slot,
        prompt_index=request.prompt_index,
        prompt_sha256=request.prompt_sha256,
        rank=request.rank,
        cache_salt=request.cache_salt,
        start_ns=memory.time(slot, Slot.START),
        connected_ns=memory.time(slot, Slot.CONNECTED),
        sent_ns=memory.time(slot, Slot.SENT),
        outcome=OUTCOMES[memory.get(slot, Slot.OUTCOME)] or ending.unfinished,  # type: ignore[arg-type]
        request=spec.file_name(slot, "request"),
        raw=spec.file_name(slot, "raw"),
        reads=spec.file_name(slot, "reads"),
    )
