"""A service is what was asked for, or the proof says in which key it is not (P2.2, P4.1)."""

import os
import platform
import signal
import socket

import msgspec
import pytest

from acceptance.processes import is_running
from acceptance.service import prove_same, start
from acceptance.service.identity import differences, interpreter_versions
from acceptance.testing.services import eventually, fake_spec

CONFIG = (
    '{{"scheduler_config": {{"max_num_seqs": 8}}, "additional_config": {{"enable_fused_mc2": 1, '
    '"ratio": 0.5, "sizes": [24, 48], "none": null}}, "profiler_config": {{"profiler": null}}}}'
)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """One running fake service that tells its configuration; no test here may disturb it."""
    folder = tmp_path_factory.mktemp("identity")
    expect = {
        "scheduler_config.max_num_seqs": 8,
        "additional_config.enable_fused_mc2": 1,
        "additional_config.ratio": "0.5",
        "additional_config.sizes": "[24,48]",
        "additional_config.none": "null",
    }
    spec = fake_spec(folder, "--config", CONFIG, "--reuse-port", expect=expect)
    with start(spec, folder / "service") as running:
        yield running


@pytest.fixture(scope="module")
def identity(service):
    """Its proof."""
    return service.identity()


def changed(identity, **fields):
    return msgspec.structs.replace(identity, **fields)


def test_a_service_as_asked_has_no_difference(service, identity):
    text, expected = identity.as_text(), service.expected_identity()

    assert () == identity.differences
    assert expected == {key: text[key] for key in expected}
    assert "server_info" == identity.settings_source
    assert identity.settings == service.command.expect
    assert identity.is_profiler_on is False
    assert (service.pid,) == identity.port_owners
    assert "0.0.fake" == identity.versions["served"]
    assert f"{service.pid}/{service.process_start}" == identity.process


def test_two_proofs_of_one_service_are_the_same(service, identity):
    assert [] == prove_same(identity, service.identity())


def test_proofs_of_two_services_tell_what_changed(service, identity, tmp_path):
    with start(fake_spec(tmp_path), tmp_path / "service") as second:
        keys = {line.partition(":")[0] for line in prove_same(identity, second.identity())}

    assert {"service_id", "port", "process", "processes", "port_owners", "settings"} <= keys


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        pytest.param(
            {"settings": {"additional_config.enable_fused_mc2": True}},
            "additional_config.enable_fused_mc2: asked 1, in effect True",
            id="coerced-from-1-to-true",
        ),
        pytest.param(
            {"settings": {}},
            "scheduler_config.max_num_seqs: asked 8, the running server has no such key",
            id="dropped",
        ),
        pytest.param(
            {"settings": {}, "settings_source": "log"},
            "scheduler_config.max_num_seqs: asked 8, it can't be read back",
            id="not-in-the-log",
        ),
        pytest.param(
            {"settings": None},
            "the effective configuration can't be read back",
            id="no-configuration",
        ),
        pytest.param(
            {"environment": {"FAKE": "2"}},
            "environment FAKE: asked '1', found '2'",
            id="environment-changed",
        ),
        pytest.param(
            {"environment": None}, "environment: can't be read back", id="environment-unknown"
        ),
        pytest.param(
            {"command": ("python",)}, "command line, argument 0: asked ", id="command-changed"
        ),
        pytest.param({"command": None}, "command line: can't be read back", id="command-unknown"),
        pytest.param(
            {"port_owners": ()}, "no process of the service listens on it", id="port-closed"
        ),
        pytest.param(
            {"foreign_listeners": 1},
            "a process that is not of the service listens on it",
            id="port-shared",
        ),
        pytest.param(
            {"model": None}, "model: 'fake' is not listed by the service", id="model-gone"
        ),
    ],
)
def test_a_fault_is_named_by_its_key(service, identity, fields, line):
    found = differences(changed(identity, **fields), service.command, "fake")

    assert any(line in difference for difference in found)


def test_a_setting_and_a_variable_that_nobody_asked_for_are_seen(service, identity):
    extra = {**identity.environment, "VLLM_EXTRA": "1"}
    found = differences(changed(identity, environment=extra), service.command, "fake")

    assert ("environment VLLM_EXTRA: asked None, found '1'",) == found


def test_a_foreign_listener_on_the_port_is_seen(service):
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        foreign.bind(("0.0.0.0", service.port))
        foreign.listen()
        pids = service.identity().port_owners
        # While it listens, the kernel may hand it our own questions: only the port is judged.
        count = service.identity().foreign_listeners

    assert ((service.pid,), 1) == (pids, count)


def test_a_process_of_the_service_that_is_gone_is_seen(tmp_path):
    with start(fake_spec(tmp_path, "--family"), tmp_path / "service") as service:
        before = service.identity()
        victim = next(m for m in before.processes if m.pid != service.pid)
        os.kill(victim.pid, signal.SIGKILL)
        assert eventually(lambda: not is_running(victim.pid, victim.start_ticks))
        after = service.identity()
        alive = service.alive()

    assert alive
    assert (f"process {victim.pid} ({victim.name}) of the service is gone",) == after.differences
    assert {"processes_gone", "differences"} == {
        line.partition(":")[0] for line in prove_same(before, after)
    }


def test_a_dead_service_gives_a_proof_full_of_differences_and_raises_nothing(tmp_path):
    service = start(fake_spec(tmp_path), tmp_path / "service")
    before = service.identity()
    os.kill(service.pid, signal.SIGKILL)
    died = service.wait_for_death(60)
    after = service.identity()
    healthy = service.is_healthy()
    service.stop()

    assert died
    assert not healthy
    assert (None, None, None) == (after.command, after.environment, after.model)
    assert len(after.differences) >= 5
    assert prove_same(before, after)


def test_the_environment_may_be_read_back_only_with_the_own_marker(service, identity):
    foreign = {**identity.environment, "ACCEPTANCE_SERVICE_ID": "another"}
    found = differences(changed(identity, environment=foreign), service.command, "fake")

    assert ("environment ACCEPTANCE_SERVICE_ID: asked None, found 'another'",) == found


def test_versions_are_those_of_the_servers_interpreter(service):
    found = interpreter_versions(service.command.argv, service.command.environment)
    of_a_program = interpreter_versions(("/bin/true",), {})

    assert platform.python_version() == found["python"]
    assert None not in found.values()
    assert {None} == set(of_a_program.values())
