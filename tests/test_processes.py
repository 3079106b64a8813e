"""Processes as Linux shows them: a pid alone names nobody, and a zombie may still have threads."""

import os
import platform
import signal
import socket
import subprocess
import sys

import pytest

from acceptance import processes
from acceptance.testing.services import eventually

SYS_EXIT = {"x86_64": 60, "aarch64": 93}
MAIN_THREAD_EXITS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(3600,)).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall({number}, 0)
"""


@pytest.fixture
def child():
    """A process that sleeps; the test may end it."""
    process = subprocess.Popen(["sleep", "3600"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_read_with_its_parent_and_session(child):
    found = processes.read_process(child.pid)

    assert (child.pid, os.getpid(), os.getsid(0)) == (found.pid, found.ppid, found.session)
    assert found.is_running
    # The state may change between two looks.
    assert found in [one._replace(state=found.state) for one in processes.descendants(os.getpid())]
    assert ("sleep", "3600") == processes.command(child.pid)


def test_a_name_with_blanks_and_parentheses_is_read(tmp_path):
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "3600"])
    try:
        assert eventually(lambda: processes.command(process.pid)[0] == str(program))
        assert "a) R 1 (b" == processes.read_process(process.pid).name
        assert os.getpid() == processes.read_process(process.pid).ppid
    finally:
        process.kill()
        process.wait()


def test_another_process_with_the_same_pid_is_not_the_same(child):
    found = processes.read_process(child.pid)
    earlier = found._replace(start_ticks=found.start_ticks - 1)

    assert processes.is_running(found.pid, found.start_ticks)
    assert not processes.is_running(earlier.pid, earlier.start_ticks)
    assert not processes.send_signal(earlier, signal.SIGKILL)
    assert child.poll() is None
    assert processes.send_signal(found, signal.SIGKILL)
    assert -signal.SIGKILL == child.wait()
    assert not processes.send_signal(found, signal.SIGKILL)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(38, "Function not implemented"), id="old-kernel"),
        pytest.param(AttributeError("pidfd_open"), id="old-python"),
    ],
)
def test_without_pidfds_the_start_ticks_guard_alone(child, monkeypatch, error):
    def refuse(pid):
        raise error

    monkeypatch.setattr(os, "pidfd_open", refuse)
    found = processes.read_process(child.pid)

    assert not processes.send_signal(found._replace(start_ticks=1), signal.SIGKILL)
    assert processes.send_signal(found, signal.SIGTERM)
    assert -signal.SIGTERM == child.wait()


def test_a_zombie_runs_no_more(child):
    child.kill()
    assert eventually(lambda: processes.read_process(child.pid).state == "Z")

    assert not processes.read_process(child.pid).is_running
    child.wait()
    assert processes.read_process(child.pid) is None


@pytest.mark.skipif(platform.machine() not in SYS_EXIT, reason="number of exit not known here")
def test_a_process_whose_main_thread_has_ended_still_runs():
    code = MAIN_THREAD_EXITS.format(number=SYS_EXIT[platform.machine()])
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        assert eventually(lambda: processes.read_process(process.pid).state == "Z")

        assert processes.read_process(process.pid).is_running
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_process_that_is_not_there_says_nothing():
    nobody = 2**22 + 1

    assert processes.read_process(nobody) is None
    assert processes.command(nobody) is None
    assert processes.environment(nobody) is None
    assert [] == processes.open_files(nobody)
    assert set() == processes.mapped_files(nobody)


def test_every_listener_of_a_port_is_found_whatever_its_address():
    with socket.socket() as first, socket.socket(socket.AF_INET6) as second:
        for one in (first, second):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        second.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        second.bind(("::1", port))
        before = processes.listening_sockets(port)
        first.listen()
        second.listen()
        found = processes.listening_sockets(port)
        owners = processes.socket_owners(found, [os.getpid(), 1])

    assert set() == before
    assert 2 == len(found)
    assert [{os.getpid()}, {os.getpid()}] == list(owners.values())


def test_the_boot_has_an_id():
    assert 36 == len(processes.boot_id())
