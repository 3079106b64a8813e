"""The page beside the verdict: complete, equal every time, and frank about what is unknown."""

from dataclasses import replace
from fractions import Fraction

import pytest
from msgspec.structs import replace as changed

from acceptance.calibration import SERVICES, CalibrationService, freeze
from acceptance.errors import RunFailure
from acceptance.records import LevelFigures, RequestFigures
from acceptance.resolution import calibration_page
from acceptance.statistics_page import PageInputs, page
from acceptance.verdict import judge_candidate, judge_final

P = Fraction(20_000_000)


def _candidate(g1=Fraction(3, 100), g2=Fraction(2, 100), **changes):
    case = {
        "levels": ("C1", "C16"),
        "targets": ("C1",),
        "parent_ns": {"C1": P, "C16": P},
        "b1_ns": {"C1": P * (1 - g1), "C16": P},
        "b2_ns": {"C1": P * (1 - g2), "C16": P * Fraction(1005, 1000)},
        "thresholds": {"C1": Fraction(1, 50), "C16": Fraction(1, 50)},
        "limits_ns": {"C1": P * 2, "C16": P * 2},
        "path_ran": True,
    }
    return judge_candidate(**(case | changes))


GROUPS = {
    "C1": [[P, P * Fraction(101, 100)], [P, P * Fraction(995, 1000)]],
    "C16": [[P, P * Fraction(101, 100)], [P, P * Fraction(1005, 1000)]],
}


def _inputs(judgement=None, **changes):
    fields = {
        "judgement": judgement or _candidate(),
        "groups": GROUPS,
        "parent_rounds": 2,
        "disclosure": "2 parent rounds, measured 1.0 to 2.0 h before",
        "calibration": {"C1": [P * (1000 + i) / 1000 for i in range(6)]},
        "canary_ns": {"C1": P * Fraction(101, 100)},
        "history": {"C1": [P, P, P * Fraction(3, 2), P]},
        "tries": 3,
        "candidate_levels": (),
        "parent_levels": (),
        "draws": 200,
    }
    return PageInputs(**(fields | changes))


def _request(slot):
    return RequestFigures(
        slot=slot,
        ttft_ns=1,
        e2e_ns=2,
        output_tokens=64,
        tpot_ns="20000001/1",
        tpot_last_token_ns="19000000/1",
        tpot_per_later_token_ns="21000000/1",
        first_frame_tokens=1 + slot,
        first_ns=10,
        last_token_ns=5_000_000,
        end_ns=7_000_000,
        token_ids_sha256="t",
    )


FIGURES = LevelFigures(
    round="B1",
    level="C1",
    attempt=1,
    valid=True,
    invalid=(),
    requests=(_request(0), _request(1)),
    mean_tpot_ns="20000001/1",
)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("Verdict: PASS by P4.2.4.", id="verdict"),
        pytest.param(
            "| C1 (target) | 20.000000 | 19.400000 | 19.600000 | +3.000000 % | +2.000000 % | "
            "+2.500000 % | +2.000000 % |",
            id="gains",
        ),
        pytest.param("Canary C1: parent re-measured 20.200000 ms, older value 20.000000 ms, shift "
                     "+1.000 %.", id="canary"),
        pytest.param("Drift C1: +0.100% a start over the 6 services", id="drift"),
        pytest.param("`..!.`", id="control-chart"),
        pytest.param("3 candidates tried so far", id="tries"),
        pytest.param("must not be multiplied", id="no-totals"),
        pytest.param("| true gain | PASS | INCONCLUSIVE | FAIL | of which slower |", id="rates"),
        pytest.param("balanced pairs with a t test", id="other-design"),
        pytest.param("2 parent rounds, measured 1.0 to 2.0 h before.", id="age"),
    ],
)  # fmt: skip
def test_the_page_of_a_candidate_shows(line):
    assert line in page(_inputs())


def test_the_page_is_equal_every_time():
    assert page(_inputs()) == page(_inputs())
    assert page(_inputs()) != page(_inputs(seed=1))


