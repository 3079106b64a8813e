"""What this host can resolve: error rates and power of P4.2 at its own start-to-start spread."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from acceptance.calibration import CalibrationReport, thresholds
from acceptance.estimates import Spread, at_least_one, drift, pooled_spread
from acceptance.exact import ms, parse, percent
from acceptance.simulation import paired_power, simulate

GAINS = (0.0, 0.01, 0.02, 0.03, 0.05)
HOPED_FOR = 0.02
POWER_MIN = 0.8


def resolution(
    *,
    spreads: Mapping[str, Spread | None],
    thresholds: Mapping[str, float],
    targets: tuple[str, ...],
    parent_rounds: int,
    tries: int | None,
    draws: int,
    seed: int,
) -> list[str]:
    """Lines of Markdown; "unknown" where a spread, a threshold or the target is missing.

    `tries`: candidates judged so far, None if unknown; each is one more chance of a false PASS.
    The rates are those of `simulation`: levels independent and none near the absolute limit.
    """
    known = {level: spread.sd for level, spread in spreads.items() if spread is not None}
    is_known = spreads.keys() == known.keys() and spreads.keys() <= thresholds.keys()
    if not is_known or not targets or not set(targets) <= known.keys() or parent_rounds < 1:
        return ["Unknown: a spread, a threshold, a parent round or the target is missing."]
    lines = [
        f"Simulated, {draws} draws, seed {seed}, {parent_rounds} parent rounds, targets "
        f"{', '.join(targets)}, equal true gain at all levels.",
        "",
        "| true gain | PASS | INCONCLUSIVE | FAIL | of which slower |",
        "|--:|--:|--:|--:|--:|",
    ]
    passes: dict[float, float] = {}
    for gain in GAINS:
        rates = simulate(
            sd=known,
            gains=dict.fromkeys(known, gain),
            targets=targets,
            thresholds={level: thresholds[level] for level in known},
            parent_rounds=parent_rounds,
            draws=draws,
            seed=seed,
        )
        passes[gain] = rates.passed
        lines.append(
            f"| {gain:+.0%} | {rates.passed:.3f} | {rates.inconclusive:.3f} | "
            f"{rates.failed:.3f} | {rates.slower:.3f} |"
        )
    worst = max(known[level] for level in targets)
    lines += ["", _detection(worst, passes[HOPED_FOR], draws, seed)]
    if tries is None:
        return [*lines, "", "How many candidates were tried so far is unknown."]
    if tries == 0:
        return lines
    chance = at_least_one(passes[0.0], tries)
    return [
        *lines,
        "",
        f"{tries} candidates tried so far: were none of them better, at least one would have "
        f"passed with probability {chance:.3f}.",
    ]


def _detection(sd: float, power: float, draws: int, seed: int) -> str:
    others = [
        f"{pairs} balanced pairs with a t test "
        f"{paired_power(sd=sd, gain=HOPED_FOR, pairs=pairs, draws=draws, seed=seed):.2f}"
        for pairs in (4, 5)
    ]
    text = (
        f"An A/A pair here differs by {sd * math.sqrt(2):.2%} (SD): two rounds show "
        f"{HOPED_FOR:+.0%} with probability {power:.2f}; {', '.join(others)}."
    )
    if power < POWER_MIN:
        text += f" **This host can't be relied on to resolve a gain of {HOPED_FOR:.0%}.**"
    return text


def drift_line(level: str, times: Sequence[Fraction]) -> list[str]:
    """The linear drift over the services of a calibration, or nothing with fewer than three."""
    found = drift(times)
    if found is None:
        return []
    slope, error = found
    return [
        f"Drift {level}: {slope:+.3%} a start over the {len(times)} services of the calibration "
        f"(standard error {error:.3%}); P4.5's order leaves a third of a linear drift in the mean "
        "difference."
    ]


def calibration_page(report: CalibrationReport, *, draws: int = 4000, seed: int = 0) -> str:
    """A calibration as Markdown: what was measured, the thresholds, and what they can resolve.

    RunFailure (P4.5) where the thresholds do not follow from the services.
    """
    frozen = thresholds(report)
    times = {
        level: [parse(service.tpot_ns[level] or "") for service in report.services]
        for level in report.levels
    }
    spreads = {level: pooled_spread([times[level]]) for level in report.levels}
    lines = [
        f"# Calibration of {report.profile}",
        "",
        "Six services of one version (P4.5). Threshold = max(1 %, the largest of three jitters).",
        "",
        f"| service | role | started | {' | '.join(f'{level} ms' for level in report.levels)} |",
        f"|---|---|---|{'--:|' * len(report.levels)}",
    ]
    for number, service in enumerate(report.services):
        cells = " | ".join(ms(times[level][number]) for level in report.levels)
        lines.append(f"| {number + 1} | {service.role} | {service.started_utc} | {cells} |")
    lines += [
        "",
        "| level | pair 1 | pair 2 | pair 3 | threshold | exact | spread of one start (df) |",
        "|---|--:|--:|--:|--:|---|--:|",
    ]
    for level in report.levels:
        pairs = " | ".join(percent(parse(text)) for text in report.jitter[level])
        spread = spreads[level]
        shown = f"{spread.sd:.3%} ({spread.df})" if spread else "unknown"
        limit = f"{percent(frozen[level])} | {report.thresholds[level]}"
        lines.append(f"| {level} | {pairs} | {limit} | {shown} |")
    lines += ["", *(line for level in report.levels for line in drift_line(level, times[level]))]
    for level in report.levels:
        lines += ["", f"## Target {level} alone", ""]
        lines += resolution(
            spreads=spreads,
            thresholds={name: float(value) for name, value in frozen.items()},
            targets=(level,),
            parent_rounds=2,
            tries=0,
            draws=draws,
            seed=seed,
        )
    return "\n".join(lines) + "\n"
