"""Intervals, power and the paired test, against figures known from elsewhere."""

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance.accuracy import figures


@pytest.mark.parametrize(
    ("correct", "wilson", "exact", "lower"),
    [
        pytest.param(291, (0.9440, 0.9841), (0.9438, 0.9862), 0.9482, id="291"),
        pytest.param(292, (0.9483, 0.9864), (0.9481, 0.9884), 0.9524, id="292"),
        pytest.param(295, (0.9616, 0.9929), (0.9615, 0.9946), 0.9653, id="295"),
        pytest.param(300, (0.9874, 1.0), (0.9878, 1.0), 0.9901, id="300"),
    ],
)
def test_intervals_of_300(correct, wilson, exact, lower):
    close = pytest.approx

    assert close(wilson, abs=6e-5) == figures.wilson(correct, 300)
    assert close(exact, abs=6e-5) == figures.clopper_pearson(correct, 300)
    assert close(lower, abs=6e-5) == figures.clopper_pearson(correct, 300, alpha=0.1)[0]


def test_intervals_of_nothing_right_start_at_zero():
    # Exact upper end of 0 of 10: 1 - 0.025**(1/10) = 0.3085.
    assert (0.0, pytest.approx(0.3085, abs=5e-5)) == figures.clopper_pearson(0, 10)
    assert 0.0 == figures.wilson(0, 10)[0]


@given(count=st.integers(1, 60), data=st.data())
def test_intervals_hold_the_share(count, data):
    correct = data.draw(st.integers(0, count))

    for low, high in (figures.wilson(correct, count), figures.clopper_pearson(correct, count)):
        assert 0 <= low <= correct / count <= high <= 1


@given(count=st.integers(1, 40), share=st.fractions(0, 1, max_denominator=50), data=st.data())
def test_the_chance_of_a_pass_is_the_binomial_tail(count, share, data):
    threshold = data.draw(st.integers(0, count + 1))
    exact = sum(
        comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(threshold, count + 1)
    )

    assert float(exact) == pytest.approx(figures.at_least(threshold, count, float(share)), abs=1e-9)


def test_what_292_of_300_detects():
    found = figures.power(300, 292)

    assert pytest.approx((0.9524, 0.9623, 0.9843, 0.9882), abs=6e-5) == (
        found.rejected_95,
        found.rejected_80,
        found.accepted_95,
        found.accepted_99,
    )
    # A true 97 % passes 45.4 % of single runs, 83.7 % of bests of three.
    assert (0.97, pytest.approx(0.4536, abs=5e-5), pytest.approx(0.8369, abs=5e-5)) == (
        found.passes[2]
    )


@pytest.mark.parametrize(
    ("lost", "gained", "two_sided", "regression"),
    [
        pytest.param(0, 0, Fraction(1), Fraction(1), id="nothing-changed"),
        # 3 lost of 3 changed: 1/8, doubled 1/4.
        pytest.param(3, 0, Fraction(1, 4), Fraction(1, 8), id="3-lost"),
        # 0 lost of 5: the upper tail from 0 is everything.
        pytest.param(0, 5, Fraction(1, 16), Fraction(1), id="5-gained"),
        # 6 lost of 7: (7 + 1)/128.
        pytest.param(6, 1, Fraction(1, 8), Fraction(1, 16), id="6-lost-1-gained"),
        # (8, 5): 2 * sum(C(13, k), k >= 8) / 8192 = 2 * 2380 / 8192.
        pytest.param(8, 5, Fraction(595, 1024), Fraction(595, 2048), id="8-lost-5-gained"),
    ],
)
def test_mcnemar_is_exact(lost, gained, two_sided, regression):
    assert (two_sided, regression) == figures.mcnemar(lost, gained)


def test_the_paired_table_counts_each_pair_once():
    old = [True, True, True, False, False]
    new = [True, False, False, True, False]

    table = figures.paired(old, new)

    assert (1, 2, 1, 1) == (table.both_right, table.lost, table.gained, table.both_wrong)


def test_a_reference_of_another_length_is_no_pair():
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        figures.paired([True, True], [True])


@pytest.mark.parametrize(
    ("percent", "value"),
    [
        pytest.param(0, 1, id="0"),
        pytest.param(50, 2, id="50"),
        pytest.param(51, 3, id="51"),
        pytest.param(95, 4, id="95"),
        pytest.param(100, 4, id="100"),
    ],
)
def test_a_quantile_is_a_value_that_occurred(percent, value):
    assert value == figures.quantile([4, 1, 3, 2], percent)
