"""Shared memory of a running wave -> what a live view shows. Good for that and for nothing else."""

import re
from dataclasses import dataclass

from acceptance.client.memory import OUTCOMES, Field, Memory, Slot

_TOKEN_IDS = re.compile(rb'"token_ids": ?\[([0-9, ]+)\]')


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProgress:
    """One request as it stands. Times are ns after the origin.

    state: "waiting", "connecting", "sending", "prefill" (nothing generated yet), "decode", or the
        outcome. tokens: IDs seen so far, good for a live view and for nothing else.
    """

    slot: int
    state: str
    bytes: int
    reads: int
    tokens: int
    start_ns: int | None
    first_ns: int | None
    newest_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A wave as it stands. `elapsed_ns` is None before the barrier; `alive` is the process."""

    slots: tuple[SlotProgress, ...]
    elapsed_ns: int | None
    alive: bool
    done: bool


class _Watch:
    """What the live view has seen of one slot."""

    def __init__(self) -> None:
        self.reads = 0
        self.bytes = 0
        self.tokens = 0
        self.first_ns: int | None = None
        self.newest_ns: int | None = None
        self.rest = b""

    def feed(self, t_ns: int, data: bytes) -> None:
        self.reads += 1
        self.bytes += len(data)
        self.newest_ns = t_ns
        lines, newline, self.rest = (self.rest + data).rpartition(b"\n")
        if newline:
            for ids in _TOKEN_IDS.findall(lines):
                self.tokens += ids.count(b",") + 1
        if self.tokens and self.first_ns is None:
            self.first_ns = t_ns


class LiveView:
    """Follows the log of a memory: every look reads only what came since the last one."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.watches = [_Watch() for _ in range(memory.slots)]
        self.reads = 0
        self.offset = memory.arena_offset

    def slots(self) -> tuple[SlotProgress, ...]:
        """Every request as it stands now."""
        self._catch_up()
        return tuple(self._slot(slot) for slot in range(self.memory.slots))

    def _catch_up(self) -> None:
        for index in range(self.reads, self.memory.field(Field.READS)):
            read = self.memory.read(index)
            if read is None:
                break
            t_ns, slot, count = read
            end = self.offset + count
            self.watches[slot].feed(t_ns, bytes(self.memory.bytes_[self.offset : end]))
            self.offset = end
            self.reads = index + 1

    def _slot(self, slot: int) -> SlotProgress:
        watch = self.watches[slot]
        return SlotProgress(
            slot=slot,
            state=_state(self.memory, slot, watch.tokens),
            bytes=watch.bytes,
            reads=watch.reads,
            tokens=watch.tokens,
            start_ns=self.memory.time(slot, Slot.START),
            first_ns=watch.first_ns,
            newest_ns=watch.newest_ns,
        )


def _state(memory: Memory, slot: int, tokens: int) -> str:
    outcome = OUTCOMES[memory.get(slot, Slot.OUTCOME)]
    if outcome:
        return outcome
    if memory.time(slot, Slot.START) is None:
        return "waiting"
    if memory.time(slot, Slot.CONNECTED) is None:
        return "connecting"
    if memory.time(slot, Slot.SENT) is None:
        return "sending"
    return "decode" if tokens else "prefill"
