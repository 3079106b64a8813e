"""The calibration as a command: its steps in order, an exit status, one last line (P4.5)."""

import signal
import sys

from acceptance.plan import Outcome
from acceptance.prepare import find_profile, read_profile
from acceptance.protocol import EXIT_BUG, EXIT_STATUS, Verdict
from acceptance.session import GateSession
from acceptance.stepping import Options
from acceptance.steps import calibration_steps


def calibrate(profile: str, run_id: str | None) -> int:
    """Run it to its sealed archive. UsageError, with nothing made, for what can't be served."""
    path = find_profile(profile)
    plan = calibration_steps(read_profile(path)[0].load.levels)
    session = GateSession(Options(profile=path, run_id=run_id, kind="calibration"), plan)
    session.freeze()
    interrupted = False
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        session.take(plan[-1])
    except KeyboardInterrupt:
        interrupted = True
    finally:
        signal.signal(signal.SIGTERM, previous)
        result = session.finish(_outcomes(session, plan), interrupted=interrupted)
    session.say_last(_say)
    _say(session.last_line)
    return EXIT_BUG if session.bug else EXIT_STATUS[result.verdict]


def _outcomes(session: GateSession, plan: tuple[str, ...]) -> dict[str, Outcome]:
    """The steps as a plan's tests: one that was not reached is NOT_RUN."""
    found = {}
    for step in plan:
        result = session.results.get(step)
        verdict = result.verdict if result else Verdict.NOT_RUN
        reason = f"{result.rule}: {result.reason}" if result and result.reason else ""
        found[step] = Outcome(test=step, verdict=verdict, reason=reason or "")
    return found


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt(f"signal {signum}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
