"""P4.3, P4.4, P4.8 on both sides of every boundary, and the record of a verdict."""

from fractions import Fraction

import msgspec
import pytest

from acceptance.exact import parse
from acceptance.judgement import Obstacle, record, scope_verdict
from acceptance.protocol import LEVELS, Verdict
from acceptance.verdict import (
    fold,
    gate_accuracy,
    gate_performance,
    judge_candidate,
    judge_final,
)

P = Fraction(20_000_000)
LIMIT = Fraction(25_000_000)
TINY = Fraction(1, 10**12)


def _candidate(gain=Fraction(0), **changes):
    """One target level with the same gain in both rounds; threshold 2 %."""
    case = {
        "levels": ("C1",),
        "targets": ("C1",),
        "parent_ns": {"C1": P},
        "b1_ns": {"C1": P * (1 - gain)},
        "b2_ns": {"C1": P * (1 - gain)},
        "thresholds": {"C1": Fraction(2, 100)},
        "limits_ns": {"C1": LIMIT},
        "path_ran": True,
    }
    return judge_candidate(**(case | changes))


# P4.4: final acceptance.


def _final(**changes):
    times = dict.fromkeys(LEVELS, P)
    case = {"levels": LEVELS, "b1_ns": times, "b2_ns": times}
    return judge_final(**(case | {"limits_ns": dict.fromkeys(LEVELS, LIMIT)} | changes))


@pytest.mark.rule("P4.4")
@pytest.mark.parametrize("level", [pytest.param(level, id=level) for level in LEVELS])
@pytest.mark.parametrize(
    ("tpot", "expected"),
    [
        pytest.param(LIMIT - TINY, ("PASS", "P4.4", "accepted"), id="just-within"),
        pytest.param(LIMIT, ("PASS", "P4.4", "accepted"), id="equal"),
        pytest.param(LIMIT + TINY, ("FAIL", "P4.4", "over-limit"), id="just-over"),
    ],
)
def test_each_level_must_keep_the_absolute_target(level, tpot, expected):
    judgement = _final(
        b1_ns={**dict.fromkeys(LEVELS, P), level: tpot - 7},
        b2_ns={**dict.fromkeys(LEVELS, P), level: tpot + 7},
    )

    assert expected == (judgement.verdict.value, judgement.rule, judgement.cause.value)
    assert (level if expected[0] == "FAIL" else None) == judgement.level


@pytest.mark.rule("P4.4")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"b1_ns": {"C1": P, "C4": P}}, id="level-missing"),
        pytest.param({"b2_ns": {}}, id="round-missing"),
        pytest.param({"b2_ns": {"C1": P, "C4": P, "C16": None}}, id="level-unknown"),
        pytest.param({"limits_ns": {}}, id="no-target"),
        pytest.param({"levels": ()}, id="no-level"),
        pytest.param({"b1_ns": {"C1": P, "C4": Fraction(0), "C16": P}}, id="zero-time"),
        pytest.param(
            {"obstacles": [Obstacle(rule="P4.1", level="C1", reason="no-done")]}, id="invalid"
        ),
        pytest.param({"b1_ns": {"C1": 9 * LIMIT}, "b2_ns": {"C1": 9 * LIMIT}}, id="over-and-open"),
    ],
)
def test_final_acceptance_needs_two_complete_rounds(changes):
    judgement = _final(**changes)

    assert (Verdict.INCONCLUSIVE, "P4.4") == (judgement.verdict, judgement.rule)
    assert judgement.reason


@pytest.mark.rule("P4.4")
def test_every_level_is_a_target_of_final_acceptance():
    assert [True, True, True] == [one.is_target for one in _final().levels]


# P4.3, P7.4: what may run at all.


@pytest.mark.rule("P4.3")
@pytest.mark.parametrize(
    ("performance", "runs"),
    [
        pytest.param(Verdict.PASS, True, id="PASS"),
        pytest.param(Verdict.FAIL, False, id="FAIL"),
        pytest.param(Verdict.INCONCLUSIVE, False, id="INCONCLUSIVE"),
        pytest.param(Verdict.NOT_RUN, False, id="NOT_RUN"),
        pytest.param(None, False, id="no-verdict"),
    ],
)
def test_accuracy_runs_only_after_a_performance_pass(performance, runs):
    stopped = gate_accuracy(performance)

    assert runs is (stopped is None)
    assert runs or (Verdict.NOT_RUN, "P4.3") == (stopped.verdict, stopped.rule)


