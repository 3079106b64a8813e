"""What a run says that it ended with -> whether plan, outcomes and raw bytes allow it (P4.8)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .attempts import SCHEMA
from .files import load
from .runspec import PATH, RUNSPEC
from .strict import Reader, array, one_of, read, record, schema, text
from .verdicts import WORST_FIRST, overall

VERDICT = "results/verdict.json"
OUTCOMES = "results/outcomes.json"
PLAN = "plan/plan.txt"


@dataclass(frozen=True)
class Claim:
    """`verdict.json`: the verdict of the run, and the line that was printed."""

    schema: int
    run_id: str
    verdict: str
    reason: str
    line: str


@dataclass(frozen=True)
class Outcome:
    """How one test ended."""

    test: str
    verdict: str
    reason: str


CLAIM: Reader[Claim] = record(
    Claim,
    schema=schema(SCHEMA),
    run_id=text,
    verdict=one_of(WORST_FIRST),
    reason=text,
    line=text,
)
ENDED: Reader[tuple[Outcome, ...]] = array(
    record(Outcome, test=text, verdict=one_of(WORST_FIRST), reason=text)
)


def read_claim(root: Path) -> Claim:
    """The recorded verdict of a run."""
    return read(load(root, VERDICT), VERDICT, CLAIM)


def objections(root: Path, claim: Claim, figures: dict[str, Any]) -> list[str]:
    """Why the recorded verdict can't be: better than its plan or its figures, or a FAIL that no
    test gave. Worse than them it may be: a run can be broken in ways that leave no figure."""
    runspec = read(load(root, PATH), PATH, RUNSPEC)
    outcomes = read(load(root, OUTCOMES), OUTCOMES, ENDED)
    found = []
    if claim.run_id != runspec.run_id or not claim.line.startswith(
        f"{claim.verdict} {claim.run_id} "
    ):
        found.append(f"{VERDICT}: line: does not say verdict and run id as they are recorded")
    if _planned(load(root, PLAN)) != runspec.plan:
        found.append(f"{PLAN}: is not the plan of the RunSpec")
    tests = fold(runspec.plan, outcomes)
    for name, best in (("its tests", tests), ("its raw bytes", figures["verdict"])):
        if WORST_FIRST.index(claim.verdict) > WORST_FIRST.index(best):
            found.append(f"{VERDICT}: verdict: {claim.verdict} recorded, {name} give {best}")
    if claim.verdict == "FAIL" and tests != "FAIL":
        found.append(f"{VERDICT}: verdict: FAIL recorded, no test ended so")
    return found


def fold(plan: tuple[str, ...], outcomes: tuple[Outcome, ...]) -> str:
    """Any FAIL decides; else the worst over the planned tests, of which none may be missing. A
    planned test without parameters stands for all of its cases."""
    if any(one.verdict == "FAIL" for one in outcomes):
        return "FAIL"
    verdicts = []
    for test in plan:
        cases = [one.verdict for one in outcomes if one.test.split("[")[0] == test]
        cases += [one.verdict for one in outcomes if one.test == test and "[" in test]
        verdicts += cases or ["NOT_RUN"]
    return overall(verdicts)


def _planned(data: bytes) -> tuple[str, ...]:
    """Ids of a plan: one a line, `#` begins a comment, `!` what is outside of the plan."""
    lines = (line.partition("#")[0].strip() for line in data.decode("utf-8", "replace").split("\n"))
    return tuple(line for line in lines if line and not line.startswith("!"))
