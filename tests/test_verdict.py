"""P4.2 rule by rule, on both sides of every boundary, in exact numbers.

In all cases here a level's parent is 20 ms/token, its threshold 2 %, its limit 25 ms.
"""

from fractions import Fraction

import pytest

from acceptance.judgement import Cause, Obstacle
from acceptance.protocol import LEVELS, Verdict
from acceptance.verdict import judge_candidate

P = Fraction(20_000_000)
THRESHOLD = Fraction(2, 100)
LIMIT = Fraction(25_000_000)
TINY = Fraction(1, 10**12)
SHOWN = (Fraction(3, 100), Fraction(4, 100))
"""Two gains that pass by themselves."""


def _candidate(gains=None, targets=("C1",), **changes):
    """Judge gains (g1, g2) per level; a level that is not named has gains of 0."""
    gains = {level: (Fraction(0), Fraction(0)) for level in LEVELS} | (gains or {})
    parent = changes.get("parent_ns") or dict.fromkeys(LEVELS, P)
    case = {
        "levels": LEVELS,
        "targets": targets,
        "parent_ns": dict.fromkeys(LEVELS, P),
        "b1_ns": {level: (parent.get(level) or P) * (1 - g1) for level, (g1, _) in gains.items()},
        "b2_ns": {level: (parent.get(level) or P) * (1 - g2) for level, (_, g2) in gains.items()},
        "thresholds": dict.fromkeys(LEVELS, THRESHOLD),
        "limits_ns": dict.fromkeys(LEVELS, LIMIT),
        "path_ran": True,
    }
    return judge_candidate(**(case | changes))


def _said(judgement):
    return judgement.verdict.value, judgement.rule, judgement.cause.value, judgement.level


# P4.2.1: what is missing or impossible.


def _without(level, times):
    return {key: value for key, value in times.items() if key != level}


@pytest.mark.rule("P4.2.1")
@pytest.mark.parametrize("level", [pytest.param(level, id=level) for level in LEVELS])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("parent_ns", id="parent"),
        pytest.param("b1_ns", id="B1"),
        pytest.param("b2_ns", id="B2"),
        pytest.param("thresholds", id="threshold"),
        pytest.param("limits_ns", id="limit"),
    ],
)
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("absent", id="absent"),
        pytest.param(None, id="unknown"),
        pytest.param(Fraction(0), id="zero"),
        pytest.param(Fraction(-1), id="negative"),
    ],
)
def test_a_missing_or_impossible_figure_of_any_level_is_inconclusive(level, name, bad):
    fine = dict.fromkeys(LEVELS, THRESHOLD if name == "thresholds" else P)
    times = _without(level, fine) if bad == "absent" else {**fine, level: bad}

    judgement = _candidate({"C1": SHOWN}, **{name: times})

    assert ("INCONCLUSIVE", "P4.2.1", "evidence", level) == _said(judgement)


@pytest.mark.rule("P4.2.1")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"parent_ns": None}, "C1: P is missing", id="no-parent"),
        pytest.param({"thresholds": None}, "C1: the threshold is missing", id="no-calibration"),
        pytest.param({"targets": ()}, "no target level", id="no-target"),
        pytest.param({"targets": ("C1", "C32")}, "C32 is no level", id="foreign-target"),
        pytest.param({"levels": (), "targets": ("C1",)}, "no level is planned", id="no-level"),
        pytest.param(
            {"obstacles": [Obstacle(rule="P2.6", level="C4", reason="3 preemptions")]},
            "C4: 3 preemptions (P2.6)",
            id="invalid-level",
        ),
        pytest.param(
            {"obstacles": [Obstacle(rule="P3.1", level=None, reason="rounds differ in kind")]},
            "rounds differ in kind (P3.1)",
            id="not-comparable",
        ),
    ],
)
def test_evidence_that_cannot_be_used_is_inconclusive(changes, reason):
    judgement = _candidate({"C1": SHOWN}, **changes)

    assert (Verdict.INCONCLUSIVE, "P4.2.1") == (judgement.verdict, judgement.rule)
    assert reason in judgement.reason


