"""Our scorer against an installed AISBench, answer by answer (P5.2)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.outcomes import not_run

pytestmark = [pytest.mark.accuracy, pytest.mark.deep]

SCRIPT = Path(__file__).resolve().parent.parent / "bench/aisbench_differential.py"
VARIABLE = "AISBENCH_PYTHON"


def compare(*options):
    """(exit status, output) of the comparison; NOT_RUN without an AISBench."""
    python = os.environ.get(VARIABLE)
    if not python:
        not_run(
            f"{VARIABLE} is not set: make an environment, `pip install --no-deps "
            "ais_bench_benchmark` into it, and name its python"
        )
    command = [sys.executable, str(SCRIPT), "--python", python, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.rule("P5.2")
def test_thousands_of_answers_are_scored_alike():
    status, text = compare("--count", "5000")

    assert "evaluator released, blob 1e44190dfd0976d8bb049cb97902da1c45187497" in text
    assert (0, True) == (status, ", 0 scored otherwise" in text), text


def test_another_version_is_seen_to_differ():
    status, text = compare("--count", "500", "--evaluator", "pr360")

    assert 1 == status, text
    assert "DIFFERS" in text
