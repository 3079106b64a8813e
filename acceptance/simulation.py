"""The fixed rule P4.2 under known truth, drawn with a seed: its error rates and its power.

Round means are log-normal with a given start-to-start spread, levels independent, and no level is
near the absolute limit. Floats: for reading beside a verdict, never for one.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from acceptance.estimates import t_quantile

FLOOR = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of the draws; `slower` is the part of `failed` that P4.2.2 decided."""

    passed: float
    inconclusive: float
    failed: float
    slower: float


def simulate(
    *,
    sd: Mapping[str, float],
    gains: Mapping[str, float],
    targets: tuple[str, ...],
    thresholds: Mapping[str, float] | None,
    parent_rounds: int,
    draws: int,
    seed: int,
) -> Rates:
    """How P4.2 ends a candidate whose true gains are `gains` (0.02 = 2 % faster).

    `sd` maps each level to the relative spread of one start. With `thresholds` None each draw has
    its own calibration (P4.5), so that its luck is part of the rates.
    """
    rng = random.Random(seed)
    counts = {"P4.2.2": 0, "P4.2.3": 0, "P4.2.4": 0, "P4.2.5": 0, "P4.2.6": 0}
    for _ in range(draws):
        drawn = {}
        limits = thresholds or {level: _calibrate(rng, spread) for level, spread in sd.items()}
        for level, spread in sd.items():
            parents = sorted(_start(rng, spread) for _ in range(parent_rounds))
            half = parent_rounds // 2
            parent = parents[half] if parent_rounds % 2 else (parents[half - 1] + parents[half]) / 2
            rounds = (_start(rng, spread), _start(rng, spread))
            factor = 1 - gains[level]
            drawn[level] = tuple(1 - factor * time / parent for time in rounds)
        counts[rule_of(drawn, limits, targets)] += 1
    return Rates(
        passed=counts["P4.2.4"] / draws,
        inconclusive=(counts["P4.2.3"] + counts["P4.2.5"]) / draws,
        failed=(counts["P4.2.2"] + counts["P4.2.6"]) / draws,
        slower=counts["P4.2.2"] / draws,
    )


def _start(rng: random.Random, spread: float) -> float:
    return math.exp(rng.gauss(0, spread))


def _calibrate(rng: random.Random, spread: float) -> float:
    """P4.5 for one level."""
    jitters = []
    for _ in range(3):
        parent = _start(rng, spread)
        jitters.append(abs(_start(rng, spread) - parent) / parent)
    return max(FLOOR, *jitters)


def rule_of(
    gains: Mapping[str, tuple[float, ...]],
    thresholds: Mapping[str, float],
    targets: tuple[str, ...],
) -> str:
    """P4.2.2 to P4.2.6 on gains, without the absolute limit; a test holds it against `verdict`."""
    medians = {level: sum(pair) / 2 for level, pair in gains.items()}
    if any(median < -thresholds[level] for level, median in medians.items()):
        return "P4.2.2"
    if any(min(gains[level]) < 0 < max(gains[level]) for level in targets):
        return "P4.2.3"
    improved = [level for level in targets if min(gains[level]) > 0]
    if any(medians[level] > thresholds[level] for level in improved):
        return "P4.2.4"
    if any(medians[level] == thresholds[level] for level in improved):
        return "P4.2.5"
    return "P4.2.6"


def paired_power(*, sd: float, gain: float, pairs: int, draws: int, seed: int) -> float:
    """How often a one-sided 5 % t test over so many balanced pairs of starts shows the gain."""
    rng = random.Random(seed)
    critical = t_quantile(0.95, pairs - 1)
    shown = 0
    for _ in range(draws):
        values = [gain + rng.gauss(0, sd) - rng.gauss(0, sd) for _ in range(pairs)]
        mean = sum(values) / pairs
        variance = sum((value - mean) ** 2 for value in values) / (pairs - 1)
        shown += mean > critical * math.sqrt(variance / pairs)
    return shown / draws
