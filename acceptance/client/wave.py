"""`python -m acceptance.client.wave`: the measuring client, a process of its own (P3.6).

Everything is made and warmed, then "ready" is said, then it waits for "go". Its setup is one JSON
object on stdin; descriptors of the memory, of the control pipe (read) and of the status pipe
(write) are inherited. The parent is `acceptance.client.WaveClient`.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from acceptance.client.loop import BY_PARENT, ORPHANED, Connector, Loop
from acceptance.client.memory import ABORTS, GO, OUTCOMES, Field, Memory, Slot

WARM_ROUNDS = 4
WARM_SLOTS = 16
WARM_PACKETS = 24
TOUCH_BYTES = 32 << 20
TOUCH_READS = 1 << 16


class Scripted(Connector):
    """Sockets whose peer has said everything already: the loop runs warm without a server.

    SOCK_SEQPACKET keeps one recv per packet, like one read per frame.
    """

    def __init__(self, slots: int, packets: int) -> None:
        self.peers = []
        self.ready = []
        for _ in range(slots):
            near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            near.setblocking(False)
            for number in range(packets):
                far.send(b"data: warm up %d\n\n" % number)
            far.shutdown(socket.SHUT_WR)
            self.ready.append(near)
            self.peers.append(far)

    def connect(self, taken: socket.socket) -> int:
        return 0

    def close(self) -> None:
        for peer in self.peers:
            peer.close()


def warm() -> None:
    """Run the very loop over scripted sockets, so that no first time falls into the wave."""
    nobody, somebody = os.pipe()
    for _ in range(WARM_ROUNDS):
        memory = Memory.create([b"x"] * WARM_SLOTS, capacity_bytes=1 << 20, reads_max=1024)
        connector = Scripted(WARM_SLOTS, WARM_PACKETS)
        loop = Loop(
            memory,
            connector,
            concurrency=WARM_SLOTS - 1,
            http_timeout_ns=10**10,
            tick_ns=1_000_000,
            control=nobody,
        )
        loop.run(time.perf_counter_ns())
        loop.close()
        connector.close()
        memory.close()
        os.close(memory.fd)
    os.close(nobody)
    os.close(somebody)


def raise_priority(priority: int) -> None:
    """Try for SCHED_FIFO, else for a better nice value, else stay: `conditions` says which."""
    if not priority:
        return
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -15)
        except OSError:
            return


def conditions() -> dict[str, Any]:
    """Under which conditions this process will measure."""
    policies = {os.SCHED_OTHER: "SCHED_OTHER", os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR"}
    policy = os.sched_getscheduler(0)
    name = policies.get(policy, str(policy))
    priority = os.sched_getparam(0).sched_priority
    return {
        "pid": os.getpid(),
        "scheduler": f"{name}:{priority}" if priority else name,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def wait_for_go(control: int, timeout_ns: int) -> int:
    """0 for go, else an index into ABORTS."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    if not poll.poll(timeout_ns / 1e6):
        return ABORTS.index("no go within the barrier timeout")
    word = os.read(control, 1)
    if not word:
        return ORPHANED
    return 0 if word == GO else BY_PARENT


def main(memory_fd: int, control: int, status: int) -> int:
    """Exit status: 0 when every slot has an outcome, 3 when the barrier was not passed."""
    setup = json.load(sys.stdin)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    memory = Memory(
        memory_fd,
        slots=setup["slots"],
        reads_max=setup["reads_max"],
        request_bytes=setup["request_bytes"],
    )
    warm()
    memory.touch(TOUCH_BYTES, TOUCH_READS)
    family, address = setup["family"], tuple(setup["address"])
    loop = Loop(
        memory,
        Connector(family, address, setup["concurrency"]),
        concurrency=setup["concurrency"],
        http_timeout_ns=setup["http_timeout_ns"],
        tick_ns=setup["tick_ns"],
        control=control,
    )
    signal.signal(signal.SIGTERM, lambda *_: setattr(loop, "signalled", True))
    raise_priority(setup["priority"])
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.callbacks.append(lambda phase, info: memory.count_collection(phase))
    os.write(status, json.dumps(conditions()).encode() + b"\n")

    ready = time.perf_counter_ns()
    stopped = wait_for_go(control, setup["barrier_timeout_ns"])
    memory.words[Field.BARRIER_WAIT] = time.perf_counter_ns() - ready
    if stopped:
        memory.words[Field.ABORT] = stopped
        for slot in range(memory.slots):
            memory.set(slot, Slot.OUTCOME, OUTCOMES.index("aborted"))
        return 3
    memory.words[Field.UTC] = time.time_ns()
    loop.run(time.perf_counter_ns())
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])))
