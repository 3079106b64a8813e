"""What stands beside the fixed rule and outside the verdict: how far its figures can be trusted.

A judgement, the round means of the same host and version, and the frozen thresholds -> a page. The
page is generated from the archive alone and with a frozen seed, so it comes out equal every time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from acceptance.estimates import (
    NORMAL,
    GainEstimate,
    Spread,
    estimate_gain,
    gap_probability,
    pooled_spread,
    t_quantile,
)
from acceptance.exact import decimal, ms, percent
from acceptance.judgement import Cause, Judgement, LevelInputs
from acceptance.protocol import Verdict
from acceptance.records import LevelFigures
from acceptance.resolution import drift_line, resolution

PRIOR_SD = 0.01
"""Spread of true gains that is taken for granted where no history is given: 1 %."""

KINDS_OF_FAIL = {
    Cause.SLOWER: "the candidate is **slower** than its parent at a level (P4.2.2)",
    Cause.OVER_LIMIT: "a level is **over the absolute limit**",
    Cause.NO_GAIN: "**no gain was shown** (P4.2.6), which is not the same as slower",
}

NEXT_STEPS = {
    Cause.EVIDENCE: "mend what the reason names and run again under a new run id",
    Cause.PATH_NOT_RUN: "find out why the path is not taken; a mended one is a new candidate",
    Cause.OPPOSITE_SIGNS: "this verdict is final; a new candidate with a larger effect, or a host "
    "with less spread between starts, is what can help",
    Cause.AT_THRESHOLD: "this verdict is final; the effect lies exactly at what the host resolves",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageInputs:
    """All that the page is made of. Times in ns per token.

    - `groups`: level -> groups of round means of one version each (parent's rounds, the
      candidate's, a calibration's), from which the spread of one start is pooled.
    - `parent_rounds`: number of rounds behind P(C).
    - `calibration`: level -> means of the six services in the order of their starts.
    - `canary_ns`: level -> the parent measured again in the candidate's session.
    - `history`: level -> every re-measurement of one version so far, oldest first.
    - `tries`: candidates with a valid verdict so far, this one included; None if unknown.
    - `prior_sd`: spread of the true gains of such candidates, from the campaign's history.
    """

    judgement: Judgement
    groups: Mapping[str, Sequence[Sequence[Fraction]]]
    parent_rounds: int
    disclosure: str
    calibration: Mapping[str, Sequence[Fraction]]
    canary_ns: Mapping[str, Fraction]
    history: Mapping[str, Sequence[Fraction]]
    tries: int | None
    candidate_levels: Sequence[LevelFigures]
    parent_levels: Sequence[LevelFigures]
    prior_sd: float = PRIOR_SD
    draws: int = 4000
    seed: int = 0


def page(inputs: PageInputs) -> str:
    """The page as Markdown."""
    levels = inputs.judgement.levels
    spreads = {one.level: pooled_spread(inputs.groups.get(one.level, ())) for one in levels}
    is_candidate = any(one.parent_ns is not None for one in levels)
    sections = [
        _verdict(inputs.judgement),
        _gains(inputs, spreads) if is_candidate else _limits(inputs, spreads),
        _spread(levels, spreads),
        _rule(inputs, spreads) if is_candidate else [],
        _session(inputs, spreads),
        _requests(inputs),
    ]
    head = [
        "# Statistics beside the verdict",
        "",
        "Nothing here decides: the verdict follows from the fixed rules alone. The unit is the",
        "start of a service; requests of one wave are not independent and are not counted.",
    ]
    return "\n".join([*head, *(line for section in sections for line in section)]) + "\n"


def _verdict(judgement: Judgement) -> list[str]:
    lines = ["", f"Verdict: {judgement.verdict} by {judgement.rule}. {judgement.reason}"]
    if judgement.cause in KINDS_OF_FAIL and judgement.verdict is Verdict.FAIL:
        lines += ["", f"Kind of failure: {KINDS_OF_FAIL[judgement.cause]}."]
    if judgement.verdict is Verdict.INCONCLUSIVE:
        step = NEXT_STEPS.get(judgement.cause, "read the reason")
        lines += ["", f"Cheapest next step: {step}."]
    return lines


def _gains(inputs: PageInputs, spreads: Mapping[str, Spread | None]) -> list[str]:
    lines = [
        "",
        "## Gains",
        "",
        "| level | P ms | B1 ms | B2 ms | g1 | g2 | median | threshold | over it, in SD |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    more = [
        "",
        "| level | 95 % interval | df | shrunken gain | P(true gain > 0) | not slower than, 95 % |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for one in inputs.judgement.levels:
        name = one.level + (" (target)" if one.is_target else "")
        if one.gains is None or one.gain_median is None or one.threshold is None:
            lines.append(f"| {name} | figures are missing |" + " |" * 7)
            continue
        estimate = _estimate(one, spreads[one.level], inputs)
        margin = one.gain_median - one.threshold
        in_sd = f"{float(margin) / estimate.se:+.2f}" if estimate and estimate.se else "unknown"
        times = (one.parent_ns, one.b1_ns, one.b2_ns)
        shown = [ms(time) if time is not None else "unknown" for time in times]
        shown += [percent(gain) for gain in (*one.gains, one.gain_median, one.threshold)]
        lines.append(f"| {name} | {' | '.join(shown)} | {in_sd} |")
        spread = spreads[one.level]
        if estimate and spread:
            more.append(
                f"| {name} | {estimate.low:+.3%} to {estimate.high:+.3%} | {spread.df} | "
                f"{estimate.shrunken:+.3%} | {estimate.positive:.3f} | "
                f"{estimate.not_worse_than:.3%} |"
            )
        else:
            more.append(f"| {name} | unknown: no version was started twice | | | | |")
    note = (
        f"Shrunken with a prior of {inputs.prior_sd:.2%} around 0. Gains of single candidates must "
        "not be multiplied into a total: measure the last version against the first."
    )
    return [*lines, *more, "", note]


def _estimate(one: LevelInputs, spread: Spread | None, inputs: PageInputs) -> GainEstimate | None:
    if spread is None or one.gain_median is None or inputs.parent_rounds < 1:
        return None
    return estimate_gain(
        gain=float(one.gain_median),
        spread=spread,
        parent_rounds=inputs.parent_rounds,
        prior_sd=inputs.prior_sd,
    )


def _limits(inputs: PageInputs, spreads: Mapping[str, Spread | None]) -> list[str]:
    """Final acceptance: distance to the absolute target, and what a repetition would give."""
    lines = [
        "",
        "## Distance to the absolute targets",
        "",
        "| level | TPOT ms | target ms | below it | in SD of the mean of two rounds |",
        "|---|--:|--:|--:|--:|",
    ]
    again: float | None = 1.0
    for one in inputs.judgement.levels:
        spread, tpot, limit = spreads[one.level], one.tpot_ns, one.limit_ns
        if tpot is None or limit is None or tpot <= 0:
            lines.append(f"| {one.level} | figures are missing | | | |")
            again = None
            continue
        below = (limit - tpot) / limit
        in_sd = "unknown"
        if spread is None:
            again = None
        elif spread.sd:
            z = math.log(limit / tpot) / (spread.sd / math.sqrt(2))
            in_sd = f"{z:+.2f}"
            again = None if again is None else again * NORMAL.cdf(z)
        elif tpot > limit:
            again = None if again is None else 0.0
        shown = f"{ms(tpot)} | {ms(limit)} | {percent(below)}"
        lines.append(f"| {one.level} | {shown} | {in_sd} |")
    count = len(inputs.judgement.levels)
    chance = "unknown" if again is None else f"{again:.3f}"
    return [
        *lines,
        "",
        f"If these means were the truth, a repetition would pass with probability {chance}; a "
        f"service exactly at its {count} targets passes with {0.5**count:.3f}.",
    ]


def _spread(levels: Sequence[LevelInputs], spreads: Mapping[str, Spread | None]) -> list[str]:
    lines = [
        "",
        "## Two rounds against each other",
        "",
        "| level | spread of one start | df | B2 against B1 | as far apart or farther by chance |",
        "|---|--:|--:|--:|--:|",
    ]
    for one in levels:
        spread = spreads[one.level]
        if spread is None or not one.b1_ns or not one.b2_ns or min(one.b1_ns, one.b2_ns) < 0:
            lines.append(f"| {one.level} | unknown | | | |")
            continue
        gap = percent((one.b2_ns - one.b1_ns) / one.b1_ns, 3)
        chance = gap_probability(one.b1_ns, one.b2_ns, spread)
        lines.append(f"| {one.level} | {spread.sd:.3%} | {spread.df} | {gap} | {chance:.3f} |")
    if any(spread is not None and spread.df < 5 for spread in spreads.values()):
        factor = t_quantile(0.975, 1) / t_quantile(0.975, 15)
        lines += [
            "",
            "A spread with few degrees of freedom is itself hardly known: with df 1 an interval is "
            f"{factor:.0f} times as wide as with df 15.",
        ]
    return lines


def _rule(inputs: PageInputs, spreads: Mapping[str, Spread | None]) -> list[str]:
    thresholds = {
        one.level: float(one.threshold)
        for one in inputs.judgement.levels
        if one.threshold is not None
    }
    lines = resolution(
        spreads=spreads,
        thresholds=thresholds,
        targets=tuple(one.level for one in inputs.judgement.levels if one.is_target),
        parent_rounds=inputs.parent_rounds,
        tries=inputs.tries,
        draws=inputs.draws,
        seed=inputs.seed,
    )
    return ["", "## This rule at the spread of this host", "", *lines]


def _session(inputs: PageInputs, spreads: Mapping[str, Spread | None]) -> list[str]:
    """Age of the parent's rounds, canary, drift of the calibration, control chart."""
    lines = ["", "## Sessions", "", f"Parent: {inputs.disclosure}."]
    if not inputs.canary_ns:
        lines.append("Canary: the parent was not measured again in this session.")
    for one in inputs.judgement.levels:
        canary, parent = inputs.canary_ns.get(one.level), one.parent_ns
        if canary is not None and parent:
            lines.append(
                f"Canary {one.level}: parent re-measured {ms(canary)} ms, older value "
                f"{ms(parent)} ms, shift {percent((canary - parent) / parent, 3)}."
            )
    for level, times in inputs.calibration.items():
        lines += drift_line(level, times)
    for level, times in inputs.history.items():
        lines += _chart(level, times, spreads.get(level))
    return lines


