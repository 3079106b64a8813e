"""The memory that a wave is written into: shared by descriptor, so it outlives its writer.

The parent makes a memfd, the measuring client maps it. Every byte and stamp is there the moment it
is read, and stays when the client is killed. Nothing is named, so nothing leaks.

    header    32 integers       counters of the whole wave (`Field`)
    slots     8 integers each   times and outcome of one request (`Slot`)
    log       3 integers each   one read: t_ns, slot, byte count (0 = FIN)
    requests  bytes             what is to be sent, back to back
    arena     bytes             what was received, in the order of the log

Integers are unsigned, 64 bits, native. Times are ns after the origin, stored plus one: 0 is
unknown.
"""

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Final

WORD: Final = 8
PAGE: Final = 4096
READ_MAX: Final = 1 << 16
"""Bytes asked for in one recv: the arena keeps this much room at its end."""

GO: Final = b"g"
ABORT: Final = b"a"
"""What the parent says through the control pipe; its end of file says that the parent is gone."""

OUTCOMES: Final = ("", "fin", "timeout", "reset", "refused", "aborted")
"""Words of `Slot.OUTCOME`; index 0 is a request that has not ended."""

ABORTS: Final = (
    "",
    "stopped by its parent",
    "its parent is gone",
    "stopped by a signal",
    "responses outgrew the memory reserved for them",
    "no go within the barrier timeout",
)
"""Words of `Field.ABORT`."""


class Field(IntEnum):
    """Words of the header."""

    ORIGIN = 0
    UTC = 1
    READS = 2
    ARENA = 3
    TICKS = 4
    STALL_MAX = 5
    PASS_MAX = 6
    COLLECTIONS = 7
    BARRIER_WAIT = 8
    ABORT = 9
    DONE = 10


HEADER_WORDS: Final = 32


class Slot(IntEnum):
    """Words of a slot."""

    START = 0
    CONNECTED = 1
    SENT = 2
    OUTCOME = 3
    BYTES = 4
    REQUEST_OFFSET = 5
    REQUEST_SIZE = 6
    END = 7


SLOT_WORDS: Final = 8
LOG_WORDS: Final = 3


class Memory:
    """One mapping of the shared memory, as three views.

    words: memoryview of unsigned 64-bit integers over header, slots and log.
    bytes_: memoryview of bytes over everything.
    """

    def __init__(self, fd: int, *, slots: int, reads_max: int, request_bytes: int) -> None:
        self.fd = fd
        self.slots = slots
        self.reads_max = reads_max
        self.log_word = HEADER_WORDS + SLOT_WORDS * slots
        self.request_offset = _round_up(WORD * (self.log_word + LOG_WORDS * reads_max))
        self.arena_offset = _round_up(self.request_offset + request_bytes)
        self.size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, self.size)
        self.bytes_ = memoryview(self._map)
        self.words = self.bytes_[: self.request_offset].cast("Q")

    @classmethod
    def create(cls, requests: Sequence[bytes], *, capacity_bytes: int, reads_max: int) -> "Memory":
        """A new, empty memory with the requests in it."""
        total = sum(map(len, requests))
        fd = os.memfd_create("wave", os.MFD_CLOEXEC)
        try:
            head = WORD * (HEADER_WORDS + SLOT_WORDS * len(requests) + LOG_WORDS * reads_max)
            os.ftruncate(fd, _round_up(_round_up(head) + total) + _round_up(capacity_bytes))
            memory = cls(fd, slots=len(requests), reads_max=reads_max, request_bytes=total)
        except BaseException:
            os.close(fd)
            raise
        offset = memory.request_offset
        for slot, data in enumerate(requests):
            memory.bytes_[offset : offset + len(data)] = data
            memory.set(slot, Slot.REQUEST_OFFSET, offset)
            memory.set(slot, Slot.REQUEST_SIZE, len(data))
            offset += len(data)
        return memory

    def close(self) -> None:
        """Unmap; the descriptor belongs to whoever opened it. A view that is still held somewhere
        (by the frames of an exception on its way, say) keeps the mapping until it is dropped."""
        with suppress(BufferError):
            self.words.release()
            self.bytes_.release()
            self._map.close()

    def field(self, field: Field) -> int:
        return self.words[field]

    def get(self, slot: int, word: Slot) -> int:
        return self.words[HEADER_WORDS + SLOT_WORDS * slot + word]

    def set(self, slot: int, word: Slot, value: int) -> None:
        self.words[HEADER_WORDS + SLOT_WORDS * slot + word] = value

    def time(self, slot: int, word: Slot) -> int | None:
        """A time of a slot, ns after the origin; None when it never came."""
        value = self.get(slot, word)
        return value - 1 if value else None

    def request(self, slot: int) -> memoryview:
        """The bytes to be sent for a slot."""
        offset = self.get(slot, Slot.REQUEST_OFFSET)
        return self.bytes_[offset : offset + self.get(slot, Slot.REQUEST_SIZE)]

    def read(self, index: int) -> tuple[int, int, int] | None:
        """Read number `index` as (t_ns, slot, byte count); None when it is not written yet."""
        word = self.log_word + LOG_WORDS * index
        t, slot, count = self.words[word : word + LOG_WORDS]
        return (t - 1, slot, count) if t else None

    def count_collection(self, phase: str) -> None:
        """A callback of the garbage collector."""
        if phase == "start":
            self.words[Field.COLLECTIONS] += 1

    def touch(self, arena_bytes: int, reads: int) -> None:
        """Make the pages that will be written first present in this process (no fault later)."""
        spans = (
            (0, WORD * (self.log_word + LOG_WORDS * min(reads, self.reads_max))),
            (self.arena_offset, min(self.arena_offset + arena_bytes, self.size)),
        )
        for begin, end in spans:
            for offset in range(begin, end, PAGE):
                # Written back as it was: the header and the slots hold values already.
                self._map[offset] = self._map[offset]


def _round_up(size: int) -> int:
    return -(-size // PAGE) * PAGE
