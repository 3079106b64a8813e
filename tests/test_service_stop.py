"""A stopped service is gone: every process, its port, its segments, in every exit path (P6.7)."""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from acceptance.processes import is_running
from acceptance.service import find_orphans, start
from acceptance.service.tree import Tree, survivors
from acceptance.settings import ROOT
from acceptance.testing.services import eventually, fake_spec

OWNER = """
import json, sys
from pathlib import Path
from acceptance.service import start
from acceptance.testing.services import fake_spec
folder = Path(sys.argv[1])
with start(fake_spec(folder, *sys.argv[2:], stop_timeout_s=0.3), folder / "service",
           records=folder / "records") as service:
    members = [[m.pid, m.start_ticks] for m in service.identity().processes]
    (folder / "members.tmp").write_text(json.dumps(members))
    (folder / "members.tmp").rename(folder / "members.json")
    service.wait_for_death(3600)
"""


@pytest.fixture
def owner(tmp_path):
    """A process of its own that starts a service: how it ends is the test's business."""
    made = []

    def begin(*options):
        argv = [sys.executable, "-c", OWNER, str(tmp_path), *options]
        process = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.DEVNULL)
        made.append(process)
        return process

    yield begin
    for process in made:
        process.kill()
        process.wait()


def members_of(folder: Path):
    path = folder / "members.json"
    assert eventually(path.exists)
    return [tuple(member) for member in json.loads(path.read_bytes())]


def gone(members):
    return eventually(lambda: not any(is_running(pid, ticks) for pid, ticks in members))


def test_sigterm_takes_the_whole_tree_with_a_heir_that_left_its_session(tmp_path):
    spec, records = fake_spec(tmp_path, "--family"), tmp_path / "records"
    service = start(spec, tmp_path / "service", records=records)
    members = [(m.pid, m.start_ticks) for m in service.identity().processes]
    on_record = list(records.iterdir())
    stop = service.stop()

    assert ("REAPED", "SIGTERM", -signal.SIGTERM) == (stop.state, stop.how, stop.exit_status)
    assert 3 == len(members)
    assert set(members) <= {(m.pid, m.start_ticks) for m in stop.pids}
    assert not any(is_running(pid, ticks) for pid, ticks in members)
    assert [records / f"{service.service_id}.json"] == on_record
    assert [] == list(records.iterdir())
    assert stop is service.stop()
    assert "REAPED" == json.loads((tmp_path / "service/stop.json").read_bytes())["state"]


def test_sigkill_takes_those_who_ignore_sigterm(tmp_path):
    spec = fake_spec(tmp_path, "--family", "--ignore-sigterm", stop_timeout_s=0.3)
    service = start(spec, tmp_path / "service")
    members = [(m.pid, m.start_ticks) for m in service.identity().processes]
    stop = service.stop()

    assert ("REAPED", "SIGKILL", -signal.SIGKILL) == (stop.state, stop.how, stop.exit_status)
    assert 3 == len(members)
    assert not any(is_running(pid, ticks) for pid, ticks in members)


def test_a_death_in_service_is_seen_at_once_and_the_rest_of_the_tree_reaped(tmp_path):
    service = start(fake_spec(tmp_path, "--family"), tmp_path / "service")
    before = service.wait_for_death(0)
    with pytest.raises(httpx.HTTPError):
        httpx.post(f"http://127.0.0.1:{service.port}/die", json={}, trust_env=False)
    after = service.wait_for_death(60)
    stop = service.stop()

    assert (False, True) == (before, after)
    assert not service.alive()
    assert ("REAPED", "itself", -signal.SIGKILL) == (stop.state, stop.how, stop.exit_status)
    assert 3 == len(stop.pids)


def test_the_owner_is_killed_and_nothing_outlives_it_but_its_record(tmp_path, owner):
    process = owner("--family", "--ignore-sigterm")
    members = members_of(tmp_path)
    warden = json.loads(next((tmp_path / "records").iterdir()).read_bytes())["warden"]
    process.kill()
    process.wait()

    assert 3 == len(members)
    assert gone([*members, (warden["pid"], warden["start_ticks"])])
    (orphan,) = find_orphans(tmp_path / "records")
    assert () == orphan.running
    assert "only its record is left; remove" in orphan.advice


def test_ctrl_c_in_service_ends_the_tree(tmp_path, owner):
    process = owner("--family", "--ignore-sigterm")
    members = members_of(tmp_path)
    process.send_signal(signal.SIGINT)

    assert 0 != process.wait(60)
    assert not any(is_running(pid, ticks) for pid, ticks in members)
    assert "REAPED" == json.loads((tmp_path / "service/stop.json").read_bytes())["state"]
    assert [] == list((tmp_path / "records").iterdir())


def test_ctrl_c_during_the_start_ends_the_tree(tmp_path, owner):
    process = owner("--deaf", "--say", "loading")
    log = tmp_path / "service/server.log"
    assert eventually(lambda: log.exists() and b"loading" in log.read_bytes())
    process.send_signal(signal.SIGINT)

    assert 0 != process.wait(60)
    stop = json.loads((tmp_path / "service/stop.json").read_bytes())
    assert ("REAPED", 1) == (stop["state"], len(stop["pids"]))
    assert not is_running(stop["pids"][0]["pid"], stop["pids"][0]["start_ticks"])


