"""The loop of a wave by itself: a fake clock, sockets whose peer has said everything already."""

import gc
import os
import signal
import time
from array import array
from itertools import count, pairwise

import psutil
import pytest

from acceptance.client import WaveClient
from acceptance.client.lag import lags_of, measure_lag, summarise
from acceptance.client.loop import Loop
from acceptance.client.memory import ABORTS, OUTCOMES, Field, Memory, Slot
from acceptance.client.store import received
from acceptance.client.wave import Scripted, wait_for_go
from acceptance.metrics import Expectation, judge_request, parse_reads
from acceptance.testing.streams import chunk, completion_events, head
from acceptance.testing.stub_server import Hold, Send, StubServer
from acceptance.testing.waves import wave_spec

US, MS = 1_000, 1_000_000


class Clock:
    """Every look takes a microsecond; look number `stalls_at` takes `stall_ns` more."""

    def __init__(self, stalls_at=None, stall_ns=0):
        self.looks = count()
        self.stalls_at = stalls_at
        self.stall_ns = stall_ns
        self.t = 5_000_000

    def __call__(self):
        self.t += US
        if next(self.looks) == self.stalls_at:
            self.t += self.stall_ns
        return self.t


@pytest.fixture
def control():
    """Read end of a pipe that says nothing, and its other end."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def run(control, clock, *, slots=3, packets=5, concurrency=None, connector=None):
    memory = Memory.create([b"x"] * slots, capacity_bytes=1 << 20, reads_max=1000)
    connector = connector or Scripted(slots, packets)
    loop = Loop(
        memory,
        connector,
        concurrency=concurrency or slots,
        http_timeout_ns=10**10,
        tick_ns=5 * MS,
        control=control,
        now=clock,
    )
    loop.run(clock())
    loop.close()
    connector.close()
    return memory


def close(memory):
    fd = memory.fd
    memory.close()
    os.close(fd)


def test_every_packet_is_one_read_and_fin_is_a_read_of_nothing(control):
    memory = run(control[0], Clock())

    slots = received(memory)

    said = [b"data: warm up %d\n\n" % number for number in range(5)]
    for slot in slots:
        assert b"".join(said) == slot.raw
        assert [*map(len, said), 0] == [size for _, size in slot.reads]
        assert [t for t, _ in slot.reads] == sorted(t for t, _ in slot.reads)
    del slots, slot
    close(memory)


@pytest.mark.rule("P4.0")
def test_start_comes_before_connected_before_sent_before_the_first_read(control):
    memory = run(control[0], Clock())

    for slot, data in enumerate(received(memory)):
        times = [memory.time(slot, one) for one in (Slot.START, Slot.CONNECTED, Slot.SENT)]
        assert times == sorted(times)
        assert times[-1] < data.reads[0][0]
        assert data.reads[-1][0] < memory.time(slot, Slot.END)
    del data
    close(memory)


def test_slots_start_in_order_within_the_looks_that_they_need(control):
    memory = run(control[0], Clock(), slots=16)

    starts = [memory.time(slot, Slot.START) for slot in range(16)]
    # One look at the clock per start, and nothing else in between.
    assert [US] * 15 == [b - a for a, b in pairwise(starts)]
    close(memory)


def test_a_stall_inside_the_loop_is_seen_by_the_ticker_and_by_the_pass(control):
    calm = run(control[0], Clock())
    stalled = run(control[0], Clock(stalls_at=30, stall_ns=80 * MS))

    # The tick was due at most 5 ms after the last one, so 75 ms at least are beyond it.
    assert 0 == calm.field(Field.STALL_MAX)
    assert 75 * MS <= stalled.field(Field.STALL_MAX) <= 81 * MS
    assert 80 * MS <= stalled.field(Field.PASS_MAX)
    assert 1 <= stalled.field(Field.TICKS)
    close(calm)
    close(stalled)


def test_a_request_that_is_older_than_its_timeout_ends_at_the_next_tick(control):
    # 20 s pass in one look: beyond the 10 s that a request has.
    memory = run(control[0], Clock(stalls_at=14, stall_ns=20_000 * MS), packets=100)

    outcomes = {OUTCOMES[memory.get(slot, Slot.OUTCOME)] for slot in range(3)}
    assert {"timeout"} == outcomes
    close(memory)


def test_a_word_on_the_control_pipe_ends_the_wave(control):
    os.write(control[1], b"a")
    memory = run(control[0], Clock(), packets=100)

    assert {"aborted"} == {OUTCOMES[memory.get(slot, Slot.OUTCOME)] for slot in range(3)}
    assert "stopped by its parent" == ABORTS[memory.field(Field.ABORT)]
    close(memory)


def test_the_end_of_the_control_pipe_says_that_the_parent_is_gone():
    read_end, write_end = os.pipe()
    os.close(write_end)
    memory = run(read_end, Clock(), packets=100)
    os.close(read_end)

    assert "its parent is gone" == ABORTS[memory.field(Field.ABORT)]
    close(memory)


def test_no_more_requests_than_the_concurrency_are_open_at_any_time(control):
    memory = run(control[0], Clock(), slots=7, concurrency=2)

    spans = [(memory.time(slot, Slot.START), memory.time(slot, Slot.END)) for slot in range(7)]
    # Two that end in one pass are followed by two: between them there is none for a moment.
    assert 2 == max(sum(begin <= t < end for begin, end in spans) for t, _ in spans)
    close(memory)


class SlowToConnect(Scripted):
    """A connect() that takes a second of the fake clock."""

    def __init__(self, slots, packets):
        super().__init__(slots, packets)
        self.clock = None

    def connect(self, taken):
        self.clock.t += 1000 * MS
        return 0


@pytest.mark.rule("P4.0")
def test_start_is_taken_before_connect(control):
    clock = Clock()
    connector = SlowToConnect(1, 2)
    connector.clock = clock
    memory = run(control[0], clock, slots=1, connector=connector)

    assert US == memory.time(0, Slot.START)
    assert 1000 * MS < memory.time(0, Slot.CONNECTED)
    close(memory)


def test_a_collection_during_a_wave_is_counted():
    memory = Memory.create([b"x"], capacity_bytes=1, reads_max=1)

    def count_it(phase, info):
        memory.count_collection(phase)

    gc.callbacks.append(count_it)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(count_it)

    assert 1 == memory.field(Field.COLLECTIONS)
    close(memory)


@pytest.mark.rule("P3.6")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(b"g", "", id="go"),
        pytest.param(b"a", "stopped by its parent", id="abort"),
        pytest.param(b"", "its parent is gone", id="end-of-file"),
        pytest.param(None, "no go within the barrier timeout", id="nothing"),
    ],
)
def test_only_go_opens_the_barrier(said, expected):
    read_end, write_end = os.pipe()
    if said is not None:
        os.write(write_end, said)
        os.close(write_end)

    assert expected == ABORTS[wait_for_go(read_end, 10 * MS if said is None else 10_000 * MS)]
    os.close(read_end)
    if said is None:
        os.close(write_end)


def test_touching_the_memory_changes_nothing_in_it():
    memory = Memory.create([b"abc", b"defg"], capacity_bytes=1 << 16, reads_max=100)
    memory.words[0] = memory.words[memory.log_word] = 0x0101010101010101
    for offset in range(memory.arena_offset, memory.size, 4096):
        memory.bytes_[offset] = 7
    before = bytes(memory.bytes_)

    memory.touch(1 << 20, 1000)

    assert before == bytes(memory.bytes_)
    assert b"defg" == bytes(memory.request(1))
    close(memory)


def test_a_read_that_was_being_written_when_the_client_died_is_left_out():
    memory = Memory.create([b"x"], capacity_bytes=1 << 12, reads_max=10)
    memory.bytes_[memory.arena_offset : memory.arena_offset + 2] = b"ab"
    reads = array("Q", (41, 0, 2, 0, 0, 0, 43, 0, 1))  # The second one has no time.
    memory.words[memory.log_word : memory.log_word + len(reads)] = memoryview(reads)
    memory.words[Field.READS] = 3

    (slot,) = received(memory)

    assert (b"ab", ((40, 2),)) == (slot.raw, slot.reads)
    close(memory)


def test_a_client_that_was_stopped_for_a_while_says_so(tmp_path):
    def script(request):
        return [Send(head() + chunk(completion_events([1], [[5], [6]])[0])), Hold()]

    with StubServer(script) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port))
        client.go()
        while not client.poll().slots[0].tokens:
            time.sleep(0.005)
        os.kill(client.pid, signal.SIGSTOP)
        while psutil.Process(client.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        stopped = time.perf_counter_ns()
        time.sleep(0.1)
        stood_ns = time.perf_counter_ns() - stopped
        os.kill(client.pid, signal.SIGCONT)
        resumed = client.poll().elapsed_ns
        while client.poll().elapsed_ns - resumed < 30 * MS:
            time.sleep(0.005)
        client.abort("seen")
        report = client.finish().client

    # The tick that was missed had been due within one tick of the stop.
    assert stood_ns - report.tick_ns <= report.stall_ns_max


FIRST = b": t=00000000000000001000\ndata: a\n\n"
SECOND = b": t=00000000000000002000\ndata: b\n\n"
LAST = b": t=00000000000000004000\ndata: c\n\n"


def test_lags_are_those_worked_out_by_hand():
    reads = [(1100, b"HTTP\r\n\r\n" + FIRST), (2200, SECOND[:9]), (2300, SECOND[9:] + LAST[:1])]
    reads += [(4050, LAST[1:])]

    assert ([1000, 2000, 4000], [1100, 2300, 4050]) == lags_of(reads)

    lag = summarise([reads])
    # Lags 100, 300, 50; the stream took 2950 instead of 3000 ns; (300 - 50) over one interval.
    assert (3, 100, 300, 300) == (lag.frames, lag.lag_ns_p50, lag.lag_ns_p99, lag.lag_ns_max)
    assert (1 / 60, 250) == (float(lag.tpot_error_max), lag.tpot_error_bound_ns)


def test_a_stream_without_stamps_has_no_lag():
    with pytest.raises(ValueError, match="not the stream of a clocked service"):
        summarise([[(1, b"data: a\n\n")]])


def test_against_a_clocked_service_no_stamp_is_early_and_every_stream_is_complete(tmp_path):
    lag, wave = measure_lag(tmp_path, streams=4, frames=10, interval_ns=2 * MS, priority=0)

    assert 4 * (10 + 1) == lag.frames
    assert 0 < lag.lag_ns_p50 <= lag.lag_ns_p99 <= lag.lag_ns_max
    for request in wave.requests:
        sent = (tmp_path / request.request).read_bytes()
        expected = Expectation(
            prompt=(request.slot, request.slot + 1), output_tokens=10, request=sent
        )
        _, codes = judge_request(
            (tmp_path / request.raw).read_bytes(),
            parse_reads((tmp_path / request.reads).read_bytes()),
            request,
            sent,
            expected,
        )
        assert codes == frozenset()
