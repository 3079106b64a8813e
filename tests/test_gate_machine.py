"""One owner of the machine at a time, and a machine that is fit before anything starts."""

import re

import psutil
import pytest

from tests.strategies.gates import SLOW, fake_profile, verify

TOO_MUCH = [
    ("memory_available_bytes_min = 1_500_000_000", f"memory_available_bytes_min = {1 << 60}")
]


@pytest.mark.rule("P6.9")
def test_a_second_gate_is_refused_in_one_line_that_names_the_first(gate):
    first = gate(fake_profile(extra=SLOW))
    first.wait_for("results/B1/service/command.json")
    status, last, output = gate(fake_profile(), run_id="run-2").end()

    assert (2, 1) == (status, len(output.strip().splitlines())), output
    assert re.search(rf"NOT_RUN run-2 .*pid {first.process.pid}.* for run run-1\)", last)
    assert not (first.runs / "run-2").exists()
    first.process.terminate()
    assert 10 == first.end()[0]
    # One level is less than the plan asks for, so a run that nobody hinders is NOT_RUN.
    assert 11 == gate(fake_profile(), run_id="run-3").end()[0]


@pytest.mark.rule("P6.9")
def test_a_stale_lease_is_explained_in_the_next_run(gate):
    first = gate(fake_profile(extra=SLOW))
    first.wait_for("results/B1/service/command.json")
    first.process.kill()
    first.process.communicate()
    for process in first.service():
        process.wait(15)
    second = gate(fake_profile(), run_id="run-2")
    status, _, output = second.end()

    assert 11 == status, output
    notes = second.json("results/B1/preflight.json")["notes"]
    assert any(f"pid {first.process.pid}" in n and "was never released" in n for n in notes)
    assert [] == second.json("results/B2/preflight.json")["problems"]


@pytest.mark.rule("P2.1")
def test_a_machine_that_is_not_fit_starts_nothing_and_is_inconclusive(gate):
    run = gate(fake_profile(changes=TOO_MUCH))
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-1 P2.1: memory: ")
    assert "needed; end what holds memory" in last
    assert not (run.run_dir / "results/B1/service").exists()
    assert 1 == len(run.json("results/B1/preflight.json")["problems"])
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P6.7")
def test_a_service_that_outlived_its_owner_is_named_and_not_ended(gate):
    first = gate(fake_profile(extra=SLOW))
    first.wait_for("results/B1/C1/attempt-1/metrics-1.txt")
    services = first.service()
    wardens = [p for p in psutil.process_iter(["cmdline"]) if _is_warden(p, first.process.pid)]
    # The warden would end the service with its owner: it is stopped, as if it had been killed.
    for warden in wardens:
        warden.suspend()
    first.process.kill()
    first.process.communicate()
    second = gate(fake_profile(), run_id="run-2")
    status, last, output = second.end()
    still = [process.is_running() for process in services]
    for process in (*wardens, *services):
        process.kill()

    assert wardens
    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-2 P2.1: service ")
    assert "outlived its owner" in last
    assert all(still)


def _is_warden(process, parent):
    return process.ppid() == parent and "acceptance.warden" in " ".join(process.cmdline())
