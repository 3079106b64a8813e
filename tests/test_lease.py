"""One owner at a time, known by pid and start ticks; a stale lease is explained (P6.9)."""

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest

from acceptance.errors import UsageError
from acceptance.lease import LeaseRecord, acquire
from acceptance.processes import boot_id, read_process
from acceptance.settings import ROOT

HOLDER = """
import sys, time
from pathlib import Path
from acceptance.lease import acquire
lease = acquire(Path(sys.argv[1]), "first", "run one")
print("held", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "leases/devices.lock"


@pytest.fixture
def holder(path):
    """Another process that holds the lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def record_of(path):
    return msgspec.json.decode(path.read_bytes(), type=LeaseRecord)


def plant(path, **changes):
    """A record that an owner left without its lock."""
    own = {
        "schema": 1,
        "owner": "somebody",
        "purpose": "a run",
        "pid": os.getppid(),
        "start_ticks": read_process(os.getppid()).start_ticks,
        "boot_id": boot_id(),
        "since_utc": "2026-01-01T00:00:00+00:00",
        "fence": 41,
        "is_released": False,
    }
    path.parent.mkdir()
    path.write_text(json.dumps({**own, **changes}))


def test_a_lease_names_its_owner_while_it_is_held(path):
    with acquire(path, "me", "run two") as lease:
        held = record_of(path)
        valid = lease.is_valid()

    assert ("me", "run two", os.getpid()) == (held.owner, held.purpose, held.pid)
    assert read_process(os.getpid()).start_ticks == held.start_ticks
    assert (True, False) == (valid, lease.is_valid())
    assert (False, True) == (held.is_released, record_of(path).is_released)
    assert lease.note is None


def test_a_second_owner_is_refused_in_one_line_that_names_the_first(path, holder):
    with pytest.raises(UsageError) as caught:
        acquire(path, "second", "run two")

    assert f"leased by first (pid {holder.pid}, since " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "first" == record_of(path).owner


def test_a_second_owner_in_the_same_process_is_refused_too(path):
    with acquire(path, "me", "one"), pytest.raises(UsageError, match="leased by me"):
        acquire(path, "me", "two")


def test_a_released_lease_is_granted_again_with_a_higher_fence_and_no_word(path):
    with acquire(path, "a", "one") as first:
        pass
    with acquire(path, "b", "two") as second:
        pass

    assert (1, 2) == (first.fence, second.fence)
    assert second.note is None


def test_the_lease_of_a_killed_owner_is_granted_and_explained(path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    with acquire(path, "second", "run two") as lease:
        assert 2 == lease.fence
        assert f"the lease of first (pid {holder.pid}" in lease.note
        assert "never released; that process ended and runs no more" in lease.note


def test_a_lease_from_before_the_last_boot_is_stale(path):
    plant(path, boot_id="another")

    with acquire(path, "me", "one") as lease:
        assert 42 == lease.fence
        assert "ended before the last boot" in lease.note


def test_a_reused_pid_does_not_keep_a_lease(path):
    plant(path, start_ticks=1)

    with acquire(path, "me", "one") as lease:
        assert "never released" in lease.note


def test_an_owner_that_runs_without_its_lock_is_not_overruled(path):
    plant(path)

    with pytest.raises(UsageError, match=r"somebody \(pid \d+.*still runs but holds no lock"):
        acquire(path, "me", "one")
    assert "somebody" == record_of(path).owner


def test_a_lease_whose_file_was_replaced_is_void(path):
    with acquire(path, "me", "one") as lease:
        path.unlink()
        without = lease.is_valid()
        acquire(path, "another", "two").release()
        replaced = lease.is_valid()

    assert (False, False) == (without, replaced)
    assert "another" == record_of(path).owner


def test_a_file_that_holds_something_else_is_an_empty_lease(path):
    path.parent.mkdir()
    path.write_text("not a record")

    with acquire(path, "me", "one") as lease:
        assert (1, None) == (lease.fence, lease.note)


def test_a_place_that_can_not_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="can't open the lease file"):
        acquire(tmp_path / "file/devices.lock", "me", "one")