@pytest.mark.rule("P4.5")
@pytest.mark.parametrize(
    ("threshold", "rule"),
    [
        pytest.param(Fraction(1, 100), "P4.2.4", id="exactly-the-floor"),
        pytest.param(Fraction(1, 100) - TINY, "P4.2.1", id="below-the-floor"),
    ],
)
def test_a_threshold_below_the_floor_of_a_calibration_is_none(threshold, rule):
    thresholds = dict.fromkeys(LEVELS, threshold)

    assert rule == _candidate({"C1": SHOWN}, thresholds=thresholds).rule


@pytest.mark.rule("P4.2.1")
def test_a_time_is_possible_as_soon_as_it_is_positive():
    scaled = {"C1": TINY, "C4": TINY, "C16": TINY}
    faster = {level: TINY * Fraction(9, 10) for level in LEVELS}

    judgement = _candidate(parent_ns=scaled, b1_ns=faster, b2_ns=faster, limits_ns=scaled)

    assert "P4.2.4" == judgement.rule


@pytest.mark.rule("P4.2.1")
def test_missing_evidence_comes_before_any_regression():
    judgement = _candidate({"C16": (Fraction(-9, 10), Fraction(-9, 10))}, b2_ns={"C1": P})

    assert "P4.2.1" == judgement.rule


@pytest.mark.rule("P7.3")
@pytest.mark.parametrize(
    ("path_ran", "b2_ns", "expected"),
    [
        pytest.param(False, None, ("INCONCLUSIVE", "P7.3", "path-not-run", None), id="not-run"),
        pytest.param(False, {}, ("INCONCLUSIVE", "P7.3", "path-not-run", None), id="stopped-early"),
        pytest.param(None, None, ("INCONCLUSIVE", "P7.3", "path-not-run", None), id="unknown"),
        pytest.param(None, {}, ("INCONCLUSIVE", "P4.2.1", "evidence", "C1"), id="unknown-no-run"),
    ],
)
def test_a_path_that_is_not_shown_decides_before_all_gains(path_ran, b2_ns, expected):
    changes = {} if b2_ns is None else {"b2_ns": b2_ns}
    gains = {"C1": SHOWN, "C16": (Fraction(-9, 10), Fraction(-9, 10))}

    assert expected == _said(_candidate(gains, path_ran=path_ran, **changes))


# P4.2.2: slower, or over the limit.


@pytest.mark.rule("P4.2.2")
@pytest.mark.parametrize("level", [pytest.param(level, id=level) for level in LEVELS])
@pytest.mark.parametrize(
    ("median", "expected"),
    [
        pytest.param(-THRESHOLD - TINY, ("FAIL", "P4.2.2", "slower"), id="just-below"),
        pytest.param(-THRESHOLD, ("PASS", "P4.2.4", "accepted"), id="equal"),
        pytest.param(-THRESHOLD + TINY, ("PASS", "P4.2.4", "accepted"), id="just-above"),
    ],
)
def test_a_median_below_minus_the_threshold_fails_at_any_level(level, median, expected):
    other = "C1" if level != "C1" else "C4"
    spread = Fraction(1, 1000)

    judgement = _candidate(
        {other: SHOWN, level: (median - spread, median + spread)}, targets=(other,)
    )

    assert expected == _said(judgement)[:3]
    assert (level if expected[0] == "FAIL" else other) == judgement.level


