"""Figures of a run -> its verdict, by the rules P4.2, P4.3, P4.4 and P4.8 in their order.

Every function is total over its declared types: bad figures give a verdict that says so, never an
exception. All times are Fractions of ns per token; nothing is rounded before it is compared.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from acceptance.exact import ms, percent
from acceptance.judgement import SCOPES, Cause, Judgement, LevelInputs, Obstacle, Overall
from acceptance.protocol import Verdict, worst

THRESHOLD_MIN = Fraction(1, 100)
"""P4.5: no calibration gives less, so a smaller threshold is no threshold."""

Times = Mapping[str, Fraction | None]
"""Level -> ns per token; None or no entry is unknown."""

Texts = list[tuple[str | None, str]]
"""What a rule has to say: (level or None, text)."""


def judge_candidate(
    *,
    levels: tuple[str, ...],
    targets: tuple[str, ...],
    parent_ns: Times | None,
    b1_ns: Times,
    b2_ns: Times,
    thresholds: Times | None,
    limits_ns: Times,
    path_ran: bool | None,
    obstacles: Iterable[Obstacle] = (),
) -> Judgement:
    """P4.2 for an intermediate candidate, with P7.3 applied as P4.2.1.

    `parent_ns` is P(C), `limits_ns` the absolute limit (25 ms on the frozen load). `path_ran`:
    the candidate's new path ran on all workers; None where no counter says. `obstacles` are what
    validity rules and comparability found.
    """
    cases = tuple(
        LevelInputs(
            level=level,
            is_target=level in targets,
            b1_ns=b1_ns.get(level),
            b2_ns=b2_ns.get(level),
            limit_ns=limits_ns.get(level),
            parent_ns=None if parent_ns is None else parent_ns.get(level),
            threshold=None if thresholds is None else thresholds.get(level),
        )
        for level in levels
    )
    found = _path_obstacle(path_ran is not False, "ran on none, or not on all, workers")
    found = found or _missing_candidate(cases, targets, tuple(obstacles))
    found = found or _path_obstacle(path_ran is not None, "has no counter that shows that it ran")
    if found is not None:
        is_path = found.rule == "P7.3"
        return Judgement(
            verdict=Verdict.INCONCLUSIVE,
            rule=found.rule,
            cause=Cause.PATH_NOT_RUN if is_path else Cause.EVIDENCE,
            level=found.level,
            reason=found.reason,
            levels=cases,
        )
    return _judge_gains(tuple(_complete(case) for case in cases), cases)


def judge_final(
    *,
    levels: tuple[str, ...],
    b1_ns: Times,
    b2_ns: Times,
    limits_ns: Times,
    obstacles: Iterable[Obstacle] = (),
) -> Judgement:
    """P4.4, performance part: two valid rounds, and TPOT(C) <= the limit at each level."""
    cases = tuple(
        LevelInputs(
            level=level,
            is_target=True,
            b1_ns=b1_ns.get(level),
            b2_ns=b2_ns.get(level),
            limit_ns=limits_ns.get(level),
            parent_ns=None,
            threshold=None,
        )
        for level in levels
    )
    missing = _obstacle_texts(obstacles)
    for case in cases:
        missing += _missing_times(case)
    if not cases:
        missing.append((None, "no level is planned"))
    if missing:
        return _judgement(Verdict.INCONCLUSIVE, "P4.4", Cause.EVIDENCE, missing, cases)
    over: Texts = []
    within: Texts = []
    for case in cases:
        assert case.tpot_ns is not None
        assert case.limit_ns is not None
        is_over = case.tpot_ns > case.limit_ns
        text = f"TPOT {ms(case.tpot_ns)} ms {'is over' if is_over else 'within'} "
        (over if is_over else within).append((case.level, text + f"{ms(case.limit_ns)} ms"))
    if over:
        return _judgement(Verdict.FAIL, "P4.4", Cause.OVER_LIMIT, over, cases)
    return _judgement(Verdict.PASS, "P4.4", Cause.ACCEPTED, within, cases)


def gate_performance(*, component: Verdict, is_withdrawn: bool) -> Judgement | None:
    """P7.1, P7.4: NOT_RUN where components forbid to measure; None where it may be measured.

    A failed or withdrawn component says nothing about the service, so it is never FAIL here.
    """
    if is_withdrawn:
        return _not_tried("P7.4", "the candidate was withdrawn on its component times")
    if component is not Verdict.PASS:
        return _not_tried("P7.1", f"the component tests ended {component}")
    return None


def gate_accuracy(performance: Judgement | Verdict | None) -> Judgement | None:
    """P4.3: NOT_RUN with the reason, or None where accuracy may run now."""
    if performance is None:
        return _not_tried("P4.3", "performance has no verdict yet")
    if isinstance(performance, Verdict):
        verdict, rule = performance, ""
    else:
        verdict, rule = performance.verdict, f" ({performance.rule})"
    if verdict is Verdict.PASS:
        return None
    return _not_tried("P4.3", f"performance is {verdict}{rule}")


def fold(scopes: Mapping[str, Judgement | None], planned: Iterable[str]) -> Overall:
    """P4.8: the worst of the planned scopes; one without a verdict is NOT_RUN.

    A scope that is not planned does not decide, and then nothing is a final acceptance; nor is it
    one where performance was judged against a parent (P4.2) instead of the absolute target.
    """
    results = {scope: scopes.get(scope) for scope in planned}
    verdicts = {
        scope: Verdict.NOT_RUN if result is None else result.verdict
        for scope, result in results.items()
    }
    verdict = worst(list(verdicts.values()))
    decided_by = next((scope for scope, one in verdicts.items() if one is verdict), None)
    if decided_by is None:
        reason = "no scope is planned"
    else:
        deciding = results[decided_by]
        why = "has no verdict" if deciding is None else f"{deciding.rule}: {deciding.reason}"
        reason = f"{decided_by} {why}"
    performance = results.get("performance")
    is_final = performance is not None and performance.rule == "P4.4"
    return Overall(
        verdict=verdict,
        decided_by=decided_by,
        reason=reason,
        is_final_acceptance=(verdict is Verdict.PASS and is_final and set(verdicts) >= set(SCOPES)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gain:
    """One level with every figure there: what rules P4.2.2 to P4.2.6 read."""

    level: str
    is_target: bool
    parent_ns: Fraction
    tpot_ns: Fraction
    limit_ns: Fraction
    threshold: Fraction
    g1: Fraction
    g2: Fraction
    median: Fraction


def _judge_gains(gains: tuple[_Gain, ...], cases: tuple[LevelInputs, ...]) -> Judgement:
    """P4.2.2 to P4.2.6, in this order. A gain of exactly 0 is neither positive nor negative."""
    targets = [gain for gain in gains if gain.is_target]

    worse: Texts = [(gain.level, text) for gain in gains for _, text in _worse(gain)]
    if worse:
        cause = next(cause for gain in gains for cause, _ in _worse(gain))
        return _judgement(Verdict.FAIL, "P4.2.2", cause, worse, cases)

    opposite = [gain for gain in targets if gain.g1 * gain.g2 < 0]
    if opposite:
        texts = _texts(opposite, "opposite signs")
        return _judgement(Verdict.INCONCLUSIVE, "P4.2.3", Cause.OPPOSITE_SIGNS, texts, cases)

    improved = [gain for gain in targets if gain.g1 > 0 and gain.g2 > 0]
    shown = [gain for gain in improved if gain.median > gain.threshold]
    if shown:
        texts = _texts(shown, "over the threshold")
        return _judgement(Verdict.PASS, "P4.2.4", Cause.ACCEPTED, texts, cases)

    equal = [gain for gain in improved if gain.median == gain.threshold]
    if equal:
        texts = _texts(equal, "exactly the threshold")
        return _judgement(Verdict.INCONCLUSIVE, "P4.2.5", Cause.AT_THRESHOLD, texts, cases)

    texts = _texts(targets, "no gain shown")
    return _judgement(Verdict.FAIL, "P4.2.6", Cause.NO_GAIN, texts, cases)


def _texts(gains: list[_Gain], what: str) -> Texts:
    return [
        (
            gain.level,
            f"gains {percent(gain.g1)} and {percent(gain.g2)}, median {percent(gain.median)}, "
            f"threshold {percent(gain.threshold)}: {what}",
        )
        for gain in gains
    ]


def _worse(gain: _Gain) -> list[tuple[Cause, str]]:
    """P4.2.2 at one level, target or not: both ways in which it can be worse."""
    found = []
    if gain.median < -gain.threshold:
        found += [(Cause.SLOWER, text) for _, text in _texts([gain], "slower than the parent")]
    if gain.parent_ns <= gain.limit_ns < gain.tpot_ns:
        text = (
            f"TPOT {ms(gain.tpot_ns)} ms is over {ms(gain.limit_ns)} ms, "
            f"the parent's {ms(gain.parent_ns)} ms was not"
        )
        found.append((Cause.OVER_LIMIT, text))
    return found


def _path_obstacle(is_shown: bool, what: str) -> Obstacle | None:
    """P7.3, which counts as P4.2.1: a path that is not shown proves nothing, fast or slow."""
    if is_shown:
        return None
    return Obstacle(rule="P7.3", level=None, reason=f"the candidate's new path {what}")


def _missing_candidate(
    cases: tuple[LevelInputs, ...], targets: tuple[str, ...], obstacles: tuple[Obstacle, ...]
) -> Obstacle | None:
    """P4.2.1: everything that is missing, in one obstacle at the first level concerned."""
    missing = _obstacle_texts(obstacles)
    if not cases:
        missing.append((None, "no level is planned"))
    if not targets:
        missing.append((None, "no target level was set before the run"))
    known = {case.level for case in cases}
    for level in targets:
        if level not in known:
            missing.append((None, f"target {level} is no level of the run"))
    for case in cases:
        missing += _missing_times(case, (("P", case.parent_ns),))
        if case.threshold is None:
            missing.append((case.level, "the threshold is missing"))
        elif case.threshold < THRESHOLD_MIN:
            missing.append((case.level, f"threshold {percent(case.threshold)} is none of P4.5"))
    if not missing:
        return None
    return Obstacle(rule="P4.2.1", level=missing[0][0], reason=_joined(missing))


def _obstacle_texts(obstacles: Iterable[Obstacle]) -> Texts:
    return [(one.level, f"{one.reason} ({one.rule})") for one in obstacles]


def _missing_times(case: LevelInputs, more: tuple[tuple[str, Fraction | None], ...] = ()) -> Texts:
    """Times that are unknown, or impossible because they are not positive."""
    times = (*more, ("B1", case.b1_ns), ("B2", case.b2_ns), ("the limit", case.limit_ns))
    return [
        (case.level, f"{name} is {'missing' if value is None else 'not positive'}")
        for name, value in times
        if value is None or value <= 0
    ]


def _complete(case: LevelInputs) -> _Gain:
    """LevelInputs in which `_missing_candidate` found nothing missing -> _Gain."""
    assert case.parent_ns is not None
    assert case.limit_ns is not None
    assert case.threshold is not None
    assert case.tpot_ns is not None
    assert case.gains is not None
    assert case.gain_median is not None
    return _Gain(
        level=case.level,
        is_target=case.is_target,
        parent_ns=case.parent_ns,
        tpot_ns=case.tpot_ns,
        limit_ns=case.limit_ns,
        threshold=case.threshold,
        g1=case.gains[0],
        g2=case.gains[1],
        median=case.gain_median,
    )


def _judgement(
    verdict: Verdict, rule: str, cause: Cause, texts: Texts, cases: tuple[LevelInputs, ...]
) -> Judgement:
    """A PASS of the final rule rests on all levels; anything else is placed at the first."""
    return Judgement(
        verdict=verdict,
        rule=rule,
        cause=cause,
        level=None if (verdict, rule) == (Verdict.PASS, "P4.4") else texts[0][0],
        reason=_joined(texts),
        levels=cases,
    )


def _joined(texts: Texts) -> str:
    return "; ".join(f"{level}: {text}" if level else text for level, text in texts)


def _not_tried(rule: str, reason: str) -> Judgement:
    return Judgement(
        verdict=Verdict.NOT_RUN, rule=rule, cause=Cause.NOT_TRIED, level=None, reason=reason
    )
