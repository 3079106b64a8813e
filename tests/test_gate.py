"""The whole gate, from the command to the sealed archive, on a stand-in service with faults.

Each case is a process of its own, as a user would start it. The service under test is
`acceptance.testing.fake_vllm`; that real vLLM goes the same way is shown in `tests_service/`.
"""

import json
import signal
import time

import pytest

from tests.strategies.gates import ALL, SLOW, asking_profile, fake_profile, verify


@pytest.mark.rule("P4.4")
def test_a_clean_run_passes_and_its_archive_verifies_until_a_byte_is_flipped(gate):
    run = gate(fake_profile(levels=ALL))
    status, last, output = run.end()

    assert 0 == status, output
    assert last.startswith("PASS run-1 scope: performance; accuracy NOT_RUN: ")
    assert last.endswith("not a final acceptance")
    assert 0 == verify(run.run_dir)[0]
    assert ["REAPED", "REAPED"] == [
        run.json(f"results/{name}/service/stop.json")["state"] for name in ("B1", "B2")
    ]
    spans = (run.run_dir / "plan/time-ledger.jsonl").read_text().splitlines()
    assert {"open", "done"} == {json.loads(line)["status"] for line in spans}
    assert [] == run.json("results/time-summary.json")["problems"]
    for name in ("manifest.json", "manifest.sha256", "results/figures.json", "plan/runspec.json",
                 "results/B2/C4/attempt-1/measured-03.raw", "results/report.md"):  # fmt: skip
        path = run.run_dir / name
        good = path.read_bytes()
        path.write_bytes(good[:9] + bytes([good[9] ^ 1]) + good[10:])
        status, says = verify(run.run_dir)
        path.write_bytes(good)
        assert (1, True) == (status, name.rpartition("/")[2] in says), (name, says)
    (run.run_dir / "results/extra").touch()
    assert 1 == verify(run.run_dir)[0]


@pytest.mark.rule("P5.4")
@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        pytest.param({"wrong": 1}, 0, "PASS run-1 scope: performance, accuracy", id="enough"),
        pytest.param({"wrong": 2}, 1, "FAIL run-1 P5.4: ", id="too-few"),
        pytest.param({"fault": "chat-no-done"}, 10, "INCONCLUSIVE run-1 P5.4: ", id="failed"),
        pytest.param({"target": "0.001"}, 1, "FAIL run-1 P4.4: ", id="performance-failed"),
    ],
)
def test_the_questions_are_asked_of_the_measured_service(gate, options, status, says):
    run = gate(asking_profile(**options))
    found, last, output = run.end()

    assert (status, says) == (found, last[: len(says)]), output
    assert 0 == verify(run.run_dir)[0]
    scopes = {s["scope"]: s["verdict"] for s in run.json("results/figures.json")["scopes"]}
    if "target" in options:
        assert "NOT_RUN" == scopes["accuracy"]
        assert not (run.run_dir / "results/accuracy").exists()
    else:
        asked = run.json("results/accuracy/accuracy.json")
        measured = run.json("results/B2/C16/attempt-1/attempt.json")
        assert asked["service_id"] == measured["service_id"]
        assert asked["before"]["identity_sha256"] == asked["measured_identity_sha256"]


@pytest.mark.rule("P3.1")
def test_same_service_runs_both_rounds_on_one_start_without_a_second_warm_up(gate):
    run = gate(fake_profile(rounds="same-service", levels=ALL))
    status, last, output = run.end()

    assert 0 == status, output
    assert last.startswith("PASS")
    assert not (run.run_dir / "results/B2/service/stop.json").exists()
    waves = {
        name: [w["kind"] for w in run.json(f"results/{name}/C4/attempt-1/attempt.json")["waves"]]
        for name in ("B1", "B2")
    }
    assert {"B1": ["warmup", "measured"], "B2": ["measured"]} == waves
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P4.4")
def test_a_service_over_its_target_fails(gate):
    status, last, _ = gate(
        fake_profile(levels=("C1", "C4"), changes=[('C4 = "1000"', 'C4 = "0.001"')])
    ).end()

    assert (1, True) == (status, last.startswith("FAIL run-1 P4.4: C4: TPOT"))


