"""Ways to make the gate say more than was measured; each must end in less than PASS or FAIL."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.strategies.gates import ALL, ROOT, SLOW, fake_profile, verify


def _gate(tmp_path, model, text, *, env=(), run_id="run-1", more=()):
    """The gate as a finished process: (exit status, last line of stdout)."""
    profile = tmp_path / "fake.toml"
    profile.write_text(text.replace("@MODEL@", str(model)))
    done = subprocess.run(
        [sys.executable, "-m", "acceptance", "gate", "--profile", str(profile),
         "--run-id", run_id, *more],
        cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "ACCEPTANCE_RUNS": str(tmp_path / "runs"), **dict(env)},
    )  # fmt: skip
    return done.returncode, done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("name", ["PYTEST_ADDOPTS", "PYTEST_PLUGINS"])
def test_options_from_the_environment_are_refused(tmp_path, model, name):
    status, last = _gate(tmp_path, model, fake_profile(), env={name: "-k nothing"}.items())

    assert (2, True) == (status, f"{name} is set" in last)


def test_a_plan_beside_the_profiles_own_is_refused(tmp_path, model):
    profile, plan = tmp_path / "fake.toml", tmp_path / "plan.txt"
    profile.write_text(fake_profile().replace("@MODEL@", str(model)))
    plan.write_text("tests_service/test_acceptance.py::test_service_starts[B1]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "acceptance", "--profile", str(profile),
         "--plan", str(plan), "-k", "test_service_starts", "tests_service/test_acceptance.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ACCEPTANCE_RUNS": str(tmp_path / "runs")},
    )  # fmt: skip

    assert 4 == done.returncode
    assert "--plan: the profile names its plan" in done.stderr
    assert not list((tmp_path / "runs").glob("run*"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(
            'usage = "required"', 'usage = "not_applicable: I say so"',
            "rule `usage` must be `required`", id="rule",
        ),
        pytest.param(
            'plan = "gate-performance"', 'plan = "../../mine"', "plan '../../mine'", id="plan"
        ),
    ],
)  # fmt: skip
def test_a_profile_can_not_excuse_itself(tmp_path, model, old, new, says):
    status, last = _gate(tmp_path, model, fake_profile(changes=[(old, new)]))

    assert (2, True) == (status, says in last), last


@pytest.mark.rule("P4.4")
def test_a_run_on_a_profile_of_ones_own_says_so(tmp_path, model):
    status, last = _gate(tmp_path, model, fake_profile(levels=ALL))

    assert 0 == status, last
    assert last.endswith("a profile of your own; not a final acceptance")


def test_a_reader_that_leaves_does_not_change_the_verdict(gate):
    run = gate(fake_profile(fault="no-done"))
    run.process.stdout.readline()
    run.process.stdout.close()
    assert 10 == run.process.wait(timeout=120)

    assert "INCONCLUSIVE" == run.json("results/verdict.json")["verdict"]
    assert 0 == verify(run.run_dir)[0]
    assert [] == run.service()


@pytest.mark.rule("P3.7")
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([signal.SIGINT, signal.SIGINT, signal.SIGINT], id="impatient"),
        pytest.param([signal.SIGHUP], id="terminal-closed"),
        pytest.param([signal.SIGTERM, signal.SIGINT], id="both"),
    ],
)
def test_no_signal_keeps_an_interrupted_run_from_being_sealed(gate, numbers):
    run = gate(fake_profile(extra=SLOW, levels=("C4",)))
    run.wave("B1", "C4")
    for number in numbers:
        run.process.send_signal(number)
        time.sleep(0.15)  # what a person does
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-1 P3.7: interrupted")
    assert 0 == verify(run.run_dir)[0]
    assert [] == run.service()


def test_a_timeout_of_the_test_runner_is_no_verdict_on_the_candidate(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.acceptance
        def test_step():
            pytest.fail("Timeout (>600.0s) from pytest-timeout.")
        """
    )
    pytester.makefile(".txt", plan="test_a_timeout_of_the_test_runner_is_no_verdict_on_the_"
                      "candidate.py::test_step")  # fmt: skip
    result = pytester.runpytest_subprocess(
        "-p", "acceptance.pytest_plugin", "-p", "no:cacheprovider", "--plan", "plan.txt"
    )

    assert 10 == result.ret


@pytest.mark.rule("P2.1")
def test_a_file_added_to_the_checkpoint_after_freezing_is_named(gate, model):
    run = gate(fake_profile(extra=SLOW, levels=("C1", "C4")))
    run.wave("B1", "C1")
    added = model / "generation_config.json"
    added.write_text("{}")
    try:
        status, last, output = run.end()
    finally:
        added.unlink()

    assert 10 == status, output
    assert "weights" in last or "generation_config.json (added)" in last, last
