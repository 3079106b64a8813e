"""Verdicts <-> pytest: outcomes, plan coverage, exit status, and the gate of a session.

| verdict | a test says so by | pytest sees | letter | exit status |
|---|---|---|---|---|
| PASS | returning | passed | . | 0, if all of the plan is PASS |
| FAIL | an assertion, any exception | failed | F | 1 |
| INCONCLUSIVE | `inconclusive(reason)` | failed | I | 10 |
| NOT_RUN | `not_run(reason)`, any skip | skipped | n | 11 |
"""

import signal
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from acceptance.errors import RunFailure, UsageError
from acceptance.outcomes import Inconclusive, Judged
from acceptance.plan import Outcome, fold, parse_plan, worse
from acceptance.prepare import find_profile, read_profile
from acceptance.protocol import EXIT_BUG, EXIT_STATUS, Verdict

if TYPE_CHECKING:
    from acceptance.session import GateSession

_last: list[str] = []

book_key = pytest.StashKey["VerdictBook"]()
gate_key = pytest.StashKey["GateSession"]()

PLANS = Path(__file__).parent / "plans"


class VerdictBook:
    """What each test of the session ended with, and what the session claims."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.plan: tuple[str, ...] | None = None
        self.result: Outcome | None = None

    def add(self, test: str, verdict: Verdict, reason: str) -> None:
        """Keep the worst of a test's phases."""
        outcome = Outcome(test=test, verdict=verdict, reason=reason)
        self.outcomes[test] = worse(self.outcomes.get(test), outcome)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("acceptance", "the two-round gate")
    group.addoption("--profile", default=None, help="profile by name or path (TOML)")
    group.addoption("--run-id", default=None, help="name of the run directory; used once")
    group.addoption("--candidate", default=None, help="name in the profile's table of candidates")
    group.addoption("--plan", default=None, help="file with the ids of the tests a claim needs")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[book_key] = VerdictBook()
    if config.getoption("--profile") and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("the gate measures one service at a time: run without -n")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze the RunSpec once it is known that acceptance tests were selected."""
    config = session.config
    book = config.stash[book_key]
    if config.getoption("--collect-only"):
        return
    chosen = [item for item in session.items if item.get_closest_marker("acceptance")]
    for item in chosen:
        # The protocol has its own limits (P3.6): a step of the gate may take hours.
        item.add_marker(pytest.mark.timeout(0))
    try:
        book.plan = _plan(config)
        if chosen and config.getoption("--profile"):
            # Only the gate needs its services, client and reports.
            from acceptance.session import GateSession
            from acceptance.stepping import Options

            options = Options(
                profile=find_profile(config.getoption("--profile")),
                run_id=config.getoption("--run-id"),
                candidate=config.getoption("--candidate"),
            )
            _guard()
            gate = GateSession(options, plan=book.plan or ())
            config.stash[gate_key] = gate
            gate.freeze()
    except UsageError as error:
        if config.getoption("--profile"):
            _last.append(f"{Verdict.NOT_RUN} {config.getoption('--run-id') or '-'} {error}")
        raise pytest.UsageError(str(error)) from None


def _plan(config: pytest.Config) -> tuple[str, ...] | None:
    """The plan of the session: named, that of the profile, or that of a scope's marker."""
    named = config.getoption("--plan")
    profile = config.getoption("--profile")
    marker = config.getoption("markexpr")
    if named and profile:
        raise UsageError("--plan: the profile names its plan; give one of the two")
    if named:
        path = Path(named)
    elif profile:
        path = PLANS / f"{read_profile(find_profile(profile))[0].plan}.txt"
    elif marker in ("ops", "accuracy", "acceptance", "function"):
        machine = "ascend" if Path("/dev/davinci_manager").exists() else "cpu"
        path = PLANS / f"{machine}-{marker}.txt"
    else:
        return None
    if not path.is_file():
        if named:
            raise UsageError(f"{path}: no such plan")
        return ()
    return parse_plan(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def gate(request: pytest.FixtureRequest) -> "Generator[GateSession, None, None]":
    """The gate of this session; its services are stopped in every exit path."""
    session = request.config.stash.get(gate_key, None)
    if session is None:
        pytest.skip("no --profile: nothing to measure")
    session.console = _Console(request.config)
    try:
        yield session
    finally:
        session.close()


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _guard() -> None:
    """From the freezing on the first signal ends the run, and no second one its sealing."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(signum: int, frame: object) -> None:
    _ignore_signals()
    raise KeyboardInterrupt(f"signal {signum}")


class _Console:
    """Lets the gate write past pytest's capture while it is at work."""

    def __init__(self, config: pytest.Config) -> None:
        self.capture = config.pluginmanager.getplugin("capturemanager")

    def open(self) -> Any:
        return self.capture.global_and_fixture_disabled()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = call.excinfo.value if call.excinfo else None
    verdict, reason = Verdict.PASS, ""
    if report.skipped:
        verdict = Verdict.NOT_RUN
        reason = str(getattr(error, "msg", None) or getattr(report, "wasxfail", "") or error)
    elif report.failed:
        is_open = isinstance(error, Inconclusive | RunFailure)
        # In the gate only a rule can fail what is measured: a timeout or a bug says nothing of it.
        is_gate = item.get_closest_marker("acceptance") is not None
        is_open |= is_gate and not isinstance(error, Judged)
        verdict = Verdict.INCONCLUSIVE if is_open else Verdict.FAIL
        reason = str(error)
    report.verdict = str(verdict)  # type: ignore[attr-defined]
    report.verdict_reason = reason  # type: ignore[attr-defined]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    verdict = getattr(report, "verdict", None)
    if verdict == Verdict.INCONCLUSIVE:
        return "inconclusive", "I", ("INCONCLUSIVE", {"yellow": True})
    if verdict == Verdict.NOT_RUN:
        return "not run", "n", ("NOT_RUN", {"yellow": True})
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    item.config.stash[book_key].outcomes.pop(item.nodeid, None)
    return (yield)


class _Recorder:
    """Collects reports; an object of its own because `logreport` has no config argument."""

    def __init__(self, book: VerdictBook) -> None:
        self.book = book

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        verdict = getattr(report, "verdict", None)
        if verdict is not None:
            self.book.add(report.nodeid, Verdict(verdict), getattr(report, "verdict_reason", ""))


def pytest_sessionstart(session: pytest.Session) -> None:
    recorder = _Recorder(session.config.stash[book_key])
    session.config.pluginmanager.register(recorder, "acceptance-recorder")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turn pytest's own status into that of the plan, and seal the run."""
    config = session.config
    book = config.stash[book_key]
    gate = config.stash.get(gate_key, None)
    if config.getoption("--collect-only") or exitstatus == pytest.ExitCode.USAGE_ERROR:
        book.outcomes.clear()
        return
    for item in session.items:
        if item.nodeid not in book.outcomes:
            book.add(item.nodeid, Verdict.NOT_RUN, "never started")
    if gate is not None and gate.is_frozen:
        _ignore_signals()
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        book.result = gate.finish(book.outcomes, interrupted=interrupted)
        session.exitstatus = EXIT_BUG if gate.bug else EXIT_STATUS[book.result.verdict]
    elif book.plan is not None and exitstatus in (0, 1, 5):
        book.result = fold(book.plan, book.outcomes)
        session.exitstatus = EXIT_STATUS[book.result.verdict]


def last_line() -> str:
    """The verdict line of the session that ended last in this process; empty if there is none."""
    return _last[-1] if _last else ""


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    book = config.stash[book_key]
    open_ends = [o for o in book.outcomes.values() if o.verdict is not Verdict.PASS]
    if open_ends and len(open_ends) <= 40:
        terminalreporter.section("verdicts")
        for outcome in sorted(open_ends, key=lambda o: o.test):
            text = outcome.reason.splitlines()[0] if outcome.reason else ""
            terminalreporter.line(f"{outcome.verdict:<13}{outcome.test}: {text}"[:400])
    gate = config.stash.get(gate_key, None)
    if gate is not None and gate.is_frozen:
        gate.say_last(terminalreporter.line)
        _last.append(gate.last_line)
    elif book.result is not None:
        terminalreporter.line(f"{book.result.verdict} - {book.result.reason}")