@pytest.mark.rule("P4.1")
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        pytest.param("no-done", "no-done", id="no-done"),
        pytest.param("error-frame", "error-frame", id="error-frame"),
        pytest.param("short", "token-count", id="short"),
        pytest.param("cached", "cached-tokens", id="cached"),
        pytest.param("foreign", "foreign-traffic", id="foreign"),
        pytest.param("preempt", "preemptions", id="preempt"),
    ],
)
def test_a_fault_of_the_service_makes_the_run_inconclusive_with_its_reason(gate, fault, code):
    run = gate(fake_profile(fault=fault))
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-1")
    assert code in last
    assert [] == run.service()
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P3.7")
def test_an_invalid_level_is_run_again_as_a_new_attempt_and_both_are_kept(gate):
    run = gate(fake_profile(fault="short", attempts=2))
    status, _, output = run.end()

    assert 10 == status, output
    second = run.json("results/B1/C1/attempt-2/attempt.json")
    assert ("attempt-1", True) == (second["previous"], "token-count" in second["reason"])
    first = run.json("results/B1/C1/attempt-1/attempt.json")
    salts = [r["cache_salt"] for a in (first, second) for w in a["waves"] for r in w["requests"]]
    assert len(salts) == len(set(salts))


@pytest.mark.rule("P4.1")
def test_a_server_that_is_killed_in_a_measured_wave(gate):
    run = gate(fake_profile(extra=SLOW, levels=("C4",)))
    run.wave("B1", "C4")
    for process in run.service():
        process.kill()
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE")
    assert [] == run.service()
    attempt = run.json("results/B1/C4/attempt-1/attempt.json")
    assert 4 == len(attempt["waves"][1]["requests"])
    assert (run.run_dir / "results/B1/C4/attempt-1/measured-00.raw").stat().st_size > 0
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P3.7")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interruption_keeps_the_evidence_and_leaves_nothing_running(gate, number):
    run = gate(fake_profile(extra=SLOW, levels=("C4",)))
    run.wave("B1", "C4")
    began = time.monotonic()
    run.process.send_signal(number)
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-1 P3.7: interrupted")
    assert time.monotonic() - began < 10
    assert [] == run.service()
    waves = run.json("results/B1/C4/attempt-1/attempt.json")["waves"]
    assert {"aborted"} == {request["outcome"] for request in waves[1]["requests"]}
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P6.7")
def test_a_killed_gate_leaves_no_service(gate):
    run = gate(fake_profile(extra=SLOW))
    run.wave("B1", "C1")
    run.process.kill()
    run.process.communicate()
    deadline = time.monotonic() + 15
    while run.service() and time.monotonic() < deadline:
        time.sleep(0.1)

    assert [] == run.service()


@pytest.mark.rule("P6.7")
def test_a_service_that_ignores_sigterm_is_reaped_all_the_same(gate):
    run = gate(fake_profile(fault="ignore-sigterm", levels=ALL))
    status, _, output = run.end()

    assert 0 == status, output
    assert "REAPED" == run.json("results/B1/service/stop.json")["state"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param("die-at-start", "no memory for the KV cache", id="dies"),
        pytest.param("wrong-name", "somebody-else", id="another-model"),
    ],
)
def test_a_service_that_does_not_come_up_is_inconclusive_in_one_line(gate, fault, says):
    run = gate(fake_profile(fault=fault))
    status, last, output = run.end()

    assert 10 == status, output
    assert says in last
    assert 0 == verify(run.run_dir)[0]


def test_a_request_that_can_not_be_served_is_one_line_and_starts_nothing(gate, tmp_path):
    runs = tmp_path / "runs"
    for changes, says in [
        ([("barrier_s", "barrier_z")], "`barrier_z` in [timeouts]"),
        ([("@MODEL@", "/nowhere")], "/nowhere/config.json: not there"),
    ]:
        status, last, output = gate(fake_profile(changes=changes)).end()
        assert (2, 1) == (status, len(output.strip().splitlines())), output
        assert last.startswith("NOT_RUN ")
        assert says in last
    assert [] == [path for path in runs.glob("*") if not path.name.startswith(".")]


def test_a_taken_port_and_a_used_run_id_are_one_line(gate, tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        change = ("startup_timeout_s", f"port = {port}\nstartup_timeout_s")
        status, last, output = gate(fake_profile(changes=[change])).end()
        assert (2, 1) == (status, len(output.strip().splitlines())), output
        assert f"port {port}" in last
    (tmp_path / "runs/run-1").mkdir(parents=True, exist_ok=True)
    status, last, output = gate(fake_profile()).end()
    assert (2, 1) == (status, len(output.strip().splitlines())), output
    assert "was used" in last
