"""Verdicts as pytest outcomes: exit status, plan coverage, worst of the phases.

Each test runs a whole inner pytest in a process of its own.
"""

import pytest

SUITE = """
    import pytest
    from acceptance.outcomes import inconclusive, not_run

    @pytest.fixture
    def device():
        yield
        inconclusive("P6.7: device not idle")

    def test_pass(): pass
    def test_fail(): assert 1 == 2
    def test_open(): inconclusive("P2.4: 0 of 16 workers")
    def test_not_run(): not_run("P4.3: performance is FAIL")
    def test_skip(): pytest.skip("plain")
    def test_teardown(device): pass
"""


@pytest.fixture
def run(pytester):
    pytester.makepyfile(test_suite=SUITE)

    def run(*arguments, plan=None):
        if plan is not None:
            pytester.makefile(".txt", plan="\n".join(f"test_suite.py::{t}" for t in plan))
            arguments += ("--plan", "plan.txt")
        return pytester.runpytest_subprocess(
            "-p", "acceptance.pytest_plugin", "-p", "no:cacheprovider", *arguments
        )

    return run


@pytest.mark.parametrize(
    ("plan", "select", "status"),
    [
        pytest.param(["test_pass"], "test_pass", 0, id="pass"),
        pytest.param(["test_pass"], "test_pass or test_fail", 1, id="fail-outside"),
        pytest.param(["test_open"], "test_open", 10, id="inconclusive"),
        pytest.param(["test_pass"], "test_pass or test_open", 0, id="inconclusive-outside"),
        pytest.param(["test_pass", "test_not_run"], "test_pass or test_not_run", 11, id="not-run"),
        pytest.param(["test_skip"], "test_skip", 11, id="plain-skip"),
        pytest.param(["test_teardown"], "test_teardown", 10, id="teardown-counts"),
        pytest.param(["test_pass", "test_open"], "test_pass", 11, id="deselected"),
        pytest.param(["test_pass", "test_gone"], "test_pass", 11, id="does-not-exist"),
        pytest.param(["test_pass"], "nothing", 11, id="nothing-collected"),
        pytest.param([], "test_pass", 11, id="empty-plan"),
    ],
)
def test_exit_status_is_that_of_the_plan(run, plan, select, status):
    assert status == run("-k", select, plan=plan).ret


def test_stopping_at_the_first_failure_does_not_make_the_rest_green(run):
    result = run("-x", "-k", "test_open or test_teardown", plan=["test_open", "test_teardown"])

    assert 10 == result.ret
    result.stdout.fnmatch_lines(["NOT_RUN *test_teardown: never started"])


def test_inconclusive_is_its_own_category_and_its_reason_is_shown(run):
    result = run("-k", "test_open", plan=["test_open"])

    result.stdout.fnmatch_lines(
        ["INCONCLUSIVE *test_open: P2.4: 0 of 16 workers", "*1 inconclusive*"]
    )


def test_without_the_plugins_plan_inconclusive_is_still_red(run):
    assert 1 == run("-k", "test_open").ret


def test_a_plan_that_is_not_there_is_one_line(run):
    result = run("--plan", "missing.txt")

    assert 4 == result.ret
    result.stderr.fnmatch_lines(["ERROR: missing.txt: no such plan"])
