"""The plan decides what a session showed, not what happened to be collected."""

import pytest

from acceptance.plan import Outcome, fold, parse_plan
from acceptance.protocol import Verdict


def _outcomes(**verdicts):
    return {
        name: Outcome(test=name, verdict=Verdict(verdict), reason="why")
        for name, verdict in verdicts.items()
    }


@pytest.mark.rule("P4.8")
@pytest.mark.parametrize(
    ("plan", "outcomes", "expected"),
    [
        pytest.param(["a", "b"], {"a": "PASS", "b": "PASS"}, "PASS", id="all-pass"),
        pytest.param(["a", "b"], {"a": "PASS"}, "NOT_RUN", id="one-missing"),
        pytest.param([], {"a": "PASS"}, "NOT_RUN", id="no-plan"),
        pytest.param(["a"], {"a": "PASS", "b": "FAIL"}, "FAIL", id="fail-outside-the-plan"),
        pytest.param(["a"], {"a": "PASS", "b": "INCONCLUSIVE"}, "PASS", id="open-outside"),
        pytest.param(["a", "b"], {"a": "INCONCLUSIVE", "b": "NOT_RUN"}, "INCONCLUSIVE", id="order"),
        pytest.param(["a"], {"a[x]": "PASS", "a[y]": "NOT_RUN"}, "NOT_RUN", id="all-cases"),
        pytest.param(["a"], {"ab": "PASS"}, "NOT_RUN", id="prefix-is-not-the-test"),
        pytest.param(["f.py"], {"f.py::a": "PASS", "f.py::b": "NOT_RUN"}, "NOT_RUN", id="file"),
    ],
)
def test_the_verdict_is_the_worst_over_the_plan(plan, outcomes, expected):
    assert expected == fold(plan, _outcomes(**outcomes)).verdict


def test_comments_and_blank_lines_are_no_tests():
    assert ("a::b", "c") == parse_plan("# head\n\na::b  # why\nc\n")