@pytest.mark.parametrize(
    ("judgement", "text"),
    [
        pytest.param(
            _candidate(b1_ns={"C1": P, "C16": P * 2}), "is **slower** than its parent", id="slower"
        ),
        pytest.param(_candidate(Fraction(0), Fraction(0)), "**no gain was shown**", id="no-gain"),
        pytest.param(
            _candidate(limits_ns={"C1": P * 2, "C16": P}), "over the absolute limit", id="over"
        ),
        pytest.param(
            _candidate(Fraction(1, 50), Fraction(1, 50)), "what the host resolves", id="equal"
        ),
        pytest.param(
            _candidate(Fraction(1, 50), Fraction(-1, 50)), "a new candidate", id="opposite"
        ),
        pytest.param(_candidate(path_ran=False), "the path is not taken", id="path"),
        pytest.param(_candidate(thresholds=None), "mend what the reason names", id="evidence"),
    ],
)
def test_the_page_says_which_failure_or_what_to_do_next(judgement, text):
    assert text in page(_inputs(judgement))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"groups": {}}, "unknown: no version was started twice", id="no-spread"),
        pytest.param({"groups": {}}, "Unknown: a spread, a threshold", id="no-rates"),
        pytest.param(
            {"tries": None}, "How many candidates were tried so far is unknown", id="tries"
        ),
        pytest.param({"canary_ns": {}}, "the parent was not measured again", id="no-canary"),
        pytest.param({"history": {"C1": [P]}}, "Control chart C1: too little", id="no-chart"),
        pytest.param(
            {"judgement": _candidate(b2_ns={})}, "| C1 (target) | figures are missing |", id="b2"
        ),
        pytest.param({"parent_rounds": 0}, "Unknown: a spread, a threshold", id="no-parent"),
    ],
)
def test_what_is_unknown_is_said(changes, text):
    assert text in page(_inputs(**changes))


def test_requests_are_shown_in_three_definitions_beside_the_parents():
    text = page(_inputs(candidate_levels=[FIGURES], parent_levels=[changed(FIGURES, requests=())]))

    assert "| candidate | B1 | C1 | 1.50 | 2.000 | 20.000 | 19.000 | 21.000 |" in text
    assert "| parent | B1 | C1 | no complete request |" in text
    assert "not at hand" in page(_inputs(candidate_levels=[FIGURES]))


def test_one_request_without_a_later_token_leaves_that_definition_unknown():
    single = changed(_request(1), tpot_per_later_token_ns=None)
    figures = changed(FIGURES, requests=(_request(0), single))

    assert "| 19.000 | unknown |" in page(_inputs(candidate_levels=[figures]))


def _final(limit, **changes):
    times = {"b1_ns": {"C1": P}, "b2_ns": {"C1": P * Fraction(101, 100)}}
    return judge_final(levels=("C1",), limits_ns={"C1": limit}, **(times | changes))


def test_a_final_run_shows_its_distance_to_the_target_and_what_a_repetition_would_give():
    at_target = page(_inputs(_final(P * Fraction(201, 200))))

    assert "| C1 | 20.100000 | 20.100000 | +0.000000 % | +0.00 |" in at_target
    assert "would pass with probability 0.500" in at_target
    assert "exactly at its 1 targets passes with 0.500" in at_target
    assert "Gains" not in at_target
    assert "probability 1.000" in page(_inputs(_final(P * 2)))
    assert "probability unknown" in page(_inputs(_final(P * 2), groups={}))
    assert "| C1 | figures are missing |" in page(_inputs(_final(P, b1_ns={})))


def test_a_spread_of_zero_is_survived():
    flat = {"C1": [[P, P]], "C16": [[P, P]]}

    assert "0.000%" in page(_inputs(groups=flat))
    assert "probability 0.000" in page(_inputs(_final(P / 2), groups=flat))


SERVICE = CalibrationService(
    run_id="r",
    service_id="s",
    role="parent",
    version="v",
    environment="e",
    started_utc="",
    evidence_sha256="h",
    tpot_ns={},
    obstacle=None,
)


def _report(times):
    services = [
        changed(
            SERVICE,
            service_id=f"s{i}",
            evidence_sha256=f"h{i}",
            role=role,
            started_utc=f"2026-11-04T0{i}:00:00Z",
            tpot_ns={"C1": f"{time}/1"},
        )
        for i, (role, time) in enumerate(zip(SERVICES, times, strict=True))
    ]
    return freeze(profile="cpu-mini", services=services, levels=("C1",))


@pytest.mark.rule("P4.5")
def test_the_page_of_a_calibration_says_whether_the_host_resolves_the_effect():
    quiet = calibration_page(
        _report((20000003, 20000007, 20000009, 20000011, 20000013, 20000017)), draws=200
    )
    noisy = calibration_page(
        _report((20000003, 21000000, 20000009, 23000000, 20000013, 20600000)), draws=200
    )

    assert "can't be relied on" not in quiet
    assert "can't be relied on to resolve a gain of 2%" in noisy
    assert "| C1 | +0.000020 % | +0.000010 % | +0.000020 % | +1.000000 % | 1/100 |" in quiet
    assert "Drift C1" in noisy


@pytest.mark.rule("P4.5")
def test_a_page_of_thresholds_that_do_not_follow_is_refused():
    with pytest.raises(RunFailure, match="do not follow"):
        calibration_page(changed(_report((1, 1, 1, 1, 1, 1)), thresholds={"C1": "1/2"}))


def test_the_page_decides_nothing():
    """Other spreads, other tries: the line of the verdict stays."""
    one, two = page(_inputs()), page(replace(_inputs(), groups={}, tries=99))

    assert one.splitlines()[5] == two.splitlines()[5]
    assert one.splitlines()[5].startswith("Verdict: PASS by P4.2.4.")
