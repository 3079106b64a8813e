"""The frozen list of tests that a claim needs -> the verdict of a session.

The outcome of a run comes from the plan, not from what happened to be collected: a test that was
deselected, never started or does not exist is NOT_RUN (P4.8; docs/design of the verdicts).
"""

from collections.abc import Iterable, Mapping

from acceptance.protocol import WORST_FIRST, Verdict
from acceptance.records import Record


class Outcome(Record, frozen=True, kw_only=True):
    """How one test ended: the worst of its phases, with the reason of that phase."""

    test: str
    verdict: Verdict
    reason: str


def parse_plan(text: str) -> tuple[str, ...]:
    """One test id a line; `#` starts a comment, `!` a test that is listed outside the plan."""
    return tuple(line for line in _lines(text) if not line.startswith("!"))


def parse_outside(text: str) -> dict[str, str]:
    """Tests that this kind of machine can't offer -> the reason, from lines `! <test> <reason>`."""
    listed = (line[1:].strip().partition(" ") for line in _lines(text) if line.startswith("!"))
    return {test: reason.strip() for test, _, reason in listed}


def _covers(entry: str, test: str) -> bool:
    return test == entry or test.startswith((entry + "[", entry + "::"))


def _lines(text: str) -> list[str]:
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def worse(first: Outcome | None, second: Outcome) -> Outcome:
    """The outcome that decides: of equals the first one, whose reason came first."""
    if first is None or WORST_FIRST.index(second.verdict) < WORST_FIRST.index(first.verdict):
        return second
    return first


def fold(plan: Iterable[str], outcomes: Mapping[str, Outcome]) -> Outcome:
    """The verdict of the session.

    Any FAIL decides, in the plan or not. Otherwise the worst over the plan's ids; an id that did
    not run is NOT_RUN. An entry without parameters stands for all of that test's cases, a file
    for all of its tests. An empty plan is NOT_RUN: no plan, no claim.
    """
    failed = [o for o in outcomes.values() if o.verdict is Verdict.FAIL]
    if failed:
        return failed[0]
    result: Outcome | None = None
    for test in plan:
        cases = [o for name, o in outcomes.items() if _covers(test, name)]
        missing = Outcome(test=test, verdict=Verdict.NOT_RUN, reason=f"{test} did not run")
        for outcome in cases or [missing]:
            result = worse(result, outcome)
    nothing = Outcome(test="", verdict=Verdict.NOT_RUN, reason="no plan names a required test")
    return result or nothing
