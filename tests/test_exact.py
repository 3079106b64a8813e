"""Exact numbers: one spelling each, and decimals that never go through a float."""

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance import exact


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("5/1", Fraction(5), id="whole"),
        pytest.param("-7/3", Fraction(-7, 3), id="negative"),
        pytest.param("0/1", Fraction(0), id="zero"),
        pytest.param("9" * 4094 + "/1", Fraction(10**4094 - 1), id="longest"),
        pytest.param("9007199254740993/1", Fraction(2**53 + 1), id="beyond-a-float"),
    ],
)
def test_a_ratio_has_one_spelling(text, value):
    assert value == exact.parse(text)
    assert text == exact.write(value)


@pytest.mark.rule("P4.6")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("5", id="no-denominator"),
        pytest.param("2/4", id="not-lowest"),
        pytest.param("0/2", id="zero-not-lowest"),
        pytest.param("-0/1", id="minus-zero"),
        pytest.param("+1/2", id="plus"),
        pytest.param("1/-2", id="negative-denominator"),
        pytest.param("1/0", id="zero-denominator"),
        pytest.param("01/2", id="leading-zero"),
        pytest.param(" 1/2", id="space"),
        pytest.param("1/2\n", id="newline"),
        pytest.param("1_0/3", id="underscore"),
        pytest.param("1.5/2", id="decimal"),
        pytest.param("nan", id="nan"),
        pytest.param("٣/٤", id="arabic-digits"),
        pytest.param("1/2/3", id="three"),
        pytest.param("9" * 4095 + "/1", id="endless"),
    ],
)
def test_any_other_spelling_is_refused(text):
    with pytest.raises(ValueError, match=r"not an exact ratio|not in lowest terms"):
        exact.parse(text)


@pytest.mark.rule("P4.6")
@pytest.mark.parametrize(
    "value",
    [pytest.param(0.5, id="float"), pytest.param("1/2", id="text"), pytest.param(True, id="bool")],
)
def test_what_is_not_exact_is_not_written(value):
    with pytest.raises(TypeError, match="not an exact number"):
        exact.write(value)


@given(st.fractions())
def test_writing_and_reading_is_the_identity(value):
    assert value == exact.parse(exact.write(value))


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        value = exact.parse(text)
    except ValueError:
        return
    assert text == exact.write(value)


def test_unknown_stays_unknown_in_maps():
    texts = {"C1": "5/2", "C4": None}

    assert {"C1": Fraction(5, 2), "C4": None} == exact.parse_map(texts)
    assert texts == exact.write_map(exact.parse_map(texts))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([3], Fraction(3), id="one"),
        pytest.param([4, 1], Fraction(5, 2), id="two"),
        pytest.param([9, 1, 4], Fraction(4), id="three"),
        pytest.param([1, 9, 4, 2], Fraction(3), id="four"),
    ],
)
def test_the_median_is_exact(values, expected):
    assert expected == exact.median(map(Fraction, values))


def test_the_mean_is_exact():
    assert Fraction(10, 3) == exact.mean([Fraction(1), Fraction(2), Fraction(7)])


def test_nothing_has_no_mean_and_no_median():
    with pytest.raises(ValueError, match="mean of nothing"):
        exact.mean([])
    with pytest.raises(ValueError, match="median of nothing"):
        exact.median([])


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        pytest.param(Fraction(1, 3), 6, "0.333333", id="third"),
        pytest.param(Fraction(-1, 3), 2, "-0.33", id="negative"),
        pytest.param(Fraction(5, 2), 0, "2", id="half-to-even"),
        pytest.param(Fraction(-1, 1000), 2, "0.00", id="no-minus-zero"),
        pytest.param(Fraction(12345678), 1, "12345678.0", id="whole"),
    ],
)
def test_decimals_for_display(value, places, text):
    assert text == exact.decimal(value, places)


@given(st.integers(-(10**12), 10**12), st.integers(0, 6), st.integers(0, 8))
def test_decimals_agree_with_the_decimal_module(number, shift, places):
    value = Decimal(number).scaleb(-shift)
    text = f"{value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN):f}"

    shown = exact.decimal(Fraction(value), places)

    assert Decimal(text) == Decimal(shown)
    assert not shown.startswith("-") or Decimal(shown) != 0


def test_units_for_display():
    assert "24.983491" == exact.ms(Fraction(24_983_491))
    assert "+1.250000 %" == exact.percent(Fraction(1, 80))
    assert "-0.063870 %" == exact.percent(Fraction(-6387, 10_000_000))
