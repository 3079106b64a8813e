"""P4.2: P(C) from the parent's frozen rounds; nothing is chosen, everything is disclosed."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from acceptance.parent import COMPARABLE, ParentRound, differences, reference
from acceptance.utc import parse_utc

ENVIRONMENT = {name: f"{name}-1" for name in COMPARABLE}


def _round(number, time="100/1", **changes):
    fields = {
        "version": "p1",
        "run_id": "run-1",
        "round": f"B{number}",
        "path": "runs/run-1",
        "sha256": "h",
        "ended_utc": f"2026-11-07T0{number}:00:00Z",
        "environment": ENVIRONMENT,
        "tpot_ns": {"C1": time},
        "obstacle": None,
    }
    return ParentRound(**(fields | changes))


def _reference(*rounds, levels=("C1",), environment=None):
    return reference(
        rounds=rounds,
        version="p1",
        environment=environment or ENVIRONMENT,
        levels=levels,
        started_utc="2026-11-07T12:30:00Z",
    )


@pytest.mark.rule("P4.2")
@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param(["100/1"], Fraction(100), id="one"),
        pytest.param(["1/2"], Fraction(1, 2), id="half-a-nanosecond"),
        pytest.param(["100/1", "101/1"], Fraction(201, 2), id="two"),
        pytest.param(["100/1", "900/1", "101/1"], Fraction(101), id="three"),
    ],
)
def test_the_parents_value_is_the_median_of_all_its_rounds(times, expected):
    found = _reference(*(_round(i, time) for i, time in enumerate(times, 1)))

    assert ({"C1": expected}, ()) == (found.parent_ns, found.obstacles)


@pytest.mark.rule("P4.2.1")
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param({"obstacle": "no-done"}, "B2: no-done", id="invalid"),
        pytest.param({"version": "p0"}, "is of p0, not of p1", id="older-version"),
        pytest.param({"tpot_ns": {}}, "no mean TPOT", id="level-missing"),
        pytest.param({"tpot_ns": {"C1": None}}, "no mean TPOT", id="unknown"),
        pytest.param({"tpot_ns": {"C1": "0/1"}}, "no mean TPOT", id="zero"),
        pytest.param({"tpot_ns": {"C1": "many"}}, "no mean TPOT", id="malformed"),
        pytest.param({"round": "B1"}, "listed twice", id="twice"),
    ],
)
def test_one_round_that_cannot_be_used_is_an_obstacle_and_not_left_out(bad, reason):
    found = _reference(_round(1), replace(_round(2), **bad))

    assert any(reason in one.reason for one in found.obstacles)
    assert {"P4.2.1"} == {one.rule for one in found.obstacles}


@pytest.mark.rule("P4.2.1")
def test_no_round_is_an_obstacle():
    found = _reference()

    assert {"C1": None} == found.parent_ns
    assert ["the parent has no round on record; measure it first"] == [
        one.reason for one in found.obstacles
    ]


@pytest.mark.rule("P4.2.1")
@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in COMPARABLE])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param("other", "{name} was {name}-1, now other", id="differs"),
        pytest.param(None, "{name} is unknown", id="unknown"),
    ],
)
def test_environments_must_be_known_and_equal(name, value, reason):
    found = _reference(_round(1), environment={**ENVIRONMENT, name: value})

    assert [f"parent run-1 B1: {reason.format(name=name)}"] == [
        one.reason for one in found.obstacles
    ]
    assert differences(ENVIRONMENT, {k: v for k, v in ENVIRONMENT.items() if k != name})


@pytest.mark.rule("P4.2")
def test_the_age_of_the_parents_rounds_is_disclosed():
    text = _reference(_round(1), _round(2)).disclosure

    assert text.startswith("2 parent rounds, measured 10.5 to 11.5 h before the candidate")
    assert "is unknown" in _reference(_round(1, ended_utc="?")).disclosure
    assert "no parent round" == _reference().disclosure


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        pytest.param("1970-01-01T00:00:00Z", 0, id="origin"),
        pytest.param("1970-01-01T00:00:01.5+00:00", 1_500_000_000, id="half"),
        pytest.param("2001-09-09T01:46:40.000000001Z", 10**18 + 1, id="last-digit"),
    ],
)
def test_a_utc_time_is_exact(text, ns):
    assert ns == parse_utc(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("2026-11-07T12:00:00", id="no-zone"),
        pytest.param("2026-11-07T12:00:00+08:00", id="other-zone"),
        pytest.param("2026-11-07 12:00:00Z", id="space"),
        pytest.param("2026-13-07T12:00:00Z", id="month"),
        pytest.param("2026-11-07T12:00:00.0000000001Z", id="ten-digits"),
    ],
)
def test_any_other_time_is_refused(text):
    with pytest.raises(ValueError, match=r"UTC time|must be in"):
        parse_utc(text)


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_refused(text):
    with suppress(ValueError):
        assert isinstance(parse_utc(text), int)
