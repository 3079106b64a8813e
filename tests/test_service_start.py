"""A service that starts, and every way in which one does not: one line, and nothing left."""

import json
import os
import socket

import pytest

from acceptance.errors import RunFailure, UsageError
from acceptance.processes import all_processes, environment
from acceptance.service import check, start
from acceptance.service.spec import MARKER, expand, is_free
from acceptance.testing.services import fake_spec


def heirs():
    """Whatever runs of a fake service that this test session started."""
    found = (environment(process.pid) or {} for process in all_processes() if process.is_running)
    return [env for env in found if MARKER in env and env.get("FAKE") == str(os.getpid())]


@pytest.fixture
def spec(tmp_path):
    """A spec whose processes can be told from those of other tests."""

    def make(*options, **changes):
        made = fake_spec(tmp_path, *options, **changes)
        made.environment["FAKE"] = str(os.getpid())
        return made

    return make


def refused(spec, directory):
    with pytest.raises((RunFailure, UsageError)) as caught:
        start(spec, directory)
    assert [] == heirs()
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_start_is_timed_phase_by_phase_and_its_probe_recorded(spec, tmp_path):
    with start(spec(), tmp_path / "service") as service:
        startup = json.loads((tmp_path / "service/startup.json").read_bytes())
        alive, healthy = service.alive(), service.is_healthy()

    assert (True, True) == (alive, healthy)
    phases = startup["phases"]
    assert ["spawn", "port", "health", "models", "probe"] == [p["name"] for p in phases]
    assert [0, *(p["end_ns"] for p in phases[:-1])] == [p["begin_ns"] for p in phases]
    assert [[0, 1, 2, 3]] == [probe["token_ids"] for probe in startup["probes"]]


def test_a_server_gets_what_is_declared_and_nothing_else(spec, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    with start(spec(), tmp_path / "service") as service:
        got = environment(service.pid)

    assert {"FAKE", "PATH", MARKER} == got.keys() - {"LC_CTYPE"}
    command = json.loads((tmp_path / "service/command.json").read_bytes())
    assert {"FAKE", "PATH"} == command["environment"].keys()


def test_a_fixed_port_that_is_taken_is_refused_and_nothing_starts(spec, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(spec(port=port), tmp_path / "service")

    assert isinstance(error, UsageError)
    assert f"port {port} on 127.0.0.1 is taken" in str(error)
    assert not (tmp_path / "service").exists()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_port_that_is_taken_on_the_other_loopback_address_is_not_free():
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::1", 0))
        port = other.getsockname()[1]
        before = is_free(port)
        other.listen()

        assert (True, False) == (before, is_free(port))


def test_a_fixed_port_that_is_free_is_used(spec, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with start(spec(port=port), tmp_path / "service") as service:
        assert port == service.port


def test_a_model_directory_without_config_is_refused(spec, tmp_path):
    made = spec()
    (tmp_path / "model/config.json").unlink()

    error = refused(made, tmp_path / "service")
    assert f"{tmp_path}/model/config.json: not there" in str(error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"argv": ("{python}", "{modle}")}, "{modle}", id="unknown-placeholder"),
        pytest.param({"argv": ("{python}", '{"a": 1}')}, "double a brace", id="undoubled-brace"),
        pytest.param({"argv": ("no-such-program",)}, "no-such-program", id="no-program"),
        pytest.param({"argv": ()}, "empty", id="no-argv"),
        pytest.param({"inherit": ("PATH", "FAKE")}, "FAKE is set and inherited", id="set-twice"),
    ],
)
def test_a_command_that_can_not_be_right_is_refused(spec, change, message):
    made = spec()
    fields = {name: getattr(made, name) for name in made.__slots__}

    with pytest.raises(UsageError, match="service") as caught:
        check(type(made)(**{**fields, **change}))
    assert message in str(caught.value)


def test_doubled_braces_reach_the_server_as_single_ones(spec):
    made = spec("--config", '{{"a": 1}}')

    assert '{"a": 1}' == expand(made, 1)[-1]


def test_a_directory_is_used_for_one_service_only(spec, tmp_path):
    with start(spec(), tmp_path / "service"):
        pass

    assert "a service was started for it before" in str(refused(spec(), tmp_path / "service"))


def test_an_early_end_is_told_with_the_last_meaningful_line_of_the_log(spec, tmp_path):
    said = "(EngineCore pid=7) ERROR 12-01 04:45:22 [core.py:133] ValueError: no such layer"
    error = refused(spec("--say", said, "--exit", "3"), tmp_path / "service")

    assert "P6.7" == error.rule
    assert "ended with exit status 3 in phase port: ValueError: no such layer (log:" in str(error)
    stop = json.loads((tmp_path / "service/stop.json").read_bytes())
    assert ("REAPED", "itself", 3) == (stop["state"], stop["how"], stop["exit_status"])


def test_a_server_that_never_listens_is_ended_when_its_time_is_up(spec, tmp_path):
    made = spec("--deaf", "--say", "loading", startup_timeout_s=0.5)
    error = refused(made, tmp_path / "service")

    assert "P6.7" == error.rule
    assert "not ready after 0.5 s, it hangs in phase port" in str(error)


@pytest.mark.parametrize(
    ("options", "rule", "message"),
    [
        pytest.param(("--root", "/elsewhere"), "P4.1", "is served from /elsewhere", id="root"),
        pytest.param(("--served-model-name", "b"), "P4.1", "does not list 'fake'", id="name"),
        pytest.param(("--probe-status", "500"), "P6.7", "probe of rank 0: HTTP 500", id="probe"),
    ],
)
def test_a_server_that_answers_wrongly_is_refused(spec, tmp_path, options, rule, message):
    error = refused(spec(*options), tmp_path / "service")

    assert rule == error.rule
    assert message in str(error)


def test_a_port_shared_with_a_foreign_server_is_refused(spec, tmp_path, monkeypatch):
    # SO_REUSEPORT lets both bind, and the kernel deals connections out to either (vLLM sets it).
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        monkeypatch.setattr("acceptance.service.runner.free_port", lambda: port)
        error = refused(spec("--reuse-port"), tmp_path / "service")

    assert "P4.1" == error.rule
    assert f"port {port} is listened on by a process that is not of this service" in str(error)
