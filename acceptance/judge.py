"""Stored attempts -> findings, live figures and verdicts.

The validator does all of it again, from the same files and with none of this code.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import msgspec

from acceptance import exact, metrics, validity, verdict
from acceptance.gather import level_evidence, level_expectation, loader
from acceptance.judgement import Cause, Judgement, Obstacle, scope_verdict
from acceptance.plan import Outcome
from acceptance.protocol import ROUNDS, Verdict, rounds_of, worst
from acceptance.records import SCHEMA, Attempt, Figures, LevelFigures, ScopeVerdict
from acceptance.runspec import RunSpec
from acceptance.validity import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One attempt, what every validity rule found on it, and its figures."""

    attempt: Attempt
    figures: LevelFigures
    findings: tuple[Finding, ...]


def judge_attempt(
    run_dir: Path, runspec: RunSpec, attempt: Attempt, before: Sequence[Judged]
) -> Judged:
    """Apply every rule to one attempt. A level with any code is invalid (P4.1).

    `before`: the attempts of this run before it, in their order.
    """
    earlier = [one.attempt for one in before]
    previous = [
        one.figures.valid
        for one in before
        if (one.attempt.round, one.attempt.level) == (attempt.round, attempt.level)
    ]
    expected = level_expectation(run_dir, runspec, attempt, earlier)
    parsed = metrics.judge_level(attempt, loader(run_dir, attempt), expected)
    evidence = level_evidence(
        run_dir, runspec, attempt, earlier, previous_valid=previous[-1] if previous else None
    )
    findings = validity.examine(evidence, runspec.profile.rules)
    figures = metrics.level_figures(
        attempt.round,
        attempt.level,
        attempt.attempt,
        parsed.requests,
        {*parsed.invalid, *validity.level_codes(findings)},
    )
    return Judged(attempt=attempt, figures=figures, findings=findings)


def judge_run(run_dir: Path, runspec: RunSpec) -> tuple[Judged, ...]:
    """Every stored attempt in the order in which they were made."""
    judged: list[Judged] = []
    for round_name in rounds_of(runspec.kind):
        for level in runspec.profile.levels:
            directory = run_dir / "results" / round_name / level
            for number in range(1, runspec.profile.attempts_max + 1):
                path = directory / f"attempt-{number}" / "attempt.json"
                if path.is_file():
                    attempt = msgspec.json.decode(path.read_bytes(), type=Attempt)
                    judged.append(judge_attempt(run_dir, runspec, attempt, judged))
    return tuple(judged)


def newest(judged: Iterable[Judged]) -> tuple[LevelFigures, ...]:
    """The attempt that counts for each level of each round: the last one."""
    last = {(one.attempt.round, one.attempt.level): one.figures for one in judged}
    return tuple(last.values())


def path_ran(judged: Iterable[Judged]) -> bool | None:
    """P7.3 over the attempts that count: the newest of each level of each round."""
    last = {(one.attempt.round, one.attempt.level): one.findings for one in judged}
    return validity.path_ran(last.values())


def figures(
    runspec: RunSpec,
    runspec_sha256: str,
    levels: Iterable[LevelFigures],
    accuracy: ScopeVerdict | None = None,
    path_ran: bool | None = None,
    function: ScopeVerdict | None = None,
) -> Figures:
    """The figures of a run: TPOT(C), and the verdict of each scope.

    `levels` holds the newest attempt of each level of each round that was begun, in the protocol's
    order; `accuracy` is the verdict on the answers, None where no question was asked; `path_ran`
    and `function` likewise.
    """
    known = tuple(levels)
    b1, b2 = (_means(known, name) for name in ROUNDS)
    performance = _performance(runspec, known, b1, b2, path_ran)
    scopes = (
        scope_verdict("performance", performance),
        accuracy or _not_asked(runspec, performance),
        function or _not_examined(runspec),
    )
    planned = [s for s in scopes if runspec.profile.scopes[s.scope] == "planned"]
    return Figures(
        schema=SCHEMA,
        run_id=runspec.run_id,
        runspec_sha256=runspec_sha256,
        levels=known,
        tpot_ns={
            level: exact.write(metrics.tpot_of_level(b1[level], b2[level]))
            for level in runspec.profile.levels
            if level in b1 and level in b2
        },
        scopes=scopes,
        verdict=worst([Verdict(s.verdict) for s in planned]).value,
    )


def _means(levels: Iterable[LevelFigures], round_name: str) -> dict[str, Fraction]:
    return {
        x.level: exact.parse(x.mean_tpot_ns)
        for x in levels
        if x.round == round_name and x.valid and x.mean_tpot_ns is not None
    }