@pytest.mark.rule("P4.3")
def test_accuracy_that_did_not_run_says_which_rule_stopped_it():
    stopped = gate_accuracy(_candidate())

    assert "performance is FAIL (P4.2.6)" == stopped.reason
    assert gate_accuracy(_final()) is None


@pytest.mark.rule("P7.4")
@pytest.mark.parametrize(
    ("component", "is_withdrawn", "rule"),
    [
        pytest.param(Verdict.PASS, False, None, id="passed"),
        pytest.param(Verdict.PASS, True, "P7.4", id="withdrawn"),
        pytest.param(Verdict.FAIL, True, "P7.4", id="failed-and-withdrawn"),
        pytest.param(Verdict.FAIL, False, "P7.1", id="failed"),
        pytest.param(Verdict.INCONCLUSIVE, False, "P7.1", id="open"),
    ],
)
def test_performance_that_was_not_tried_is_not_run_and_never_fail(component, is_withdrawn, rule):
    stopped = gate_performance(component=component, is_withdrawn=is_withdrawn)

    assert rule == (stopped and stopped.rule)
    assert stopped is None or Verdict.NOT_RUN is stopped.verdict


# P4.8: the fold.

PASSED = _final()
FAILED = _final(b1_ns=dict.fromkeys(LEVELS, 9 * LIMIT))
OPEN = _final(b1_ns={})
NOT_RUN = gate_accuracy(None)


@pytest.mark.rule("P4.8")
@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        pytest.param((PASSED, PASSED, PASSED), ("PASS", "performance"), id="all-pass"),
        pytest.param((PASSED, PASSED, None), ("NOT_RUN", "function"), id="one-without-verdict"),
        pytest.param((PASSED, NOT_RUN, PASSED), ("NOT_RUN", "accuracy"), id="one-not-run"),
        pytest.param((PASSED, NOT_RUN, OPEN), ("INCONCLUSIVE", "function"), id="open-over-not-run"),
        pytest.param((OPEN, NOT_RUN, FAILED), ("FAIL", "function"), id="fail-over-all"),
        pytest.param((FAILED, FAILED, OPEN), ("FAIL", "performance"), id="first-of-equals"),
    ],
)
def test_the_overall_verdict_is_the_worst_planned_scope(scopes, expected):
    names = ("performance", "accuracy", "function")

    overall = fold(dict(zip(names, scopes, strict=True)), names)

    assert expected == (overall.verdict.value, overall.decided_by)
    assert overall.is_final_acceptance is (expected[0] == "PASS")


@pytest.mark.rule("P4.8")
def test_a_scope_that_is_not_planned_decides_nothing_and_makes_no_final_acceptance():
    overall = fold({"performance": PASSED, "accuracy": FAILED}, ("performance",))

    assert (Verdict.PASS, False) == (overall.verdict, overall.is_final_acceptance)


@pytest.mark.rule("P4.8")
def test_no_planned_scope_is_not_run():
    overall = fold({"performance": PASSED}, ())

    assert (Verdict.NOT_RUN, None) == (overall.verdict, overall.decided_by)


@pytest.mark.rule("P4.4")
def test_a_candidate_that_passed_everything_is_not_a_final_acceptance():
    scopes = {"performance": _candidate(Fraction(1, 10)), "accuracy": PASSED, "function": PASSED}

    overall = fold(scopes, scopes)

    assert (Verdict.PASS, False) == (overall.verdict, overall.is_final_acceptance)


# The records.


@pytest.mark.rule("P4.6")
def test_the_record_holds_every_input_exactly():
    third = Fraction(1, 3)
    written = msgspec.json.encode(record("performance", _candidate(third)))
    level = msgspec.json.decode(written)["levels"][0]

    assert ["20000000/1", "40000000/3", "40000000/3", "40000000/3"] == [
        level[key] for key in ("parent_ns", "b1_ns", "b2_ns", "tpot_ns")
    ]
    assert (third, third, third) == tuple(
        map(parse, (level["g1"], level["g2"], level["gain_median"]))
    )
    assert "1/50" == level["threshold"]


@pytest.mark.rule("P6.5")
def test_what_is_unknown_is_written_as_null():
    level = msgspec.to_builtins(record("performance", _candidate(b2_ns={})))["levels"][0]

    assert (None, None, None) == (level["b2_ns"], level["g1"], level["tpot_ns"])


def test_a_scope_has_a_known_name():
    assert "accuracy" == scope_verdict("accuracy", NOT_RUN).scope
    with pytest.raises(ValueError, match="unknown scope 'component'"):
        scope_verdict("component", NOT_RUN)
