"""One run from freezing to sealing: the protocol's steps in order, each taken once.

The tests ask for steps; the session takes what comes before, keeps what a step ended with, and
stops the service in every exit path.
"""

import os
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from acceptance import (
    archive,
    asking,
    calibrating,
    freeze,
    function,
    function_checks,
    judge,
    lease,
    machine,
    register,
    verdict,
)
from acceptance.accuracy.edge import identity_sha256
from acceptance.errors import RunFailure, UsageError
from acceptance.exact import parse, percent
from acceptance.gather import attempt_dir
from acceptance.level import LevelRunner
from acceptance.live import View
from acceptance.outcomes import fail, inconclusive, not_run
from acceptance.plan import Outcome, fold
from acceptance.prepare import prepare
from acceptance.protocol import Verdict, worst
from acceptance.records import SCHEMA, Attempt, Figures, FileHash, ScopeVerdict
from acceptance.report import write_report
from acceptance.rounds import Rounds
from acceptance.runspec import RunSpec
from acceptance.settings import lease_path, runs_dir
from acceptance.stepping import Options, StepResult, of_scope, passed, round_of
from acceptance.steps import calibration_steps, category, outlives_failure, steps
from acceptance.timekeeper import Timekeeper
from acceptance.validating import recompute_archive


class GateSession:
    """The run of one pytest session. `is_frozen`: a run directory exists and must be sealed."""

    def __init__(self, options: Options, plan: tuple[str, ...]) -> None:
        self.options = options
        self.plan = plan
        self.is_frozen = False
        self.lease: lease.Lease | None = None
        self.console: Any = None
        self.results: dict[str, StepResult] = {}
        self.judged: list[judge.Judged] = []
        self.performance: FileHash | None = None
        self.measured_identity: str | None = None
        self.accuracy: ScopeVerdict | None = None
        self.function: ScopeVerdict | None = None
        self.failure: StepResult | None = None
        self.bug: str | None = None
        self.last_line = ""
        self.report: Path | None = None

    def freeze(self) -> None:
        """Make the run directory and its RunSpec; UsageError when the request can't be served."""
        options = self.options
        prepared = prepare(options.profile, options.run_id, options.kind, options.candidate)
        self.lease = lease.acquire(lease_path(), f"user {os.getuid()}", f"run {prepared.run_id}")
        try:
            self.frozen = freeze.freeze(prepared, self.plan)
        except BaseException:
            self.lease.release()
            raise
        self.is_frozen = True
        self.view = View()
        self.rounds = Rounds(self.frozen)
        self.timekeeper = Timekeeper(self.frozen.run_dir, self.runspec.run_id)
        self.level_runner = LevelRunner(self.frozen, self.view, self.timekeeper)
        spec = self.frozen.runspec.profile
        if self.runspec.kind == "calibration":
            self.order = calibration_steps(spec.levels)
            return
        self.order = steps(
            spec.rounds,
            spec.levels,
            is_accuracy_planned=spec.scopes["accuracy"] == "planned",
            is_function_planned=spec.scopes["function"] == "planned",
        )

    @property
    def runspec(self) -> RunSpec:
        return self.frozen.runspec

    def require(self, step: str) -> None:
        """Take every step up to this one, then say how this one ended, in pytest's terms."""
        if step not in self.order:
            not_run(f"step {step} is not part of profile {self.runspec.profile.name}")
        with self.console.open():
            result = self.take(step)
        text = f"{result.rule}: {result.reason}"
        if result.verdict is Verdict.FAIL:
            fail(text)
        if result.verdict is Verdict.INCONCLUSIVE:
            inconclusive(text)
        if result.verdict is Verdict.NOT_RUN:
            not_run(text)

    def take(self, step: str) -> StepResult:
        """Take every step up to this one that was not taken yet, and say how it ended."""
        for name in self.order[: self.order.index(step) + 1]:
            if name not in self.results:
                self.results[name] = self._take(name)
        return self.results[step]

    def _take(self, step: str) -> StepResult:
        if self.failure and not outlives_failure(step):
            return StepResult(
                verdict=Verdict.NOT_RUN,
                rule=self.failure.rule,
                reason=f"not reached: {self.failure.reason}",
            )
        try:
            with self.timekeeper.phase(category(step), step, round_name=round_of(step)):
                return self._action(step)()
        except RunFailure as error:
            result = StepResult(verdict=Verdict.INCONCLUSIVE, rule=error.rule, reason=error.reason)
        except UsageError as error:
            result = StepResult(verdict=Verdict.INCONCLUSIVE, rule="P6.7", reason=str(error))
        except OSError as error:
            result = StepResult(
                verdict=Verdict.INCONCLUSIVE, rule="P6.1", reason=f"the archive: {error}"
            )
        except Exception as error:
            # Not a fault of what is measured: the run can't be trusted, and the status is 3.
            self.bug = traceback.format_exc()
            self.view.say(self.bug)
            reason = f"a bug of the suite: {type(error).__name__}: {error}"
            result = StepResult(verdict=Verdict.INCONCLUSIVE, rule="P6.2", reason=reason)
        self.failure = self.failure or result
        if not outlives_failure(step):
            self._stop_quietly()
        return result

    def _action(self, step: str) -> Callable[[], StepResult]:
        named: dict[str, Callable[[], StepResult]] = {
            "performance": self._performance,
            "accuracy": self._accuracy,
            "function": self._function,
            "calibration": self._calibration,
            "recomputation": self._recomputation,
        }
        if step in named:
            return named[step]
        round_name, _, what = step.partition("-")
        if what == "start":
            return lambda: self._start(round_name)
        if what == "stop":
            return lambda: self._stop(round_name)
        return lambda: self._level(round_name, what)

    def _start(self, round_name: str) -> StepResult:
        freeze.check_frozen(self.frozen)
        reference = self.frozen.reference
        if reference is not None and reference.obstacles:
            raise RunFailure("P4.2.1", "; ".join(reference.obstacles))
        if not self.rounds.shares_service(round_name):
            self._look(round_name)
        self.view.say(f"{round_name}: starting the service")
        seconds = self.rounds.start(round_name)
        self.view.say(f"{round_name}: service ready after {seconds:.1f} s")
        return passed()

    def _look(self, round_name: str) -> None:
        """P2.1, P6.9: the machine is fit, and it is still ours."""
        is_first = self.order[0] == f"{round_name}-start"
        note = self.lease.note if self.lease and is_first else None
        limits, notes = self.frozen.profile.preflight, (note,) if note else ()
        records = runs_dir() / ".services"
        found = machine.look(limits, records, notes, is_after_stop=not is_first)
        for line in (*found.notes, *found.problems):
            self.view.say(line)
        machine.require(found, self.frozen.run_dir / "results" / round_name)
        if self.lease is None or not self.lease.is_valid():
            raise RunFailure("P6.9", f"{lease_path()}: the lease was taken away from this run")
        self.level_runner.device_problems = found.problems

    def _level(self, round_name: str, level: str) -> StepResult:
        """P3.7: an invalid attempt may be repeated, whole, on the same, still valid service."""
        service = self.rounds.services[round_name]
        previous: Attempt | None = None
        why = ""
        for number in range(1, self.runspec.profile.attempts_max + 1):
            freeze.check_frozen(self.frozen)
            attempt = self.level_runner.run(service, round_name, level, number, previous, why)
            one = judge.judge_attempt(self.frozen.run_dir, self.runspec, attempt, self.judged)
            self._keep(one)
            if one.figures.valid:
                self.rounds.prove(round_name)
                return passed()
            why = ", ".join(one.figures.invalid)
            self.view.say(f"{round_name} {level}: attempt {number} is invalid: {why}")
            previous = attempt
            self.rounds.prove(round_name)
        raise RunFailure("P3.7", f"{round_name} {level}: no valid attempt of {number}: {why}")

    def _keep(self, one: judge.Judged) -> None:
        """Remember an attempt and write down what each validity rule found."""
        self.judged.append(one)
        path = attempt_dir(self.frozen.run_dir, one.attempt) / "findings.json"
        archive.write_record(path, one.findings)

    def _judge_what_was_cut_short(self) -> None:
        """An attempt that was interrupted was stored, but nobody has judged it yet."""
        for one in judge.judge_run(self.frozen.run_dir, self.runspec)[len(self.judged) :]:
            self._keep(one)
        if self.accuracy is None and (self.frozen.run_dir / asking.DIRECTORY).is_dir():
            self.accuracy = asking.judge_interrupted(self.frozen.run_dir)

    def _performance(self) -> StepResult:
        """The two-round verdict, written down before the first question is asked (P5.6)."""
        scope = self._compute().scopes[0]
        self.performance = archive.write_record(
            self.frozen.run_dir / "results/performance.json", scope
        )
        self.measured_identity = identity_sha256(self.rounds.services["B2"].identity())
        return of_scope(scope)

    def _accuracy(self) -> StepResult:
        performance = self.results["performance"]
        gated = verdict.gate_accuracy(performance.verdict)
        if gated is not None:
            return StepResult(verdict=gated.verdict, rule=gated.rule, reason=gated.reason)
        figures = asking.ask(
            self.frozen,
            self.rounds.services["B2"],
            self.view,
            measured_identity_sha256=self.measured_identity,
            performance_sha256=self.performance.sha256 if self.performance else None,
        )
        self.accuracy = figures.verdict
        self.view.say(f"accuracy: {figures.correct} of {figures.count} right")
        return of_scope(figures.verdict)

    def _function(self) -> StepResult:
        """P7.5: every kind of request, before the service is reclaimed."""
        checks = function.examine(self.frozen, self.rounds.services["B2"])
        for check in checks:
            self.view.say(f"function {check.name}: {check.verdict}, {check.reason}")
        self.rounds.prove("B2")
        self.function = function_checks.scope(
            checks,
            path_ran=judge.path_ran(self.judged),
            has_claim=bool(self.runspec.paths_claimed),
        )
        return of_scope(self.function)

    def _calibration(self) -> StepResult:
        """P4.5: thresholds, frozen only when all six services are complete."""
        report = calibrating.report(self.frozen, self.judged)
        calibrating.write(self.frozen.run_dir, report)
        shown = [f"{level} {percent(parse(text))}" for level, text in report.thresholds.items()]
        self.view.say(f"thresholds: {', '.join(shown)}")
        return passed()

    def _stop(self, round_name: str) -> StepResult:
        if self.rounds.services.get(round_name) is None:
            return StepResult(
                verdict=Verdict.NOT_RUN, rule="P6.7", reason=f"{round_name} was never started"
            )
        self.view.say(f"{round_name}: {self.rounds.stop(round_name)}")
        return passed()

    def _stop_quietly(self) -> None:
        try:
            self.rounds.stop_all()
        except RunFailure as error:
            self.view.say(f"stopping the service: {error}")

    def _figures(self) -> Figures:
        """The live figures, computed and written once."""
        path = self.frozen.run_dir / "results/figures.json"
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=Figures)
        figures = self._compute()
        archive.write_record(path, figures)
        return figures

    def _compute(self) -> Figures:
        """What the files say; what else befell the run is in its outcome, not in its figures."""
        return judge.figures(
            self.runspec,
            self.frozen.runspec_sha256,
            judge.newest(self.judged),
            self.accuracy,
            judge.path_ran(self.judged),
            self.function,
        )

    def _recomputation(self) -> StepResult:
        """P6.2: the archived validator recomputes everything from the raw bytes, in a process of
        its own, and must agree with the live figures."""
        self._figures()
        if said := recompute_archive(self.frozen.run_dir):
            raise RunFailure("P6.2", f"the validator: {said}")
        return passed()

    def close(self) -> None:
        """Nothing is left running, whatever happened."""
        if self.is_frozen:
            self._stop_quietly()

    def finish(self, outcomes: Mapping[str, Outcome], *, interrupted: bool) -> Outcome:
        """Write what is missing, judge the session against its plan, report and seal."""
        self.close()
        if interrupted and not self.failure:
            self.failure = StepResult(
                verdict=Verdict.INCONCLUSIVE, rule="P3.7", reason="interrupted by a signal"
            )
        try:
            return self._finish(outcomes)
        finally:
            if self.lease:
                self.lease.release()

    def _finish(self, outcomes: Mapping[str, Outcome]) -> Outcome:
        self._judge_what_was_cut_short()
        if "recomputation" not in self.results:
            self.results["recomputation"] = self._take("recomputation")
        result = self._fold(outcomes)
        try:
            self._write_results(outcomes, result)
        except (OSError, UsageError) as error:
            reason = f"P6.1: the archive could not be completed: {error}"
            result = Outcome(test=result.test, verdict=Verdict.INCONCLUSIVE, reason=reason)
            self.last_line = f"{result.verdict} {self.runspec.run_id} {result.reason}"
        return result

    def _fold(self, outcomes: Mapping[str, Outcome]) -> Outcome:
        planned = fold(self.plan, outcomes)
        if planned.verdict is Verdict.FAIL:
            return planned
        if self.failure:
            reason = f"{self.failure.rule}: {self.failure.reason}"
            verdict = worst([planned.verdict, self.failure.verdict])
            return Outcome(test=planned.test, verdict=verdict, reason=reason)
        return judge.no_better(planned, self._figures())

    def _write_results(self, outcomes: Mapping[str, Outcome], result: Outcome) -> None:
        run_dir, spec = self.frozen.run_dir, self.runspec
        figures = self._figures()
        ordered = [outcomes[name] for name in sorted(outcomes)]
        self.last_line = judge.last_line(spec, figures, result, is_own=self.frozen.is_own)
        archive.write_record(run_dir / "results/outcomes.json", ordered)
        archive.write_record(
            run_dir / "results/verdict.json",
            {
                "schema": SCHEMA,
                "run_id": spec.run_id,
                "verdict": result.verdict,
                "reason": result.reason,
                "line": self.last_line,
            },
        )
        self.report = write_report(
            run_dir,
            spec,
            figures,
            [one.attempt for one in self.judged],
            ordered,
            self.last_line,
            self.frozen.profile.notes,
        )
        self.timekeeper.summary()
        seal = archive.seal(run_dir, spec.run_id, self.frozen.runspec_sha256)
        self._enter(figures.scopes[0], result.verdict, seal)

    def _enter(self, scope: ScopeVerdict, overall: Verdict, seal: str) -> None:
        """P6.3: the run's end goes on record. What the validator does not reproduce is no verdict
        that could be final (P4.7)."""
        recomputed = self.results["recomputation"]
        is_sound = recomputed.verdict is Verdict.PASS
        entry = register.ended(
            self.frozen.entry,
            verdict=Verdict(scope.verdict) if is_sound else Verdict.INCONCLUSIVE,
            rule=scope.rule if is_sound else "P6.2",
            overall=overall,
            seal=seal,
        )
        with register.opened(runs_dir()) as book:
            book.append(entry)

    def say_last(self, line: Callable[[str], None]) -> None:
        """Where the report lies; the verdict line comes after everything else."""
        if self.report:
            line(f"report: {self.report}")
