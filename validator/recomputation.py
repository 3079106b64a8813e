"""The files of a run directory -> `Figures`: every figure and the verdict, from raw bytes."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from . import verdicts
from .attempts import ATTEMPT, BANK, COMMAND, SCHEMA, Attempt, Command
from .case import Banks, Context, open_case
from .files import load
from .reply import Figures
from .rules import level_codes
from .runspec import PATH, ROUNDS, RUNSPEC, SCOPES, RunSpec
from .strict import Refused, digest, ratio_text, read

KINDS = ("warmup", "measured")
BANK_SIZE = 32


@dataclass(frozen=True)
class Level:
    """One judged attempt of a level."""

    attempt: Attempt
    codes: tuple[str, ...]
    requests: tuple[Figures, ...]

    @property
    def mean(self) -> Fraction | None:
        """B_r(C) of P4.0; None unless the level is valid."""
        if self.codes or not self.requests:
            return None
        return sum((one.tpot_ns for one in self.requests), Fraction(0)) / len(self.requests)

    def as_json(self) -> dict[str, Any]:
        """As `figures.json` writes it."""
        mean = self.mean
        return {
            "round": self.attempt.round,
            "level": self.attempt.level,
            "attempt": self.attempt.attempt,
            "valid": mean is not None,
            "invalid": list(self.codes),
            "requests": [one.as_json() for one in self.requests],
            "mean_tpot_ns": None if mean is None else ratio_text(mean),
        }


def recompute(run_dir: Path | str) -> dict[str, Any]:
    """`Figures` of a run directory, sealed or not. Refused names what can't be read."""
    root = Path(run_dir)
    data = load(root, PATH)
    runspec = read(data, PATH, RUNSPEC)
    runspec_sha256 = digest(data)
    newest: dict[tuple[str, str], Level] = {}
    for level in _levels(root, runspec, runspec_sha256):
        newest[level.attempt.round, level.attempt.level] = level
    levels = list(newest.values())
    b1, b2 = (_means(levels, name) for name in ROUNDS)
    scopes = [
        _performance(runspec, levels, b1, b2),
        *(_not_run(runspec, scope) for scope in SCOPES[1:]),
    ]
    return {
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
            True if profile.is_required("candidate-path") and levels else None,
            obstacles,
        )
    else:
        ruling = verdicts.final(profile.levels, b1, b2, runspec.limits_tpot_ns, obstacles)
    return {
        "scope": "performance",
        "verdict": ruling.verdict,
        "rule": ruling.rule,
        "reason": ruling.reason,
    }


def _not_run(runspec: RunSpec, scope: str) -> dict[str, str]:
    return {
        "scope": scope,
        "verdict": "NOT_RUN",
        "rule": "P4.3",
        "reason": runspec.profile.scopes[scope],
    }


def _levels(root: Path, runspec: RunSpec, runspec_sha256: str) -> Iterator[Level]:
    """Every stored attempt, judged, in the order of the protocol."""
    banks = _banks(root, runspec)
    commands = {name: _command(root, runspec, name) for name in ROUNDS}
    salts: set[str] = set()
    services: dict[str, str] = {}
    newest_ns = 0
    for round_name in ROUNDS:
        for level in runspec.profile.levels:
            was_valid: bool | None = None
            for number in _numbers(root, runspec, round_name, level):
                where = f"results/{round_name}/{level}/attempt-{number}"
                attempt = _attempt(root, where, runspec, runspec_sha256)
                context = Context(
                    runspec=runspec,
                    banks=banks,
                    load=_loader(root, where),
                    where=where,
                    command=commands[round_name],
                    salts=frozenset(salts),
                    was_valid=was_valid,
                    newest_ns=newest_ns,
                    is_other_service=not _is_service(runspec, services, attempt),
                )
                case = open_case(context, attempt)
                judged = Level(attempt, level_codes(case), case.measured)
                yield judged
                was_valid = judged.mean is not None
                newest_ns = max([newest_ns, *case.ends])
                salts |= {request.cache_salt for _, _, request in case.requests}


def _is_service(runspec: RunSpec, services: dict[str, str], attempt: Attempt) -> bool:
    """P3.1: one service a round, and another one in B2 unless both rounds share it."""
    mine = services.setdefault(attempt.round, attempt.service_id)
    is_shared = runspec.profile.rounds == "same-service"
    other = services.get("B1" if attempt.round == "B2" else "B2")
    return mine == attempt.service_id and (other is None or (other == mine) is is_shared)


def _attempt(root: Path, where: str, runspec: RunSpec, runspec_sha256: str) -> Attempt:
    """An `attempt.json` that is what its place says. Refused otherwise."""
    path = f"{where}/attempt.json"
    attempt = read(load(root, path), path, ATTEMPT)
    if f"results/{attempt.round}/{attempt.level}/attempt-{attempt.attempt}" != where:
        place = f"{attempt.round}/{attempt.level}/attempt-{attempt.attempt}"
        raise Refused(path, "", f"is the record of {place}")
    if attempt.run_id != runspec.run_id:
        raise Refused(path, "run_id", "is another run's")
    if attempt.runspec_sha256 != runspec_sha256:
        raise Refused(path, "runspec_sha256", "is another RunSpec's")
    names = [
        *attempt.metrics,
        *attempt.identity,
        *(n for w in attempt.waves for r in w.requests for n in (r.request, r.raw, r.reads)),
    ]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(path, "", f"names {twice} more than once")
    return attempt


def _numbers(root: Path, runspec: RunSpec, round_name: str, level: str) -> list[int]:
    """Numbers of the attempts of a level that have a record."""
    directory = root / "results" / round_name / level
    found = []
    for path in directory.glob("attempt-*/attempt.json"):
        name = path.parent.name
        number = re.fullmatch(r"attempt-([1-9][0-9]{0,3})", name)
        if number is None or int(number[1]) > runspec.profile.attempts_max:
            where = f"results/{round_name}/{level}/{name}"
            raise Refused(where, "", f"at most {runspec.profile.attempts_max} attempts are planned")
        found.append(int(number[1]))
    return sorted(found)


def _banks(root: Path, runspec: RunSpec) -> Banks:
    """P3.4: two banks of 32 prompts of the frozen length, all 64 distinct."""
    banks = {}
    for kind in KINDS:
        path = f"plan/banks/{kind}.json"
        bank = banks[kind] = read(load(root, path), path, BANK)
        length = runspec.profile.size(kind).input_tokens
        if len(bank) != BANK_SIZE:
            raise Refused(path, "", f"{len(bank)} prompts, not {BANK_SIZE}")
        for number, prompt in enumerate(bank):
            if len(prompt) != length:
                raise Refused(path, f"[{number}]", f"{len(prompt)} tokens, not {length}")
    if len({*banks["warmup"], *banks["measured"]}) < 2 * BANK_SIZE:
        raise Refused("plan/banks", "", "the 64 prompts are not all distinct")
    return banks


def _command(root: Path, runspec: RunSpec, round_name: str) -> Command | None:
    """How the service of a round was started; None where no service was."""
    shared = runspec.profile.rounds == "same-service"
    path = f"results/{'B1' if shared else round_name}/service/command.json"
    if not (root / path).is_file():
        return None
    return read(load(root, path), path, COMMAND)


def _loader(root: Path, where: str) -> Callable[[str], bytes]:
    return lambda name: load(root, f"{where}/{name}")