def _chart(level: str, times: Sequence[Fraction], spread: Spread | None) -> list[str]:
    """Control chart of all measurements of one version: those beyond three SD of their median."""
    usable = [time for time in times if time > 0]
    if spread is None or not spread.sd or len(usable) < 2:
        return [f"Control chart {level}: too little is known."]
    centre = sorted(usable)[len(usable) // 2]
    marks = "".join(
        "!" if abs(float(time / centre) - 1) > 3 * spread.sd else "." for time in usable
    )
    return [f"Control chart {level}, oldest first, `!` beyond 3 SD of {ms(centre)} ms: `{marks}`"]


def _requests(inputs: PageInputs) -> list[str]:
    lines = [
        "",
        "## Requests",
        "",
        "Means over the requests of a level; TPOT in three definitions, of which only the first",
        "(to EOF, P4.0) counts.",
        "",
        "| | round | level | tokens in first frame | tail ms | TPOT ms | to last token "
        "| per later token |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for who, figures in (
        ("candidate", inputs.candidate_levels),
        ("parent", inputs.parent_levels),
    ):
        lines += [_request_row(who, one) for one in figures]
    if not inputs.parent_levels:
        lines += ["", "The parent's requests are not at hand."]
    return lines


def _request_row(who: str, one: LevelFigures) -> str:
    requests = one.requests
    if not requests:
        return f"| {who} | {one.round} | {one.level} | no complete request | | | | |"
    later = [r.tpot_per_later_token_ns for r in requests]
    known = [text for text in later if text is not None]
    cells = (
        decimal(_mean(r.first_frame_tokens for r in requests), 2),
        ms(_mean(r.end_ns - r.last_token_ns for r in requests), 3),
        ms(_mean(r.tpot_ns for r in requests), 3),
        ms(_mean(r.tpot_last_token_ns for r in requests), 3),
        ms(_mean(known), 3) if len(known) == len(later) else "unknown",
    )
    return f"| {who} | {one.round} | {one.level} | {' | '.join(cells)} |"


def _mean(values: Iterable[int | str]) -> Fraction:
    known = [Fraction(value) for value in values]
    return sum(known, Fraction(0)) / len(known)
