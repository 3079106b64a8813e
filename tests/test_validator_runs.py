"""Whole runs, drawn: any times, any planted fault, a level repeated, a run cut short. A model of a
few lines says how each must end; both judges must say so, and a seal must hold."""

from dataclasses import dataclass
from fractions import Fraction

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import validator
from acceptance import judge
from acceptance.canonical import canonical, sha256
from acceptance.freeze import load_runspec
from tests.strategies import runs
from tests.strategies.faults import FAULTS, PLACE, Fault
from tests.strategies.places import fast_directory

LEVELS = ("C1", "C4")
ORDER = [(round_name, level) for round_name in ("B1", "B2") for level in LEVELS]


@dataclass(frozen=True)
class WholeRun:
    """fault: at the newest attempt of B1 C4. is_repeated: that level had an invalid attempt
    before. reached: levels that were measured before the run was cut short."""

    tpot_ns: dict[tuple[str, str], int]
    limit_ns: int
    fault: Fault | None
    is_repeated: bool
    reached: int

    def expected(self):
        """By P4.4, from what was planted alone."""
        if self.reached < len(ORDER) or self.fault is not None:
            return "INCONCLUSIVE"
        means = [Fraction(self.tpot_ns["B1", x] + self.tpot_ns["B2", x], 2) for x in LEVELS]
        return "PASS" if max(means) <= self.limit_ns else "FAIL"

    def write(self, place):
        draft = runs.run_draft(
            levels=LEVELS,
            tpot_ns=self.tpot_ns,
            limits_ns=dict.fromkeys(LEVELS, f"{self.limit_ns}/1"),
            repeated=(PLACE,) if self.is_repeated else (),
        )
        kept = ORDER[: self.reached]
        draft.attempts = [
            one for one in draft.attempts if (one.record["round"], one.record["level"]) in kept
        ]
        if self.fault is not None and PLACE in kept:
            self.fault.spoil(draft, draft.attempt(*PLACE, 2 if self.is_repeated else 1))
        return runs.write(draft, place)


@st.composite
def whole_runs(draw):
    times = st.integers(1, 3000)
    fault = draw(st.none() | st.sampled_from(FAULTS))
    # A made-up predecessor is a fault of a first attempt only.
    is_first = fault is not None and fault.name == "a-first-attempt-with-a-predecessor"
    return WholeRun(
        tpot_ns={place: draw(times) for place in ORDER},
        limit_ns=draw(times),
        fault=fault,
        is_repeated=not is_first and draw(st.booleans()),
        reached=draw(st.sampled_from([4, 4, 4, 3, 2])),
    )


@settings(max_examples=25, deadline=None)
@given(whole=whole_runs())
def test_a_run_ends_as_its_plan_of_faults_says(whole):
    with fast_directory() as place:
        run_dir = whole.write(place)
        runspec = load_runspec(run_dir)
        digest = sha256((run_dir / "plan/runspec.json").read_bytes())
        levels = judge.newest(judge.judge_run(run_dir, runspec))

        figures = validator.recompute(run_dir)
        live = msgspec.json.decode(canonical(judge.figures(runspec, digest, levels, [])))
        result = validator.verify(runs.seal(run_dir, live))

    assert whole.expected() == figures["verdict"]
    assert (0, figures) == (result.status, result.figures), result.lines
    assert len(levels) == whole.reached


@settings(max_examples=15, deadline=None)
@given(whole=whole_runs(), slower=st.integers(1, 4000), at=st.sampled_from(ORDER))
def test_a_slower_run_never_ends_better(whole, slower, at):
    times = {**whole.tpot_ns, at: whole.tpot_ns[at] + slower}
    slow = WholeRun(times, whole.limit_ns, whole.fault, whole.is_repeated, whole.reached)
    with fast_directory() as place:
        first = validator.recompute(whole.write(place / "a"))["verdict"]
        second = validator.recompute(slow.write(place / "b"))["verdict"]

    order = ("FAIL", "INCONCLUSIVE", "NOT_RUN", "PASS")
    assert order.index(second) <= order.index(first)