@pytest.mark.rule("P4.2.2")
@pytest.mark.parametrize(
    ("parent", "tpot", "expected"),
    [
        pytest.param(LIMIT, LIMIT, ("PASS", "accepted"), id="limit-limit"),
        pytest.param(LIMIT, LIMIT * (1 + TINY), ("FAIL", "over-limit"), id="limit-just-over"),
        pytest.param(LIMIT * (1 + TINY), LIMIT * (1 + TINY), ("PASS", "accepted"), id="over-over"),
        pytest.param(LIMIT * (1 - TINY), LIMIT, ("PASS", "accepted"), id="under-limit"),
        pytest.param(
            LIMIT * (1 - TINY), LIMIT * (1 + TINY), ("FAIL", "over-limit"), id="under-over"
        ),
    ],
)
def test_a_level_that_the_parent_held_may_not_be_lost(parent, tpot, expected):
    parents = {"C1": P, "C4": parent, "C16": P}
    one, two = tpot - 5, tpot + 5
    b = {"C1": P * Fraction(97, 100), "C16": P}

    judgement = _candidate(parent_ns=parents, b1_ns={**b, "C4": one}, b2_ns={**b, "C4": two})

    assert expected == (judgement.verdict.value, judgement.cause.value)


@pytest.mark.rule("P4.2.2")
def test_one_round_over_the_limit_is_not_the_median_over_it():
    parents = {**dict.fromkeys(LEVELS, P), "C4": LIMIT}
    b1 = {"C1": P * Fraction(97, 100), "C4": LIMIT * Fraction(101, 100), "C16": P}
    b2 = {"C1": P * Fraction(97, 100), "C4": LIMIT * Fraction(99, 100), "C16": P}

    assert "P4.2.4" == _candidate(parent_ns=parents, b1_ns=b1, b2_ns=b2).rule


@pytest.mark.rule("P4.2.2")
def test_a_regression_is_told_at_every_level_that_has_one():
    lost = (Fraction(-5, 100), Fraction(-7, 100))
    parents = {"C1": P, "C4": LIMIT, "C16": P}

    judgement = _candidate({"C1": SHOWN, "C4": lost, "C16": lost}, parent_ns=parents)

    assert ("FAIL", "P4.2.2", "slower", "C4") == _said(judgement)
    assert judgement.reason.count("C4: ") == 2, "slower and over the limit"
    assert judgement.reason.count("C16: ") == 1


@pytest.mark.rule("P4.2.2")
def test_a_regression_comes_before_opposite_signs():
    gains = {"C1": (Fraction(1, 100), Fraction(-1, 100)), "C4": (-2 * THRESHOLD, -2 * THRESHOLD)}

    assert "P4.2.2" == _candidate(gains).rule


# P4.2.3: opposite signs on a target.


@pytest.mark.rule("P4.2.3")
@pytest.mark.parametrize(
    ("g1", "g2", "expected"),
    [
        pytest.param(TINY, -TINY, ("INCONCLUSIVE", "P4.2.3"), id="plus-minus"),
        pytest.param(-TINY, TINY, ("INCONCLUSIVE", "P4.2.3"), id="minus-plus"),
        pytest.param(Fraction(9, 10), -TINY, ("INCONCLUSIVE", "P4.2.3"), id="large-plus"),
        pytest.param(Fraction(0), -TINY, ("FAIL", "P4.2.6"), id="zero-minus"),
        pytest.param(Fraction(0), TINY, ("FAIL", "P4.2.6"), id="zero-plus"),
        pytest.param(Fraction(0), Fraction(9, 10), ("FAIL", "P4.2.6"), id="zero-large-plus"),
        pytest.param(Fraction(9, 10), Fraction(0), ("FAIL", "P4.2.6"), id="large-plus-zero"),
        pytest.param(Fraction(0), Fraction(0), ("FAIL", "P4.2.6"), id="zero-zero"),
        pytest.param(-TINY, -TINY, ("FAIL", "P4.2.6"), id="minus-minus"),
        pytest.param(TINY, TINY, ("FAIL", "P4.2.6"), id="plus-plus"),
    ],
)
def test_gains_of_opposite_sign_on_a_target_are_inconclusive(g1, g2, expected):
    judgement = _candidate({"C1": (g1, g2)})

    assert expected == (judgement.verdict.value, judgement.rule)


