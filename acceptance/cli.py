"""The command line: one function per command, each returns the exit status.

This is the only place besides pytest's own output where text goes to stdout. `gate` ends with one
line `PASS|FAIL|INCONCLUSIVE|NOT_RUN <run-id> <reason>`.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acceptance.accuracy import score_cli
from acceptance.errors import UsageError
from acceptance.lease import check_free
from acceptance.plan import parse_plan
from acceptance.protocol import EXIT_BUG, EXIT_STATUS, EXIT_USAGE, Verdict
from acceptance.settings import lease_path


def main(argv: Sequence[str]) -> int:
    """Run one command. A user's mistake is one line and 2; our own bug is a traceback and 3."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        status: int = options.run(options)
    except UsageError as error:
        print(f"{options.command}: {error}")
        return EXIT_USAGE
    except KeyboardInterrupt:
        print(f"{options.command}: interrupted")
        return 130
    except BrokenPipeError:
        return EXIT_USAGE
    except Exception:
        traceback.print_exc()
        print(f"{options.command}: this is a bug of the suite, not of what it measures")
        return EXIT_BUG
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m acceptance", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    gate = commands.add_parser("gate", help="two rounds, three levels, a verdict, an archive")
    gate.add_argument("--profile", default="cpu-mini", help="name or path of a profile (TOML)")
    gate.add_argument("--run-id", default=None, help="name of the run directory; used once")
    gate.add_argument(
        "--candidate", default=None, help="judge this candidate of the profile's table (P4.2)"
    )
    gate.set_defaults(run=run_gate)

    calibrate = commands.add_parser("calibrate", help="six services of one version, thresholds")
    calibrate.add_argument("--profile", default="cpu-mini", help="name or path of a profile (TOML)")
    calibrate.add_argument("--run-id", default=None, help="name of the run directory; used once")
    calibrate.set_defaults(run=run_calibrate)

    verify = commands.add_parser("verify", help="recompute an archive from its raw bytes")
    verify.add_argument("run_dir", type=Path)
    verify.set_defaults(run=run_verify)

    score = commands.add_parser("score", help="score answers as AISBench's native evaluator does")
    score_cli.parser(add_to=score)
    score.set_defaults(run=run_score)

    plans = commands.add_parser("plans", help="check that plans and tests name each other")
    plans.set_defaults(run=run_plans)
    return parser


def run_gate(options: argparse.Namespace) -> int:
    """Start pytest on the acceptance tests; the plugin freezes, runs, judges and seals."""
    import pytest

    from acceptance.prepare import find_profile, prepare

    root = Path(__file__).resolve().parent.parent
    try:
        check_environment()
        check_free(lease_path())
        prepared = prepare(
            find_profile(options.profile), options.run_id, candidate=options.candidate
        )
        files = plan_files(prepared.profile.plan)
    except UsageError as error:
        print(f"{Verdict.NOT_RUN} {options.run_id or '-'} {error}")
        return EXIT_USAGE
    arguments = [
        f"--rootdir={root}",
        "-c", str(root / "pytest.ini"),
        "-m", "acceptance",
        "--profile", options.profile,
        "--run-id", prepared.run_id,
        *(("--candidate", options.candidate) if options.candidate else ()),
        "-p", "no:cacheprovider",
        "--no-header",
        "-q",
        *(str(root / file) for file in files),
    ]  # fmt: skip
    sys.stdout = sys.__stdout__ = _Stdout(sys.stdout)  # type: ignore[assignment, misc]
    status = int(pytest.main(arguments))
    # Not before: pytest itself loads its plugins.
    from acceptance.pytest_plugin import last_line

    if status == pytest.ExitCode.USAGE_ERROR:
        status = EXIT_USAGE
    if line := last_line():
        print(line)
        return status
    print(f"{Verdict.NOT_RUN} {prepared.run_id} the run ended before it was frozen")
    return EXIT_BUG if status == pytest.ExitCode.INTERNAL_ERROR else EXIT_STATUS[Verdict.NOT_RUN]


def run_calibrate(options: argparse.Namespace) -> int:
    """Six services in the order of P4.5; the thresholds freeze only when all are complete."""
    from acceptance.calibrate import calibrate

    try:
        check_free(lease_path())
        return calibrate(options.profile, options.run_id)
    except UsageError as error:
        print(f"{Verdict.NOT_RUN} {options.run_id or '-'} {error}")
        return EXIT_USAGE


FOREIGN = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")


def check_environment() -> None:
    """UsageError where the environment would put options or code of its own into the gate."""
    for name in FOREIGN:
        if os.environ.get(name):
            raise UsageError(f"{name} is set: it could change what the gate does; unset it")


class _Stdout:
    """Standard output whose reader may leave: the run goes on and is sealed all the same."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            return int(self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stream.flush()


def plan_files(name: str) -> list[str]:
    """Files of the tests that a plan names: the gate loads no others."""
    path = Path(__file__).parent / "plans" / f"{name}.txt"
    try:
        planned = parse_plan(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: the profile's plan can't be read") from None
    return list(dict.fromkeys(test.partition("::")[0] for test in planned))


def run_verify(options: argparse.Namespace) -> int:
    """`validator/` in a process of its own: it needs Python alone and shares no code with us."""
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-I", str(root / "validator"), str(options.run_dir)]
    return subprocess.run(command, check=False).returncode


def run_score(options: argparse.Namespace) -> int:
    """Lines with `prediction` and `gold_raw` -> one JSON line each on stdout."""
    return score_cli.main([options.file, "--evaluator", options.evaluator])


def run_plans(options: argparse.Namespace) -> int:
    """Every planned test exists, and every acceptance test is in the plan of each profile."""
    from acceptance.plancheck import problems

    found = problems()
    for line in found:
        print(line)
    return 1 if found else 0
