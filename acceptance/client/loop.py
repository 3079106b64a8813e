"""The loop of a wave: opens, sends, reads and stamps. It parses nothing and prints nothing.

One thread, raw non-blocking sockets. Whatever can be done before is done before; what remains per
read is one recv into shared memory and three integers beside it.
"""

import errno
import select
import socket
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from acceptance.client.memory import (
    ABORTS,
    HEADER_WORDS,
    LOG_WORDS,
    OUTCOMES,
    READ_MAX,
    SLOT_WORDS,
    Field,
    Memory,
    Slot,
)

FIN = OUTCOMES.index("fin")
TIMEOUT = OUTCOMES.index("timeout")
RESET = OUTCOMES.index("reset")
REFUSED = OUTCOMES.index("refused")
ABORTED = OUTCOMES.index("aborted")

BY_PARENT = ABORTS.index("stopped by its parent")
ORPHANED = ABORTS.index("its parent is gone")
BY_SIGNAL = ABORTS.index("stopped by a signal")
OUTGROWN = ABORTS.index("responses outgrew the memory reserved for them")

_BROKEN = (errno.ECONNRESET, errno.EPIPE)
_BUSY = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINPROGRESS, errno.EINTR)


class Connector:
    """Opens the socket of a slot: everything but connect() is done before the barrier."""

    def __init__(self, family: int, address: tuple[Any, ...], slots: int) -> None:
        self.address = address
        self.family = family
        self.ready = [self._make() for _ in range(slots)]

    def _make(self) -> socket.socket:
        made = socket.socket(self.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def take(self) -> socket.socket:
        """The next socket, not yet connected."""
        return self.ready.pop() if self.ready else self._make()

    def connect(self, taken: socket.socket) -> int:
        """Start connecting: 0 or an errno."""
        return taken.connect_ex(self.address)


class Loop:
    """One wave over the slots of a `Memory`. `run` returns when every slot has an outcome.

    control: descriptor that says "abort" by becoming readable, and that the parent is gone by
        its end of file.
    now: the clock, ns; the origin is its value when `run` begins.
    """

    def __init__(
        self,
        memory: Memory,
        connector: Connector,
        *,
        concurrency: int,
        http_timeout_ns: int,
        tick_ns: int,
        control: int,
        now: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.memory = memory
        self.words = memory.words
        self.connector = connector
        self.concurrency = concurrency
        self.http_timeout_ns = http_timeout_ns
        self.tick_ns = tick_ns
        self.control = control
        self.now = now
        self.signalled = False
        self.poll = select.epoll()
        self.poll.register(control, select.EPOLLIN)
        self.sockets: list[socket.socket | None] = [None] * memory.slots
        self.pending = [memory.request(slot) for slot in range(memory.slots)]
        self.slot_of: dict[int, int] = {}
        self.broken: set[int] = set()
        self.tail = memory.arena_offset
        self.reads = 0
        self.origin = 0
        self.next_slot = 0
        self.open = 0

    def run(self, origin: int) -> None:
        """Run the wave to its end. `origin` is a value of the clock."""
        self.origin = origin
        self.words[Field.ORIGIN] = origin
        self._fill()
        now, poll, words, slot_of = self.now, self.poll.poll, self.words, self.slot_of
        due = now() + self.tick_ns
        while self.open:
            # epoll counts whole milliseconds and rounds up, so the ticker is late by up to one.
            events = poll(max(due - now(), 0) / 1e9)
            begin = now()
            for fd, event in events:
                slot = slot_of.get(fd)
                if slot is None:
                    if fd == self.control:
                        self._controlled(event)
                elif event & select.EPOLLOUT:
                    self._send(slot)
                else:
                    self._receive(slot)
            if self.open < self.concurrency:
                self._fill()
            end = now()
            if end - begin > words[Field.PASS_MAX]:
                words[Field.PASS_MAX] = end - begin
            if end >= due:
                words[Field.TICKS] += 1
                if end - due > words[Field.STALL_MAX]:
                    words[Field.STALL_MAX] = end - due
                self._expire(end)
                self._fill()
                due = now() + self.tick_ns
        words[Field.DONE] = 1

    def close(self) -> None:
        """Give back what the loop holds; its views of the memory as well."""
        self.poll.close()
        for view in self.pending:
            view.release()
        self.pending.clear()

    def _stamp(self, slot: int, word: Slot) -> None:
        self.words[HEADER_WORDS + SLOT_WORDS * slot + word] = self.now() - self.origin + 1

    def _fill(self) -> None:
        """Start the requests that wait, up to the concurrency."""
        while self.open < self.concurrency and self.next_slot < self.memory.slots:
            if self.words[Field.ABORT]:
                return
            self._start()

    def _start(self) -> None:
        """Open the connection of the next slot. P4.0: `start` just before connect()."""
        slot = self.next_slot
        self.next_slot += 1
        taken = self.connector.take()
        self.sockets[slot] = taken
        self.slot_of[taken.fileno()] = slot
        self.open += 1
        self._stamp(slot, Slot.START)
        error = self.connector.connect(taken)
        if error and error not in _BUSY:
            self._end(slot, REFUSED)
            return
        self.poll.register(taken.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _send(self, slot: int) -> None:
        taken = self.sockets[slot]
        assert taken is not None
        if not self.memory.get(slot, Slot.CONNECTED):
            error = taken.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._end(slot, RESET if error in _BROKEN else REFUSED)
                return
            self._stamp(slot, Slot.CONNECTED)
        rest = self.pending[slot]
        try:
            while rest:
                rest = rest[taken.send(rest) :]
        except BlockingIOError:
            self.pending[slot] = rest
            return
        except OSError:
            # The peer takes no more, but may have answered: `sent` stays unknown, reading goes on.
            # The error is now taken from the socket, whose end will look like FIN and be none.
            self.broken.add(slot)
        else:
            self._stamp(slot, Slot.SENT)
        self.pending[slot] = rest
        self.poll.modify(taken.fileno(), select.EPOLLIN)

    def _receive(self, slot: int) -> None:
        taken = self.sockets[slot]
        assert taken is not None
        if self.reads == self.memory.reads_max or self.tail + READ_MAX > self.memory.size:
            self._abort(OUTGROWN)
            return
        try:
            count = taken.recv_into(self.memory.bytes_[self.tail : self.tail + READ_MAX])
        except BlockingIOError:
            return
        except OSError:
            connected = self.memory.get(slot, Slot.CONNECTED)
            self._end(slot, RESET if connected else REFUSED)
            return
        if not count and slot in self.broken:
            self._end(slot, RESET)
            return
        words, word = self.words, self.memory.log_word + LOG_WORDS * self.reads
        words[word] = self.now() - self.origin + 1
        words[word + 1] = slot
        words[word + 2] = count
        self.tail += count
        self.reads += 1
        words[HEADER_WORDS + SLOT_WORDS * slot + Slot.BYTES] += count
        words[Field.ARENA] = self.tail - self.memory.arena_offset
        words[Field.READS] = self.reads
        if not count:
            self._end(slot, FIN)

    def _end(self, slot: int, outcome: int) -> None:
        """Close a slot with its outcome."""
        taken = self.sockets[slot]
        if taken is not None:
            del self.slot_of[taken.fileno()]
            taken.close()
            self.sockets[slot] = None
            self.open -= 1
        self._stamp(slot, Slot.END)
        self.memory.set(slot, Slot.OUTCOME, outcome)

    def _controlled(self, event: int) -> None:
        self._abort(BY_PARENT if event & select.EPOLLIN else ORPHANED)

    def _expire(self, end: int) -> None:
        """End what has run out of time; called once a tick."""
        if self.signalled:
            self._abort(BY_SIGNAL)
        deadline = end - self.origin + 1 - self.http_timeout_ns
        for slot in list(self.slot_of.values()):
            if self.memory.get(slot, Slot.START) <= deadline:
                self._end(slot, TIMEOUT)

    def _abort(self, reason: int) -> None:
        """End everything that is not ended."""
        if not self.words[Field.ABORT]:
            self.words[Field.ABORT] = reason
        for slot in range(self.memory.slots):
            if not self.memory.get(slot, Slot.OUTCOME):
                self._end(slot, ABORTED)
