"""P4.5: three A/A pairs -> exact thresholds, and nothing short of six complete services."""

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from acceptance.calibration import (
    SERVICES,
    CalibrationReport,
    CalibrationService,
    freeze,
    jitter,
    problems,
    threshold,
    thresholds,
)
from acceptance.errors import RunFailure
from acceptance.exact import write

TINY = Fraction(1, 10**12)


def _services(times=("100/1", "101/1", "99/1", "100/1", "100/1", "100/1"), **changes):
    """Six complete services of level C1; `times` in the order in which they were started."""
    return tuple(
        replace(
            CalibrationService(
                run_id=f"run-{i}",
                service_id=f"service-{i}",
                role=role,
                version="9be3c22",
                environment="e",
                started_utc=f"2026-11-04T0{i}:00:00Z",
                evidence_sha256=f"hash-{i}",
                tpot_ns={"C1": time},
                obstacle=None,
            ),
            **changes,
        )
        for i, (role, time) in enumerate(zip(SERVICES, times, strict=True))
    )


def _with(number, **changes):
    services = list(_services())
    services[number] = replace(services[number], **changes)
    return services


def _freeze(services, levels=("C1",)):
    return freeze(profile="p", services=services, levels=levels)


@pytest.mark.rule("P4.5")
@pytest.mark.parametrize(
    ("parent", "candidate", "expected"),
    [
        pytest.param(100, 101, Fraction(1, 100), id="slower"),
        pytest.param(100, 99, Fraction(1, 100), id="faster"),
        pytest.param(100, 100, Fraction(0), id="equal"),
        pytest.param(3, 4, Fraction(1, 3), id="third"),
        pytest.param(101, 100, Fraction(1, 101), id="the-parent-divides"),
    ],
)
def test_jitter_is_relative_to_the_parent(parent, candidate, expected):
    assert expected == jitter(Fraction(parent), Fraction(candidate))


@pytest.mark.rule("P4.5")
def test_the_jitter_of_the_noisy_pair_of_the_campaign():
    """C32 of pair 3, 89.3830927940 -> 95.6210311402, was kept: 6.978880 % by hand."""
    found = jitter(Fraction("89.3830927940"), Fraction("95.6210311402"))

    assert Fraction(62379383462, 893830927940) == found
    assert "6.978880" == f"{float(found) * 100:.6f}"


@pytest.mark.rule("P4.5")
@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        pytest.param(Fraction(1, 100) - TINY, Fraction(1, 100), id="below-the-floor"),
        pytest.param(Fraction(1, 100), Fraction(1, 100), id="at-the-floor"),
        pytest.param(Fraction(1, 100) + TINY, Fraction(1, 100) + TINY, id="above-the-floor"),
    ],
)
@pytest.mark.parametrize("place", [pytest.param(i, id=f"pair-{i + 1}") for i in range(3)])
def test_the_threshold_is_the_largest_of_three_and_at_least_one_percent(largest, expected, place):
    jitters = [Fraction(0), Fraction(1, 1000), Fraction(1, 500)]
    jitters[place] = largest

    assert expected == threshold(jitters)


@pytest.mark.rule("P4.5")
def test_pairs_are_taken_in_the_order_of_the_services():
    """Pair 2 starts with the candidate: 99 candidate, 90 parent -> 9/90."""
    report = _freeze(_services(("100/1", "102/1", "99/1", "90/1", "200/1", "201/1")))

    assert ("1/50", "1/10", "1/200") == report.jitter["C1"]
    assert {"C1": "1/10"} == report.thresholds
    assert {"C1": Fraction(1, 10)} == thresholds(report)