def _performance(
    runspec: RunSpec,
    levels: Sequence[LevelFigures],
    b1: dict[str, Fraction],
    b2: dict[str, Fraction],
    path_ran: bool | None,
) -> Judgement:
    obstacles = [
        Obstacle(rule="P4.1", level=x.level, reason=f"{x.round}: {', '.join(x.invalid)}")
        for x in levels
        if not x.valid
    ]
    limits = {level: exact.parse(text) for level, text in runspec.limits_tpot_ns.items()}
    if runspec.kind == "calibration":
        return _calibration(runspec, levels)
    if runspec.kind == "candidate":
        return verdict.judge_candidate(
            levels=runspec.profile.levels,
            targets=runspec.targets,
            parent_ns=_ratios(runspec.parent_tpot_ns),
            b1_ns=b1,
            b2_ns=b2,
            thresholds=_ratios(runspec.thresholds),
            limits_ns=limits,
            path_ran=path_ran,
            obstacles=obstacles,
        )
    return verdict.judge_final(
        levels=runspec.profile.levels,
        b1_ns=b1,
        b2_ns=b2,
        limits_ns=limits,
        obstacles=obstacles,
    )


def _ratios(texts: dict[str, str] | None) -> dict[str, Fraction] | None:
    return None if texts is None else {key: exact.parse(text) for key, text in texts.items()}


def _calibration(runspec: RunSpec, levels: Sequence[LevelFigures]) -> Judgement:
    """P4.5: complete with six services, each valid at every level; nothing is left out."""
    valid = {(x.round, x.level) for x in levels if x.valid and x.mean_tpot_ns is not None}
    open_ends = [
        f"{round_name} {level}"
        for round_name in rounds_of("calibration")
        for level in runspec.profile.levels
        if (round_name, level) not in valid
    ]
    return Judgement(
        verdict=Verdict.INCONCLUSIVE if open_ends else Verdict.PASS,
        rule="P4.5",
        cause=Cause.EVIDENCE if open_ends else Cause.ACCEPTED,
        level=None,
        reason=f"no valid {open_ends[0]}: not complete" if open_ends else "six complete services",
        levels=(),
    )


def _not_asked(runspec: RunSpec, performance: Judgement) -> ScopeVerdict:
    """P4.3: NOT_RUN with the reason; INCONCLUSIVE where it was due and could not be finished."""
    if runspec.profile.scopes["accuracy"] != "planned":
        return _unplanned(runspec, "accuracy")
    gated = verdict.gate_accuracy(performance)
    if gated is not None:
        return scope_verdict("accuracy", gated)
    return ScopeVerdict(
        scope="accuracy",
        verdict=Verdict.NOT_RUN.value,
        rule="P4.3",
        reason="the questions were not asked to their end",
    )


def _not_examined(runspec: RunSpec) -> ScopeVerdict:
    """P7.5: NOT_RUN where the stage was not reached, and where nobody claims it."""
    if runspec.profile.scopes["function"] != "planned":
        return _unplanned(runspec, "function")
    return ScopeVerdict(
        scope="function", verdict=Verdict.NOT_RUN.value, rule="P7.5", reason="not reached"
    )


def _unplanned(runspec: RunSpec, scope: str) -> ScopeVerdict:
    return ScopeVerdict(
        scope=scope,  # type: ignore[arg-type]
        verdict=Verdict.NOT_RUN.value,
        rule="P4.3",
        reason=runspec.profile.scopes[scope],
    )


def no_better(planned: Outcome, figures: Figures) -> Outcome:
    """Tests only say what the figures are; where they say better, the figures count."""
    if planned.verdict is not Verdict.PASS or figures.verdict == Verdict.PASS:
        return planned
    scopes = [s for s in figures.scopes if s.verdict == figures.verdict]
    reason = "; ".join(f"{s.scope} {s.rule}: {s.reason}" for s in scopes)
    return Outcome(test="", verdict=Verdict(figures.verdict), reason=reason)


def last_line(runspec: RunSpec, figures: Figures, result: Outcome, *, is_own: bool = False) -> str:
    """`PASS|FAIL|INCONCLUSIVE|NOT_RUN <run-id> <reason>`; says what was not claimed.

    `is_own`: the profile is none of those that are committed here.
    """
    if runspec.kind == "calibration" and result.verdict is Verdict.PASS:
        return f"{result.verdict} {runspec.run_id} calibration complete, its thresholds are frozen"
    planned = [s for s in figures.scopes if runspec.profile.scopes[s.scope] == "planned"]
    left = [s for s in figures.scopes if s not in planned]
    parts = [f"scope: {', '.join(s.scope for s in planned)}"]
    if result.verdict is not Verdict.PASS:
        parts = [(result.reason or result.test).splitlines()[0]]
    elif any(s.scope == "accuracy" for s in planned):
        # The count of right answers is what people look for; the rest stands in the report.
        counts: dict[str, str] = {s.scope: f" {s.reason}" for s in planned if s.scope == "accuracy"}
        parts.append(", ".join(f"{s.scope} {s.verdict}{counts.get(s.scope, '')}" for s in planned))
    parts += [f"{s.scope} {s.verdict}: {s.reason}" for s in left]
    if is_own:
        parts.append("a profile of your own")
    if left or is_own:
        parts.append("not a final acceptance")
    return f"{result.verdict} {runspec.run_id} {'; '.join(parts)}"
