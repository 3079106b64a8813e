"""The attempts of a run directory -> judged levels: codes, figures, and the mean of each."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from . import paths
from .attempts import ATTEMPT, BANK, COMMAND, Attempt, Command
from .case import Banks, Context, open_case
from .files import load
from .reply import Figures
from .rules import level_codes
from .runspec import RunSpec
from .strict import Refused, ratio_text, read

KINDS = ("warmup", "measured")
BANK_SIZE = 32


@dataclass(frozen=True)
class Level:
    """One judged attempt of a level. newest_ns: when the last byte of the run up to here came.
    path_ran: whether a candidate's path was taken in it (P7.3)."""

    attempt: Attempt
    codes: tuple[str, ...]
    requests: tuple[Figures, ...]
    newest_ns: int
    path_ran: bool | None

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


def judge_levels(root: Path, runspec: RunSpec, runspec_sha256: str) -> list[Level]:
    """Every stored attempt, judged, in the order of the protocol."""
    banks = _banks(root, runspec)
    commands = {name: read_command(root, runspec, name) for name in runspec.rounds}
    salts: set[str] = set()
    services: dict[str, str] = {}
    newest_ns = 0
    judged: list[Level] = []
    for round_name in runspec.rounds:
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
                newest_ns = max([newest_ns, *case.ends])
                judged.append(
                    Level(attempt, level_codes(case), case.measured, newest_ns, paths.ran(case))
                )
                was_valid = judged[-1].mean is not None
                salts |= {request.cache_salt for _, _, request in case.requests}
    return judged


def _is_service(runspec: RunSpec, services: dict[str, str], attempt: Attempt) -> bool:
    """P3.1, P4.5: one service a round, and a new one for each unless two rounds share it."""
    mine = services.setdefault(attempt.round, attempt.service_id)
    others = [one for name, one in services.items() if name != attempt.round]
    is_alone = mine not in others
    is_right = is_alone is not runspec.shares_service(attempt.round) or not others
    return mine == attempt.service_id and is_right


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


def read_command(root: Path, runspec: RunSpec, round_name: str) -> Command | None:
    """How the service of a round was started; None where no service was."""
    owner = "B1" if runspec.shares_service(round_name) else round_name
    path = f"results/{owner}/service/command.json"
    if not (root / path).is_file():
        return None
    return read(load(root, path), path, COMMAND)


def _loader(root: Path, where: str) -> Callable[[str], bytes]:
    return lambda name: load(root, f"{where}/{name}")
