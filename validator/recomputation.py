"""The files of a run directory -> `Figures`: every figure and the verdict, from raw bytes."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from . import verdicts
from .accuracy import Measured, recompute_accuracy
from .attempts import SCHEMA
from .files import load
from .function import function_scope
from .levels import Level, judge_levels, read_command
from .runspec import PATH, ROUNDS, RUNSPEC, RunSpec
from .strict import digest, ratio_text, read


def recompute(run_dir: Path | str) -> dict[str, Any]:
    """`Figures` of a run directory, sealed or not. Refused names what can't be read."""
    return recompute_all(Path(run_dir)).figures


@dataclass(frozen=True)
class Recomputed:
    """`Figures`, and `AccuracyFigures` where questions were asked."""

    figures: dict[str, Any]
    accuracy: dict[str, Any] | None


def recompute_all(root: Path) -> Recomputed:
    """Everything that a run directory records of itself, from its raw bytes."""
    data = load(root, PATH)
    runspec = read(data, PATH, RUNSPEC)
    runspec_sha256 = digest(data)
    attempts = judge_levels(root, runspec, runspec_sha256)
    newest = {(one.attempt.round, one.attempt.level): one for one in attempts}
    levels = list(newest.values())
    b1, b2 = (_means(levels, name) for name in ROUNDS)
    performance = _performance(runspec, levels, b1, b2)
    accuracy = recompute_accuracy(root, runspec, _measured(root, runspec, runspec_sha256, attempts))
    scopes = [
        performance,
        _accuracy(runspec, performance, accuracy),
        function_scope(root, runspec, _path_ran(levels)),
    ]
    figures = {
        "schema": SCHEMA,
        "run_id": runspec.run_id,
        "runspec_sha256": runspec_sha256,
        "levels": [level.as_json() for level in levels],
        "tpot_ns": {
            level: ratio_text(verdicts.tpot(b1[level], b2[level]))
            for level in runspec.profile.levels
            if level in b1 and level in b2
        },
        "scopes": scopes,
        "verdict": verdicts.overall(
            one["verdict"] for one in scopes if runspec.profile.scopes[one["scope"]] == "planned"
        ),
    }
    return Recomputed(figures, accuracy)


def _measured(root: Path, runspec: RunSpec, runspec_sha256: str, attempts: list[Level]) -> Measured:
    """What the accuracy run stands on (P5.1, P5.6)."""
    services = [one.attempt.service_id for one in attempts if one.attempt.round == "B2"]
    command = read_command(root, runspec, "B2")
    return Measured(
        service_id=services[-1] if services else None,
        port=command.port if command else 0,
        newest_ns=attempts[-1].newest_ns if attempts else 0,
        runspec_sha256=runspec_sha256,
    )


def _accuracy(
    runspec: RunSpec, performance: dict[str, str], accuracy: dict[str, Any] | None
) -> dict[str, str]:
    """P4.3: accuracy counts after a performance PASS, or where it alone was asked for."""
    scopes = runspec.profile.scopes
    if scopes["accuracy"] != "planned":
        return _not_run("accuracy", scopes["accuracy"])
    if scopes["performance"] == "planned" and performance["verdict"] != "PASS":
        return _not_run("accuracy", f"performance is {performance['verdict']}")
    if accuracy is None:
        return _not_run("accuracy", "no question was asked")
    return dict(accuracy["verdict"])


def _means(levels: list[Level], round_name: str) -> dict[str, Fraction]:
    return {
        one.attempt.level: one.mean
        for one in levels
        if one.attempt.round == round_name and one.mean is not None
    }


def _performance(
    runspec: RunSpec, levels: list[Level], b1: verdicts.Means, b2: verdicts.Means
) -> dict[str, str]:
    obstacles = [
        f"{one.attempt.round} {one.attempt.level}: {', '.join(one.codes) or 'no request'}"
        for one in levels
        if one.mean is None
    ]
    profile = runspec.profile
    if runspec.kind == "candidate":
        ruling = verdicts.candidate(
            profile.levels,
            runspec.targets,
            runspec.parent_tpot_ns,
            b1,
            b2,
            runspec.thresholds,
            runspec.limits_tpot_ns,
            _path_ran(levels),
            obstacles,
        )
    elif runspec.kind == "calibration":
        means = {name: _means(levels, name) for name in runspec.rounds}
        ruling = verdicts.calibration(profile.levels, runspec.rounds, means)
    else:
        ruling = verdicts.final(profile.levels, b1, b2, runspec.limits_tpot_ns, obstacles)
    return {
        "scope": "performance",
        "verdict": ruling.verdict,
        "rule": ruling.rule,
        "reason": ruling.reason,
    }


def _path_ran(levels: list[Level]) -> bool | None:
    """P7.3: not, as soon as it did not in one level; unknown, if one does not say."""
    said = [one.path_ran for one in levels]
    if False in said:
        return False
    return True if said and None not in said else None


def _not_run(scope: str, reason: str) -> dict[str, str]:
    return {"scope": scope, "verdict": "NOT_RUN", "rule": "P4.3", "reason": reason}