@pytest.mark.rule("P4.5")
@pytest.mark.parametrize(
    ("services", "reason"),
    [
        pytest.param((), "0 services", id="none"),
        pytest.param(_services()[:5], "5 services", id="five"),
        pytest.param((*_services(), _services()[0]), "7 services", id="seven"),
        pytest.param(_services()[::-1], "in the order candidate, parent", id="other-order"),
        pytest.param(_with(3, obstacle="reset"), r"service 4 \(parent\): reset", id="failed"),
        pytest.param(_with(2, tpot_ns={"C1": None}), "no mean TPOT", id="unknown"),
        pytest.param(_with(2, tpot_ns={}), "no mean TPOT", id="level-missing"),
        pytest.param(_with(2, tpot_ns={"C1": "0/1"}), "not positive", id="zero"),
        pytest.param(_with(2, tpot_ns={"C1": "1.5"}), "not an exact ratio", id="not-exact"),
        pytest.param(_with(2, version="other"), "differ in their version", id="two-versions"),
        pytest.param(_with(2, environment="x"), "differ in their environment", id="two-hosts"),
        pytest.param(_with(2, service_id="service-1"), "same service_id", id="service-twice"),
        pytest.param(_with(2, evidence_sha256="hash-1"), "same evidence", id="evidence-twice"),
        pytest.param(
            _with(2, started_utc="2026-11-04T01:00:00Z"), "not started in the order", id="no-order"
        ),
        pytest.param(_with(2, started_utc="yesterday"), "a start is not a UTC", id="no-time"),
    ],
)
def test_an_incomplete_calibration_freezes_nothing(services, reason):
    with pytest.raises(RunFailure, match=reason) as caught:
        _freeze(services)

    assert "P4.5" == caught.value.rule


@pytest.mark.rule("P4.5")
def test_a_level_that_nobody_measured_freezes_nothing():
    with pytest.raises(RunFailure, match=r"service 1 \(parent\), C4: no mean TPOT \(and 5 more\)"):
        _freeze(_services(), ("C1", "C4"))
    with pytest.raises(RunFailure, match="no level"):
        _freeze(_services(), ())


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        pytest.param({}, "", id="one"),
        pytest.param({"version": "other"}, " (and 1 more)", id="two"),
    ],
)
def test_the_first_trouble_is_told_and_the_others_counted(changes, more):
    with pytest.raises(RunFailure) as caught:
        _freeze(_with(2, obstacle="reset", **changes))

    assert caught.value.reason.endswith(more or "reset")
    assert ("more)" in caught.value.reason) is bool(more)


@pytest.mark.rule("P4.5")
def test_a_noisy_pair_is_kept():
    report = _freeze(_services(("100/1", "900/1", "100/1", "100/1", "100/1", "100/1")))

    assert {"C1": "8/1"} == report.thresholds


@pytest.mark.rule("P4.5")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"thresholds": {"C1": "1/50"}}, id="raised"),
        pytest.param({"jitter": {"C1": ("0/1", "0/1", "0/1")}}, id="jitter"),
        pytest.param({"levels": ("C1", "C4")}, id="more-levels"),
        pytest.param({"services": _with(1, tpot_ns={"C1": "105/1"})}, id="other-service"),
        pytest.param({"schema": 2}, id="future"),
    ],
)
def test_thresholds_are_not_taken_on_trust(changes):
    report = replace(_freeze(_services()), **changes)

    with pytest.raises(RunFailure, match=r"P4\.5"):
        thresholds(report)


def test_the_report_survives_the_disk():
    report = _freeze(_services())
    text = msgspec.json.encode(report)

    again = msgspec.json.decode(text, type=CalibrationReport)

    assert thresholds(report) == thresholds(again)


positive = st.integers(1, 10**12).map(lambda n: Fraction(n, 7))


@pytest.mark.rule("P4.5")
@given(st.lists(positive, min_size=6, max_size=6), positive)
def test_thresholds_do_not_depend_on_the_unit_of_time(times, scale):
    one = _freeze(_services(tuple(map(write, times))))
    two = _freeze(_services(tuple(write(time * scale) for time in times)))

    assert one.thresholds == two.thresholds
    assert all(Fraction(1, 100) <= value for value in thresholds(one).values())


@given(st.lists(st.sampled_from(["parent", "candidate"]), max_size=8))
def test_any_list_of_services_is_judged(roles):
    some = _services()[0]
    services = [replace(some, role=role, service_id=str(i)) for i, role in enumerate(roles)]

    assert problems(services, ("C1",))
