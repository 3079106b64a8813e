"""Start-to-start spread -> intervals, shrunken gains and margins. Floats: for reading, not judging.

The unit is the start of a service: requests of one synchronous wave are not independent, so nothing
here counts them. Spreads are of the logarithm of a round mean, that is relative.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Pooled standard deviation of one start, relative, with its degrees of freedom."""

    sd: float
    df: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GainEstimate:
    """A gain with what can be said about the true one. All relative, 0.01 = 1 %.

    `low`, `high`: two-sided 95 % interval. `shrunken`: expected true gain under a prior of gains
    around 0; `positive`: probability that it is above 0. `not_worse_than`: with 95 % confidence
    the candidate is not slower than by this (one side of an equivalence test).
    """

    gain: float
    se: float
    low: float
    high: float
    shrunken: float
    positive: float
    not_worse_than: float


def pooled_spread(groups: Sequence[Sequence[Fraction]]) -> Spread | None:
    """Groups of round means of one version on one host; None where no group has two."""
    squares, df = 0.0, 0
    for group in groups:
        if len(group) < 2 or min(group) <= 0:
            continue
        logs = [_log(time) for time in group]
        centre = sum(logs) / len(logs)
        squares += sum((log - centre) ** 2 for log in logs)
        df += len(logs) - 1
    return Spread(sd=math.sqrt(squares / df), df=df) if df else None


def _log(value: Fraction) -> float:
    """ln of a ratio whose parts may be too long for a float."""
    return math.log(value.numerator) - math.log(value.denominator)


def estimate_gain(
    *, gain: float, spread: Spread, parent_rounds: int, prior_sd: float
) -> GainEstimate:
    """From the mean of two candidate rounds against `parent_rounds` of the parent."""
    se = spread.sd * math.sqrt(1 / 2 + 1 / parent_rounds)
    two_sided = t_quantile(0.975, spread.df) * se
    shrink = prior_sd**2 / (prior_sd**2 + se**2)
    if se > 0:
        positive = NORMAL.cdf(shrink * gain / (math.sqrt(shrink) * se))
    else:
        positive = 0.5 if gain == 0 else float(gain > 0)
    return GainEstimate(
        gain=gain,
        se=se,
        low=gain - two_sided,
        high=gain + two_sided,
        shrunken=shrink * gain,
        positive=positive,
        not_worse_than=max(0.0, t_quantile(0.95, spread.df) * se - gain),
    )


def gap_probability(b1: Fraction, b2: Fraction, spread: Spread) -> float:
    """How often two starts of one version lie at least so far apart."""
    gap = abs(_log(b1) - _log(b2))
    if spread.sd == 0:
        return 1.0 if gap == 0 else 0.0
    return 2 * (1 - t_cdf(gap / (spread.sd * math.sqrt(2)), spread.df))


def drift(times: Sequence[Fraction]) -> tuple[float, float] | None:
    """Slope of the logarithm per start, in the order of the starts, and its standard error; None
    with fewer than three."""
    count = len(times)
    if count < 3 or min(times) <= 0:
        return None
    logs = [_log(time) for time in times]
    centre, mean = (count - 1) / 2, sum(logs) / count
    spread_x = sum((i - centre) ** 2 for i in range(count))
    slope = sum((i - centre) * (log - mean) for i, log in enumerate(logs)) / spread_x
    rest = sum((log - mean - slope * (i - centre)) ** 2 for i, log in enumerate(logs))
    return slope, math.sqrt(rest / (count - 2) / spread_x)


def at_least_one(probability: float, tries: int) -> float:
    """Chance of at least one event in so many independent tries."""
    return 1 - (1 - probability) ** tries


def t_cdf(x: float, df: int) -> float:
    """Student's t, P(T <= x)."""
    tail = _incomplete_beta(df / (df + x * x), df / 2, 0.5) / 2
    return 1 - tail if x > 0 else tail


def t_quantile(probability: float, df: int) -> float:
    """The x with t_cdf(x) = probability, for 0 < probability < 1, by bisection."""
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    low, high = 0.0, 1.0
    while t_cdf(high, df) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b) by its continued fraction."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    result = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1 / (1 + step * d or tiny)
            c = 1 + step / c or tiny
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * result / a
