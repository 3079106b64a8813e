"""The measuring client when things go wrong: each request ends in its own outcome, what came is
kept, and nothing is left running."""

import dataclasses
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from acceptance.client import WaveClient, http_request
from acceptance.client import run_wave as run_wave_slowly
from acceptance.client.parent import ROOT
from acceptance.errors import RunFailure
from acceptance.metrics import parse_reads
from acceptance.testing.streams import END, chunk, completion_events, head, response
from acceptance.testing.stub_server import Hold, Reset, Send, StubServer, Wait
from acceptance.testing.waves import wave_spec

FRAMES = [[5], [6, 7], [8]]
WAIT_S = 20


run_wave = functools.partial(run_wave_slowly, interval_s=0.01)


def events_for(request):
    return completion_events(json.loads(request.body)["prompt"], FRAMES)


def whole(request):
    return [Send(response(events_for(request)))]


def first_frame_then(*steps):
    """A script: the head and the first frame, then what a fault needs."""
    return lambda request: [Send(head() + chunk(events_for(request)[0])), *steps]


def outcomes(wave):
    return [request.outcome for request in wave.requests]


def wait_for(client, is_met):
    """Poll until the wave has come so far; fails after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not is_met(progress := client.poll()):
        assert time.monotonic() < deadline, progress
        time.sleep(0.005)
    return progress


def all_decode(progress):
    return all(slot.tokens for slot in progress.slots)


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def first_bytes_are_kept(directory, wave, steps=1):
    """Every stored response is the head and the first frame, and its reads add up."""
    for request in wave.requests:
        raw = (directory / request.raw).read_bytes()
        sent = json.loads((directory / request.request).read_bytes().partition(b"\r\n\r\n")[2])
        reads = parse_reads((directory / request.reads).read_bytes())
        assert head() + chunk(completion_events(sent["prompt"], FRAMES)[0]) == raw
        assert len(raw) == sum(count for _, count in reads)


def test_a_request_beyond_its_timeout_ends_as_timeout_and_keeps_what_came(tmp_path):
    with StubServer(first_frame_then(Hold())) as server:
        wave = run_wave(wave_spec(server.port, 2, http_timeout_ns=300_000_000), tmp_path)

    assert (["timeout"] * 2, None) == (outcomes(wave), wave.aborted)
    first_bytes_are_kept(tmp_path, wave)


def test_a_connection_kept_open_after_a_complete_stream_is_no_end(tmp_path):
    with StubServer(lambda request: [*whole(request), Hold()]) as server:
        wave = run_wave(wave_spec(server.port, http_timeout_ns=300_000_000), tmp_path)

    assert ["timeout"] == outcomes(wave)
    assert (tmp_path / "measured-00.raw").read_bytes().endswith(END)


def test_a_reset_ends_as_reset_and_keeps_what_came(tmp_path):
    read = threading.Event()
    script = first_frame_then(Wait(read), Reset())
    with StubServer(script) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port, 2))
        client.go()
        wait_for(client, all_decode)
        read.set()
        wave = client.finish()

    assert (["reset"] * 2, None) == (outcomes(wave), wave.aborted)
    first_bytes_are_kept(tmp_path, wave)


def test_a_port_where_nobody_listens_refuses_every_request(tmp_path):
    with StubServer(whole) as server:
        port = server.port

    wave = run_wave(wave_spec(port, 3), tmp_path)

    assert (["refused"] * 3, None) == (outcomes(wave), wave.aborted)
    assert all(request.start_ns is not None for request in wave.requests)
    assert {None} == {request.connected_ns for request in wave.requests}
    assert b"[]" == (tmp_path / "measured-02.reads").read_bytes()


def test_a_client_that_is_killed_leaves_every_byte_and_stamp(tmp_path):
    with StubServer(first_frame_then(Hold())) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port, 4))
        client.go()
        wait_for(client, all_decode)
        os.kill(client.pid, signal.SIGKILL)
        wave = client.finish()

    assert ["client-died"] * 4 == outcomes(wave)
    assert "the measuring client was killed by SIGKILL" == wave.aborted
    first_bytes_are_kept(tmp_path, wave)
    assert all(request.sent_ns is not None for request in wave.requests)


def test_requests_that_ended_before_the_client_was_killed_keep_their_end(tmp_path):
    def script(request):
        if json.loads(request.body)["cache_salt"] == "salt-0":
            return whole(request)
        return first_frame_then(Hold())(request)

    with StubServer(script) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port, 2))
        client.go()
        wait_for(client, lambda progress: progress.slots[0].state == "fin" and all_decode(progress))
        os.kill(client.pid, signal.SIGKILL)
        wave = client.finish()

    assert ["fin", "client-died"] == outcomes(wave)


def test_an_abort_ends_what_is_unfinished_and_the_client_is_gone(tmp_path):
    with StubServer(first_frame_then(Hold())) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port, 2))
        client.go()
        wait_for(client, all_decode)
        client.abort("the service is gone")
        assert is_gone(client.pid)
        wave = client.finish()

    assert (["aborted"] * 2, "the service is gone") == (outcomes(wave), wave.aborted)
    first_bytes_are_kept(tmp_path, wave)


def test_an_abort_after_the_end_changes_nothing(tmp_path):
    with StubServer(whole) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port))
        client.go()
        wait_for(client, lambda progress: progress.done)
        client.abort("too late")
        wave = client.finish()

    assert (["fin"], None) == (outcomes(wave), wave.aborted)


def test_a_client_that_does_not_listen_is_killed_by_an_abort(tmp_path):
    with StubServer(first_frame_then(Hold())) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port))
        client.go()
        wait_for(client, all_decode)
        os.kill(client.pid, signal.SIGSTOP)
        client.abort("stuck")
        assert is_gone(client.pid)
        wave = client.finish()

    assert (["aborted"], "stuck") == (outcomes(wave), wave.aborted)


def test_a_signal_to_the_client_ends_the_wave(tmp_path):
    with StubServer(first_frame_then(Hold())) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port))
        client.go()
        wait_for(client, all_decode)
        os.kill(client.pid, signal.SIGINT)
        os.kill(client.pid, signal.SIGTERM)
        wave = client.finish()

    assert (["aborted"], "stopped by a signal") == (outcomes(wave), wave.aborted)


def test_ctrl_c_during_a_wave_stores_it_and_goes_on_its_way(tmp_path):
    def interrupt(progress):
        if all_decode(progress):
            raise KeyboardInterrupt

    script = first_frame_then(Hold())
    with StubServer(script) as server, pytest.raises(KeyboardInterrupt) as caught:
        run_wave(wave_spec(server.port, 2), tmp_path, watch=interrupt)

    wave = caught.value.wave
    assert (["aborted"] * 2, "interrupted: KeyboardInterrupt") == (outcomes(wave), wave.aborted)
    first_bytes_are_kept(tmp_path, wave)
    assert is_gone(wave.client.pid)


@pytest.mark.rule("P3.6")
def test_nothing_is_sent_before_the_barrier_and_its_timeout_ends_the_wave(tmp_path):
    with StubServer(whole) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port, 2, barrier_timeout_ns=50_000_000))
        wait_for(client, lambda progress: progress.done)
        client.go()
        wave = client.finish()

    assert [] == server.requests
    assert ["aborted"] * 2 == outcomes(wave)
    assert "no go within the barrier timeout" == wave.aborted
    assert {None} == {request.start_ns for request in wave.requests}


def test_responses_that_outgrow_the_memory_abort_the_wave(tmp_path):
    flood = Send(b"x" * 200_000)
    with StubServer(lambda request: [flood, Hold()]) as server:
        wave = run_wave(wave_spec(server.port, 1, capacity_bytes=1 << 17), tmp_path)

    assert ["aborted"] == outcomes(wave)
    assert "responses outgrew the memory reserved for them" == wave.aborted
    kept = (tmp_path / "measured-00.raw").read_bytes()
    assert b"x" * len(kept) == kept
    assert kept


def test_a_service_that_answers_and_closes_before_it_read_all_is_heard_and_is_a_reset(tmp_path):
    refusal = b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\n\r\n"
    asked = wave_spec(1).requests[0]
    huge = dataclasses.replace(asked, body=b" " * (32 << 20))
    with socket.create_server(("127.0.0.1", 0)) as listener, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(listener.getsockname()[1], requests=(huge,)))
        client.go()
        connection, _ = listener.accept()
        connection.recv(1)
        connection.sendall(refusal)
        connection.close()
        wave = client.finish()

    assert (["reset"], None) == (outcomes(wave), wave.requests[0].sent_ns)
    assert refusal == (tmp_path / "measured-00.raw").read_bytes()


def test_nothing_that_is_stored_is_overwritten(tmp_path):
    (tmp_path / "measured-00.raw").write_bytes(b"older")
    with StubServer(whole) as server, pytest.raises(FileExistsError):
        run_wave(wave_spec(server.port), tmp_path)

    assert b"older" == (tmp_path / "measured-00.raw").read_bytes()


def test_a_client_that_does_not_start_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    not_ready = pytest.raises(RunFailure, match="the measuring client was not ready")
    with WaveClient(tmp_path) as client, not_ready as caught:
        client.prepare(wave_spec(1))

    assert "P3.6" == caught.value.rule
    assert "\n" not in str(caught.value)


def test_a_host_that_is_unknown_is_one_clear_line(tmp_path):
    with WaveClient(tmp_path) as client, pytest.raises(RunFailure, match=r"nowhere\.invalid:1"):
        client.prepare(wave_spec(1, host="nowhere.invalid"))


PARENT = """
import pathlib, sys, time
from acceptance.client import WaveClient
from acceptance.testing.waves import wave_spec
client = WaveClient(pathlib.Path(sys.argv[2]))
client.prepare(wave_spec(int(sys.argv[1])))
client.go()
while not client.poll().slots[0].tokens:
    time.sleep(0.005)