def test_a_killed_warden_is_seen_and_its_work_done_by_the_record(tmp_path):
    service = start(
        fake_spec(tmp_path, "--family", "--ignore-sigterm", stop_timeout_s=0.3),
        tmp_path / "service",
    )
    members = [(m.pid, m.start_ticks) for m in service.identity().processes]
    os.kill(service._tree.warden.pid, signal.SIGKILL)
    died = service.wait_for_death(60)
    stop = service.stop()

    assert died
    assert ("REAPED", "SIGKILL") == (stop.state, stop.how)
    assert 3 == len(members)
    assert gone(members)


def test_a_server_whose_warden_is_killed_is_asked_to_end_by_the_kernel(tmp_path):
    service = start(fake_spec(tmp_path), tmp_path / "service")
    os.kill(service._tree.warden.pid, signal.SIGKILL)
    went = gone([(service.pid, int(service.process_start))])
    stop = service.stop()

    assert went
    assert ("REAPED", "itself") == (stop.state, stop.how)


def test_an_orphan_is_known_by_its_session_where_its_environment_is_not_readable(tmp_path):
    # A process that gives itself a title overwrites what /proc shows of its environment.
    service = start(fake_spec(tmp_path, "--family"), tmp_path / "service")
    server = service._tree.server
    child = next(p for p in service._tree.members if p.ppid == server.pid)
    os.kill(service.pid, signal.SIGKILL)
    service.wait_for_death(60)
    found = survivors("another-service", server, [])
    later = survivors("another-service", server._replace(start_ticks=server.start_ticks + 999), [])
    service.stop()

    assert [child.pid] == [process.pid for process in found]
    assert [] == later


def test_what_a_crash_leaves_running_is_named_with_what_to_do(tmp_path, owner):
    process = owner("--family", "--ignore-sigterm")
    members = members_of(tmp_path)
    assert [] == find_orphans(tmp_path / "records")
    record = json.loads(next((tmp_path / "records").iterdir()).read_bytes())
    os.kill(record["warden"]["pid"], signal.SIGKILL)
    process.kill()
    process.wait()

    (orphan,) = find_orphans(tmp_path / "records")
    try:
        assert {pid for pid, _ in members} == {int(r.partition("/")[0]) for r in orphan.running}
        assert f"on port {record['port']}, outlived its owner (pid {process.pid})" in orphan.advice
        assert "`kill " + " ".join(str(pid) for pid, _ in sorted(members)) in orphan.advice
    finally:
        for pid, ticks in members:
            if is_running(pid, ticks):
                os.kill(pid, signal.SIGKILL)
    assert gone(members)


def test_a_record_that_can_not_be_read_is_reported(tmp_path):
    (tmp_path / "x.json").write_text("{")

    assert "can't be read" in find_orphans(tmp_path)[0].advice


def test_a_shared_segment_of_the_service_goes_with_it(tmp_path):
    name = f"acceptance-test-{secrets.token_hex(4)}"
    service = start(fake_spec(tmp_path, "--segment", name), tmp_path / "service")
    was_there = Path("/dev/shm", name).exists()
    stop = service.stop()

    assert was_there
    assert (name,) == stop.shared_memory_removed
    assert not Path("/dev/shm", name).exists()


def test_a_segment_that_was_there_before_is_not_touched(tmp_path):
    segment = Path("/dev/shm", f"acceptance-test-{secrets.token_hex(4)}")
    segment.write_bytes(b"mine")
    try:
        stop = start(fake_spec(tmp_path, "--segment", segment.name), tmp_path / "service").stop()

        assert ("REAPED", ()) == (stop.state, stop.shared_memory_removed)
        assert segment.exists()
    finally:
        segment.unlink()


def test_a_segment_that_stays_is_no_reaped_service(tmp_path, monkeypatch):
    name = f"acceptance-test-{secrets.token_hex(4)}"
    service = start(fake_spec(tmp_path, "--segment", name), tmp_path / "service")
    monkeypatch.setattr(
        "acceptance.service.shared_memory.remove", lambda names: ((), tuple(sorted(names)))
    )
    stop = service.stop()
    Path("/dev/shm", name).unlink()

    assert "NOT_REAPED" == stop.state
    assert (f"/dev/shm/{name} is still there",) == stop.reasons


def test_a_process_and_a_port_that_stay_are_no_reaped_service(tmp_path, monkeypatch):
    records = tmp_path / "records"
    service = start(fake_spec(tmp_path), tmp_path / "service", records=records)
    really_stop = Tree.stop
    nothing = {"terminated": [], "killed": [], "left": []}
    monkeypatch.setattr(Tree, "stop", lambda tree: nothing)
    monkeypatch.setattr("acceptance.service.runner.GONE_TIMEOUT_S", 0.1)
    stop = service.stop()
    really_stop(service._tree)

    assert "NOT_REAPED" == stop.state
    assert ((service.pid,), False) == (stop.pids_left, stop.port_free)
    assert f"process {service.pid} still runs" in stop.reasons
    assert f"port {service.port} is still listened on by the service" in stop.reasons
    assert [f"{service.service_id}.json"] == [path.name for path in records.iterdir()]


def test_a_record_that_can_not_be_stored_does_not_keep_a_service_running(tmp_path, monkeypatch):
    service = start(fake_spec(tmp_path), tmp_path / "service")
    member = (service.pid, int(service.process_start))

    def full(path, record):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("acceptance.service.runner.write_record", full)
    stop = service.stop()

    assert ("REAPED", False) == (stop.state, is_running(*member))
    assert ("stop.json is not stored: [Errno 28] No space left on device",) == stop.reasons