@pytest.mark.rule("P4.2.3")
def test_opposite_signs_on_one_target_outweigh_a_pass_on_another():
    gains = {"C1": SHOWN, "C16": (Fraction(2, 100), Fraction(-1, 1000))}

    assert ("INCONCLUSIVE", "P4.2.3", "opposite-signs", "C16") == _said(
        _candidate(gains, targets=("C1", "C16"))
    )


@pytest.mark.rule("P4.2.3")
def test_opposite_signs_on_a_level_that_is_no_target_do_not_matter():
    gains = {"C1": SHOWN, "C4": (Fraction(1, 100), Fraction(-1, 100))}

    assert "P4.2.4" == _candidate(gains).rule


# P4.2.4, P4.2.5, P4.2.6: over, at, or not over the threshold.


@pytest.mark.rule("P4.2.4")
@pytest.mark.rule("P4.2.5")
@pytest.mark.rule("P4.2.6")
@pytest.mark.parametrize(
    ("median", "expected"),
    [
        pytest.param(THRESHOLD + TINY, ("PASS", "P4.2.4", "accepted", "C1"), id="just-over"),
        pytest.param(THRESHOLD, ("INCONCLUSIVE", "P4.2.5", "at-threshold", "C1"), id="equal"),
        pytest.param(THRESHOLD - TINY, ("FAIL", "P4.2.6", "no-gain", "C1"), id="just-under"),
    ],
)
def test_the_median_is_compared_with_the_threshold_exactly(median, expected):
    spread = Fraction(1, 3000)

    assert expected == _said(_candidate({"C1": (median + spread, median - spread)}))


@pytest.mark.rule("P4.6")
def test_equality_holds_where_floats_would_round_it_away():
    """P, B1 and B2 are thirds of nanoseconds; the threshold is not a binary fraction."""
    parent = Fraction(10**16 + 1, 3)
    b = parent * (1 - THRESHOLD)
    off = Fraction(1, 10**9)
    case = {"parent_ns": dict.fromkeys(LEVELS, parent), "limits_ns": dict.fromkeys(LEVELS, parent)}
    rest = {"C4": parent, "C16": parent}

    rules = [
        _candidate(b1_ns={"C1": b + off, **rest}, b2_ns={"C1": b + d - off, **rest}, **case).rule
        for d in (-TINY, Fraction(0), TINY)
    ]

    assert ["P4.2.4", "P4.2.5", "P4.2.6"] == rules
    assert float(b) == float(b + TINY), "the difference is one that a float can't hold"


@pytest.mark.rule("P4.2.4")
def test_a_pass_on_one_target_outweighs_equality_on_another():
    gains = {"C1": (THRESHOLD, THRESHOLD), "C16": SHOWN}

    assert ("PASS", "P4.2.4", "accepted", "C16") == _said(_candidate(gains, ("C1", "C16")))


@pytest.mark.rule("P4.2.4")
def test_a_gain_on_a_level_that_is_no_target_does_not_count():
    assert ("FAIL", "P4.2.6", "no-gain", "C1") == _said(_candidate({"C16": SHOWN}))


@pytest.mark.rule("P4.2.5")
def test_equality_of_the_median_needs_both_rounds_improved():
    assert "P4.2.6" == _candidate({"C1": (Fraction(0), 2 * THRESHOLD)}).rule


@pytest.mark.rule("P4.2.6")
def test_no_gain_shown_is_not_called_slower():
    judgement = _candidate({"C1": (-THRESHOLD, -THRESHOLD)})

    assert (Verdict.FAIL, Cause.NO_GAIN) == (judgement.verdict, judgement.cause)
    assert "no gain shown" in judgement.reason
    assert "slower" not in judgement.reason