print(client.pid, flush=True)
time.sleep(600)
"""


def test_the_client_goes_when_its_parent_is_killed(tmp_path):
    with StubServer(first_frame_then(Hold())) as server:
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(server.port), str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            client = psutil.Process(int(parent.stdout.readline()))
        finally:
            parent.kill()
            parent.wait()
            parent.stdout.close()
        gone, _ = psutil.wait_procs([client], timeout=WAIT_S)

    assert [client] == gone


def test_a_wave_of_fewer_at_a_time_never_has_more_in_flight(tmp_path):
    lock, state = threading.Lock(), {"now": 0, "most": 0}

    def script(request):
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
        yield Send(head())
        for one in events_for(request):
            yield Send(chunk(one))
        with lock:
            state["now"] -= 1
        yield Send(END)

    with StubServer(script) as server:
        wave = run_wave(wave_spec(server.port, 12, concurrency=3, name="gsm8k"), tmp_path)

    assert ["fin"] * 12 == outcomes(wave)
    assert 1 <= state["most"] <= 3
    assert "gsm8k-11.raw" == wave.requests[11].raw
    starts = [request.start_ns for request in wave.requests]
    assert starts == sorted(starts)


def test_the_headers_of_a_request_are_those_of_the_protocol(tmp_path):
    with StubServer(whole) as server:
        spec = wave_spec(server.port, headers={"Authorization": "Bearer x"})
        run_wave(spec, tmp_path)

    (received,) = server.requests
    assert "POST /v1/completions HTTP/1.1" == received.line
    assert {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "application/json",
        "content-length": str(len(spec.requests[0].body)),
        "x-data-parallel-rank": "0",
        "connection": "close",
        "authorization": "Bearer x",
    } == received.headers
    assert spec.requests[0].body == received.body


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        pytest.param({"X-Data-Parallel-Rank": "1"}, "/", id="a-header-of-ours"),
        pytest.param({"A": "b\r\nC: d"}, "/", id="a-line-break"),
        pytest.param({}, "/a b", id="a-space-in-the-path"),
    ],
)
def test_a_request_that_would_say_something_else_is_refused(headers, path):
    with pytest.raises(ValueError, match=r"header|path"):
        http_request(host="h", port=1, path=path, rank=0, body=b"", headers=headers)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"requests": ()}, id="no-request"),
        pytest.param({"concurrency": 0}, id="none-at-a-time"),
        pytest.param({"http_timeout_ns": 0}, id="no-time"),
        pytest.param({"requests": wave_spec(1, 2).requests[1:]}, id="slot-zero-missing"),
    ],
)
def test_a_wave_that_makes_no_sense_is_refused(changes):
    with pytest.raises(ValueError, match=r"."):
        wave_spec(1, **changes)


def test_the_client_tells_under_which_conditions_it_measured(tmp_path):
    with StubServer(whole) as server, WaveClient(tmp_path) as client:
        client.prepare(wave_spec(server.port, priority=10))
        pid = client.pid
        scheduler = os.sched_getscheduler(pid)
        nice, affinity = os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid)
        client.go()
        report = client.finish().client

    names = {os.SCHED_FIFO: "SCHED_FIFO:10", os.SCHED_OTHER: "SCHED_OTHER"}
    assert (pid, names[scheduler], nice) == (report.pid, report.scheduler, report.nice)
    assert affinity == set(report.affinity)
    assert 0 == report.gc_collections
    assert 0 < report.barrier_wait_ns
    assert 0 < report.read_ns_max


def test_no_process_and_no_descriptor_is_left_behind(tmp_path):
    before = sorted(os.listdir("/proc/self/fd"))
    with StubServer(whole) as server:
        for number in range(3):
            wave = run_wave(wave_spec(server.port), tmp_path / str(number))
            assert is_gone(wave.client.pid)

    assert before == sorted(os.listdir("/proc/self/fd"))


def test_the_stored_bytes_are_those_that_were_sent_by_both_sides(tmp_path):
    with StubServer(whole) as server:
        spec = wave_spec(server.port, 3)
        wave = run_wave(spec, tmp_path)

    for asked, request in zip(spec.requests, wave.requests, strict=True):
        assert spec.request_bytes(asked) == (tmp_path / request.request).read_bytes()
        prompt = json.loads(asked.body)["prompt"]
        assert response(completion_events(prompt, FRAMES)) == (tmp_path / request.raw).read_bytes()
        assert 0 == parse_reads((tmp_path / request.reads).read_bytes())[-1][1]
    assert sorted(one.raw for one in server.requests) == sorted(
        Path(tmp_path / request.request).read_bytes() for request in wave.requests
    )
