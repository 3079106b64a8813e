"""Exact numbers: "n/d" text <-> Fraction, medians, and decimals for display only (P4.6)."""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

NS_PER_MS = 1_000_000
LENGTH_MAX = 4096
"""Longest ratio that is read, in characters: far beyond any sum of a run's nanoseconds."""

_RATIO = re.compile(r"(0|-?[1-9][0-9]*)/([1-9][0-9]*)")


def parse(text: str) -> Fraction:
    """ "n/d" in lowest terms with a positive d -> Fraction.

    ValueError for everything else, "2/4", "5", "-0/1" and " 1/2" included: one number has one
    spelling, so that equal records have equal bytes.
    """
    found = _RATIO.fullmatch(text) if len(text) <= LENGTH_MAX else None
    if found is None:
        raise ValueError(f"not an exact ratio n/d: {text[:60]!r}")
    numerator, denominator = int(found.group(1)), int(found.group(2))
    value = Fraction(numerator, denominator)
    if value.denominator != denominator:
        raise ValueError(f"not in lowest terms: {text[:60]!r} is {write(value)[:60]}")
    return value


def write(value: Fraction | int) -> str:
    """Fraction -> "n/d" in lowest terms, "5/1" for 5. A float is refused: it is not exact."""
    if not isinstance(value, Fraction | int) or isinstance(value, bool):
        raise TypeError(f"not an exact number: {value!r}")
    return f"{value.numerator}/{value.denominator}"


def parse_map(texts: Mapping[str, str | None]) -> dict[str, Fraction | None]:
    """Values of a mapping, null (unknown) kept as None."""
    return {key: None if text is None else parse(text) for key, text in texts.items()}


def write_map(values: Mapping[str, Fraction | None]) -> dict[str, str | None]:
    """The inverse of `parse_map`."""
    return {key: None if value is None else write(value) for key, value in values.items()}


def mean(values: Iterable[Fraction]) -> Fraction:
    """Arithmetic mean. ValueError when there is nothing to average."""
    known = list(values)
    if not known:
        raise ValueError("the mean of nothing is not defined")
    return sum(known, Fraction(0)) / len(known)


def median(values: Iterable[Fraction]) -> Fraction:
    """The middle value, or the mean of the two middle ones. ValueError when empty."""
    known = sorted(values)
    if not known:
        raise ValueError("the median of nothing is not defined")
    half = len(known) // 2
    return known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2


def decimal(value: Fraction, places: int) -> str:
    """For display: `places` decimals, half to even, without a float in between."""
    scaled = round(value * 10**places)
    digits = str(abs(scaled)).rjust(places + 1, "0")
    whole, fraction = digits[: len(digits) - places], digits[len(digits) - places :]
    return ("-" if scaled < 0 else "") + whole + (f".{fraction}" if places else "")


def ms(value_ns: Fraction, places: int = 6) -> str:
    """For display: nanoseconds (per token) as milliseconds."""
    return decimal(value_ns / NS_PER_MS, places)


def percent(value: Fraction, places: int = 6) -> str:
    """For display: a signed percentage, "+1.250000 %"."""
    text = decimal(value * 100, places)
    return f"{'' if text.startswith('-') else '+'}{text} %"
