"""Counts -> intervals, what the gate can see, and the paired table against a reference.

Pure, and information only (P5.4): the verdict is an integer against an integer. Probabilities are
floats for display; p-values of the paired test are exact fractions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

Z_95: Final = 1.959963984540054
"""Two-sided 95 % point of the normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Questions by outcome under reference and under this run; p-values of McNemar's exact test.

    `lost` = b: reference right, this run wrong. `gained` = c: the other way round.
    """

    both_right: int
    lost: int
    gained: int
    both_wrong: int
    p_two_sided: Fraction
    p_regression: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What a threshold of `threshold` of `count` sees of a true accuracy (independent questions).

    `rejected_95`, `rejected_80`: the highest accuracy still rejected with that probability.
    `accepted_95`, `accepted_99`: the lowest one that passes with that probability.
    `passes`: (true accuracy, probability of a pass in one run, in the best of three).
    """

    count: int
    threshold: int
    rejected_95: float
    rejected_80: float
    accepted_95: float
    accepted_99: float
    passes: tuple[tuple[float, float, float], ...]


def wilson(correct: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, square = correct / count, Z_95**2
    centre = share + square / (2 * count)
    half = Z_95 * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    scale = 1 + square / count
    low = 0.0 if correct == 0 else max(0.0, (centre - half) / scale)
    high = 1.0 if correct == count else min(1.0, (centre + half) / scale)
    return low, high


def clopper_pearson(correct: int, count: int, alpha: float = 0.05) -> tuple[float, float]:
    """The exact two-sided interval; with alpha = 0.1 its lower end is the one-sided 95 % bound."""
    low = high = 0.0
    if correct > 0:
        low = _root(lambda p: at_least(correct, count, p) - alpha / 2)
    if correct < count:
        high = _root(lambda p: at_least(correct + 1, count, p) - (1 - alpha / 2))
    return low, 1.0 if correct == count else high


def at_least(threshold: int, count: int, share: float) -> float:
    """P(X >= threshold) for X binomial(count, share): the chance of a pass."""
    if threshold <= 0 or share >= 1:
        return 1.0 if threshold <= count else 0.0
    if share <= 0:
        return 0.0
    log_p, log_q = math.log(share), math.log1p(-share)
    terms = (
        math.lgamma(count + 1)
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        + k * log_p
        + (count - k) * log_q
        for k in range(threshold, count + 1)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def power(
    count: int, threshold: int, shares: Sequence[float] = (0.95, 0.96, 0.97, 0.98, 0.99)
) -> Power:
    """What the gate can and can't detect."""

    def share_with(chance: float) -> float:
        return _root(lambda p: at_least(threshold, count, p) - chance)

    def passes(share: float) -> tuple[float, float, float]:
        once = at_least(threshold, count, share)
        return share, once, 1 - (1 - once) ** 3

    return Power(
        count=count,
        threshold=threshold,
        rejected_95=share_with(0.05),
        rejected_80=share_with(0.20),
        accepted_95=share_with(0.95),
        accepted_99=share_with(0.99),
        passes=tuple(passes(share) for share in shares),
    )


def mcnemar(lost: int, gained: int) -> tuple[Fraction, Fraction]:
    """(two-sided p, one-sided p for a regression) of the exact test, as fractions."""
    total = lost + gained

    def tail(least: int) -> Fraction:
        ways = sum(math.comb(total, k) for k in range(least, total + 1))
        return Fraction(ways, 2**total)

    return min(Fraction(1), 2 * tail(max(lost, gained))), tail(lost)


def paired(reference: Sequence[bool], run: Sequence[bool]) -> Paired:
    """The 2x2 table of two vectors over the same questions in the same order."""
    pairs = list(zip(reference, run, strict=True))
    lost, gained = pairs.count((True, False)), pairs.count((False, True))
    p_two_sided, p_regression = mcnemar(lost, gained)
    return Paired(
        both_right=pairs.count((True, True)),
        lost=lost,
        gained=gained,
        both_wrong=pairs.count((False, False)),
        p_two_sided=p_two_sided,
        p_regression=p_regression,
    )


def quantile(values: Sequence[int], percent: int) -> int:
    """Nearest-rank quantile of integers: a value that occurred. `values` must not be empty."""
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function of [0, 1] crosses zero, to 1e-12."""
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
