"""Estimates and simulations beside the verdict, against published tables and the rule itself."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance.estimates import (
    Spread,
    at_least_one,
    drift,
    estimate_gain,
    gap_probability,
    pooled_spread,
    t_cdf,
    t_quantile,
)
from acceptance.protocol import LEVELS
from acceptance.simulation import paired_power, rule_of, simulate
from acceptance.verdict import judge_candidate


@pytest.mark.parametrize(
    ("probability", "df", "expected"),
    [
        pytest.param(0.975, 1, 12.7062, id="df-1"),
        pytest.param(0.95, 3, 2.3534, id="df-3"),
        pytest.param(0.975, 10, 2.2281, id="df-10"),
        pytest.param(0.995, 5, 4.0321, id="df-5"),
        pytest.param(0.975, 1000, 1.9623, id="df-1000"),
        pytest.param(0.5, 4, 0.0, id="middle"),
        pytest.param(0.05, 3, -2.3534, id="lower-tail"),
    ],
)
def test_quantiles_of_t_are_those_of_the_tables(probability, df, expected):
    assert expected == pytest.approx(t_quantile(probability, df), abs=5e-5)


@pytest.mark.parametrize(
    ("x", "df", "expected"),
    [
        # df 1 is Cauchy: 1/2 + atan(x)/pi. df 2: 1/2 + x / (2 sqrt(2 + x^2)).
        pytest.param(1.0, 1, 0.75, id="cauchy-1"),
        pytest.param(-1.0, 1, 0.25, id="cauchy-minus-1"),
        pytest.param(3.0, 1, 0.5 + math.atan(3) / math.pi, id="cauchy-3"),
        pytest.param(2.0, 2, 0.5 + 2 / (2 * math.sqrt(6)), id="df-2"),
        pytest.param(0.0, 7, 0.5, id="zero"),
        pytest.param(1e9, 3, 1.0, id="far"),
    ],
)
def test_probabilities_of_t_are_those_of_the_closed_forms(x, df, expected):
    assert expected == pytest.approx(t_cdf(x, df), abs=1e-12)


@given(st.floats(0.001, 0.999), st.integers(1, 60))
def test_quantile_and_probability_are_inverse(probability, df):
    assert probability == pytest.approx(t_cdf(t_quantile(probability, df), df), abs=1e-9)


def test_the_pooled_spread_is_that_of_the_groups_about_their_own_means():
    """Two groups e^0, e^0.02 and e^1, e^1.04: squares 2(0.01)^2 + 2(0.02)^2 over df 2."""
    groups = [
        [Fraction(1), Fraction(math.exp(0.02))],
        [Fraction(math.exp(1)), Fraction(math.exp(1.04))],
        [Fraction(5)],
    ]

    found = pooled_spread(groups)

    assert 2 == found.df
    assert math.sqrt(0.0005) == pytest.approx(found.sd, rel=1e-9)


def test_a_spread_needs_one_version_started_twice():
    assert None is pooled_spread([])
    assert None is pooled_spread([[Fraction(1)], [Fraction(2)]])
    assert None is pooled_spread([[Fraction(0), Fraction(2)]])


times = st.integers(1, 10**6).map(lambda n: Fraction(n, 7))


@given(st.lists(times, min_size=2, max_size=6), st.integers(1, 99))
def test_the_spread_does_not_depend_on_the_unit_of_time(times, scale):
    one, two = pooled_spread([times]), pooled_spread([[time * scale for time in times]])

    assert one.sd == pytest.approx(two.sd, abs=1e-12)


def test_an_interval_by_hand():
    """SD 1 %, df 10, two parent rounds: se = 1 %; t = 2.228139 and 1.812461; prior 1 %: half."""
    found = estimate_gain(gain=0.02, spread=Spread(sd=0.01, df=10), parent_rounds=2, prior_sd=0.01)

    assert 0.01 == pytest.approx(found.se)
    assert (-0.00228139, 0.04228139) == pytest.approx((found.low, found.high), abs=1e-8)
    assert 0.01 == pytest.approx(found.shrunken)
    assert 0.0 == found.not_worse_than, "0.018125 - 0.02 is below 0"
    # Posterior: mean 0.01, SD 0.01 sqrt(1/2); P = Phi(1.414214) = 0.921350.
    assert 0.921350 == pytest.approx(found.positive, abs=1e-6)


def test_more_parent_rounds_narrow_the_interval():
    spread = Spread(sd=0.01, df=10)
    few = estimate_gain(gain=0.0, spread=spread, parent_rounds=1, prior_sd=0.01)
    many = estimate_gain(gain=0.0, spread=spread, parent_rounds=8, prior_sd=0.01)

    assert few.se > many.se
    assert few.not_worse_than > many.not_worse_than > 0


@pytest.mark.parametrize(
    ("gain", "positive"),
    [
        pytest.param(0.01, 1.0, id="gain"),
        pytest.param(0.0, 0.5, id="none"),
        pytest.param(-0.01, 0.0, id="loss"),
    ],
)
def test_without_any_spread_a_gain_is_what_it_is(gain, positive):
    found = estimate_gain(gain=gain, spread=Spread(sd=0.0, df=1), parent_rounds=2, prior_sd=0.01)

    assert (gain, gain, positive) == (found.low, found.high, found.positive)


def test_two_rounds_that_agree_are_no_surprise_and_two_far_apart_are():
    spread = Spread(sd=0.01, df=5)

    assert 1.0 == pytest.approx(gap_probability(Fraction(100), Fraction(100), spread))
    assert gap_probability(Fraction(100), Fraction(110), spread) < 0.01
    # ln(101/100) / (0.01 sqrt 2) = 0.703596; df 5: P = 0.513
    assert 0.513 == pytest.approx(gap_probability(Fraction(100), Fraction(101), spread), abs=1e-3)
    flat = Spread(sd=0.0, df=1)
    assert 1.0 == gap_probability(Fraction(7), Fraction(7), flat)
    assert 0.0 == gap_probability(Fraction(7), Fraction(8), flat)


def test_a_linear_drift_is_found_and_its_error_is_zero_when_it_is_exact():
    times = [Fraction(math.exp(0.003 * i)) for i in range(6)]
    slope, error = drift(times)

    assert (0.003, 0.0) == pytest.approx((slope, error), abs=1e-12)
    assert None is drift(times[:2])


def test_the_error_of_a_drift_by_hand():
    """Logs 0, 1, 0: slope 0; residuals -1/3, 2/3, -1/3; sqrt((6/9)/1/2) = 0.577350."""
    slope, error = drift([Fraction(1), Fraction(math.e), Fraction(1)])

    assert (0.0, 0.577350) == pytest.approx((slope, error), abs=1e-6)


def test_the_chance_of_at_least_one():
    assert 0.0 == at_least_one(0.05, 0)
    assert 0.0975 == pytest.approx(at_least_one(0.05, 2))


# The simulation.

exact_gains = st.integers(-10, 10).map(lambda n: Fraction(n, 200))
gain_pairs = st.fixed_dictionaries({level: st.tuples(exact_gains, exact_gains) for level in LEVELS})


@pytest.mark.rule("P4.2")
@given(gain_pairs, st.sets(st.sampled_from(LEVELS), min_size=1).map(tuple))
def test_the_simulated_rule_is_the_rule(gains, targets):
    """In exact numbers both must agree, at every boundary."""
    parent, threshold = Fraction(10**7), Fraction(2, 100)
    judged = judge_candidate(
        levels=LEVELS,
        targets=targets,
        parent_ns=dict.fromkeys(LEVELS, parent),
        b1_ns={level: parent * (1 - pair[0]) for level, pair in gains.items()},
        b2_ns={level: parent * (1 - pair[1]) for level, pair in gains.items()},
        thresholds=dict.fromkeys(LEVELS, threshold),
        limits_ns=dict.fromkeys(LEVELS, parent * 2),
        path_ran=True,
    )

    assert judged.rule == rule_of(gains, dict.fromkeys(LEVELS, threshold), targets)


def _rates(noise, targets, gain=0.0, only=None, draws=6000):
    """`noise` is the SD of an A/A pair in percent; each draw has its own calibration."""
    gains = {level: gain if only in (None, level) else 0.0 for level in LEVELS}
    return simulate(
        sd=dict.fromkeys(LEVELS, noise / 100 / math.sqrt(2)),
        gains=gains,
        targets=targets,
        thresholds=None,
        parent_rounds=2,
        draws=draws,
        seed=1,
    )


@pytest.mark.parametrize(
    ("noise", "targets", "expected"),
    [
        # From an independent simulation of 200,000 draws: PASS, INCONCLUSIVE, FAIL, slower.
        pytest.param(0.5, ("C16",), (0.002, 0.39, 0.61, 0.007), id="quiet-C16"),
        pytest.param(1.0, ("C16",), (0.037, 0.36, 0.60, 0.12), id="usual-C16"),
        pytest.param(1.0, ("C1", "C16"), (0.042, 0.57, 0.39, 0.12), id="usual-two"),
        pytest.param(1.6, LEVELS, (0.047, 0.66, 0.30, 0.18), id="noisy-three"),
    ],
)
def test_false_verdicts_agree_with_an_independent_simulation(noise, targets, expected):
    """Three standard errors of 6000 draws, and the rounding of the table, are at most 0.025."""
    rates = _rates(noise, targets)

    found = (rates.passed, rates.inconclusive, rates.failed, rates.slower)
    assert expected == pytest.approx(found, abs=0.025)
    assert 1.0 == pytest.approx(rates.passed + rates.inconclusive + rates.failed)


def test_power_agrees_with_an_independent_simulation():
    assert 0.70 == pytest.approx(_rates(1.0, ("C16",), 0.02, only="C16").passed, abs=0.025)
    assert 0.41 == pytest.approx(_rates(1.6, ("C16",), 0.02, only="C16").passed, abs=0.025)


def test_power_of_balanced_pairs_agrees_with_an_independent_simulation():
    four, five = (
        paired_power(sd=0.012 / math.sqrt(2), gain=0.02, pairs=pairs, draws=6000, seed=1)
        for pairs in (4, 5)
    )

    assert (0.81, 0.92) == pytest.approx((four, five), abs=0.025)


def test_a_pair_test_finds_nothing_in_nothing_five_percent_of_the_time():
    assert 0.05 == pytest.approx(
        paired_power(sd=0.01, gain=0.0, pairs=4, draws=6000, seed=2), abs=0.012
    )


def test_a_simulation_with_the_same_seed_is_the_same():
    assert _rates(1.0, ("C1",), draws=500) == _rates(1.0, ("C1",), draws=500)


def test_frozen_thresholds_are_used_as_they_are():
    low, high = (
        simulate(
            sd=dict.fromkeys(LEVELS, 0.007),
            gains=dict.fromkeys(LEVELS, 0.03),
            targets=("C1",),
            thresholds=dict.fromkeys(LEVELS, threshold),
            parent_rounds=3,
            draws=500,
            seed=1,
        ).passed
        for threshold in (0.01, 0.10)
    )

    assert low > 0.8
    assert 0.0 == high
