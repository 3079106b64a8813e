"""The functional stage of the gate on the stand-in: each check shown to find its fault (P7.5)."""

import pytest

from tests.strategies.gates import function_profile, verify

CHECKS = 11


@pytest.mark.rule("P7.5")
def test_every_kind_of_request_is_asked_of_the_measured_service(gate):
    run = gate(function_profile())
    status, last, output = run.end()

    assert 0 == status, output
    assert last.startswith("PASS run-1 scope: performance, function; accuracy NOT_RUN")
    found = run.json("results/function/function.json")
    assert CHECKS == len(found["checks"])
    assert {"PASS"} == {check["verdict"] for check in found["checks"]}
    measured = run.json("results/B2/C16/attempt-1/attempt.json")
    assert measured["service_id"] == found["service_id"]
    assert (run.run_dir / "results/function/chat-03.raw").stat().st_size > 0
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P7.5")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param("no-prefix-cache", "prefix-second: cached_tokens is 0", id="prefix"),
        pytest.param("one-template", "thinking-switch: ", id="thinking"),
        pytest.param("short-prompt", "long-prompt: a prompt of 99 tokens", id="long-prompt"),
        pytest.param("keeps-aborted", "abort: 1 requests in the service", id="abort"),
    ],
)
def test_a_function_that_fails_fails_the_gate_and_the_validator_agrees(gate, fault, says):
    run = gate(function_profile(fault))
    status, last, output = run.end()

    assert 1 == status, output
    assert last.startswith(f"FAIL run-1 P7.5: {says}")
    scopes = {s["scope"]: s["verdict"] for s in run.json("results/figures.json")["scopes"]}
    assert ("PASS", "FAIL") == (scopes["performance"], scopes["function"])
    assert 0 == verify(run.run_dir)[0]
