"""Plans and collected tests -> what is in one and not in the other (`make check`).

A line `! <test> <reason>` lists a test outside the plan: what this kind of machine can't offer.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from acceptance.errors import UsageError
from acceptance.plan import parse_outside, parse_plan
from acceptance.settings import ROOT

PLANS = Path(__file__).parent / "plans"
SCOPES = ("ops", "accuracy", "function")


def problems() -> list[str]:
    """One line per fault; empty when every plan is complete."""
    found = []
    collected: dict[str, list[str]] = {}
    for path in sorted(PLANS.glob("*.txt")):
        scope = path.stem.rpartition("-")[2]
        is_gate = path.stem.startswith("gate-")
        marker = scope if scope in SCOPES and not is_gate else "acceptance"
        if marker not in collected:
            collected[marker] = collect(marker)
        found += compare(path.name, path.read_text(encoding="utf-8"), collected[marker])
    return found


def compare(name: str, text: str, collected: Iterable[str]) -> list[str]:
    """Faults of one plan against the tests that carry its marker."""
    planned, outside = parse_plan(text), parse_outside(text)
    tests = list(collected)
    found = [
        f"{name}: {entry}: no such test"
        for entry in (*planned, *outside)
        if not any(_covers(entry, test) for test in tests)
    ]
    found += [
        f"{name}: {e}: listed outside without a reason" for e, why in outside.items() if not why
    ]
    found += [
        f"{name}: {test}: neither planned nor listed outside with a reason"
        for test in tests
        if not any(_covers(entry, test) for entry in (*planned, *outside))
    ]
    return found


def _covers(entry: str, test: str) -> bool:
    return test == entry or test.startswith((entry + "[", entry + "::"))


def collect(marker: str) -> list[str]:
    """Ids of the tests with a marker. UsageError where the tests can't be collected."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marker],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 5):
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise UsageError(f"collecting the tests with marker {marker} failed: {''.join(last)}")
    return [line for line in done.stdout.splitlines() if "::" in line]
