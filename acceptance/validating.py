"""The validator, always in a process of its own: Python alone, and no code shared with us."""

import subprocess
import sys
from pathlib import Path

from acceptance.settings import ROOT


def verify_archive(run_dir: Path) -> str | None:
    """None where a sealed archive is intact and reproduced, else the validator's first line."""
    return _ask(ROOT / "validator", str(run_dir))


def recompute_archive(run_dir: Path) -> str | None:
    """P6.2: the validator that lies in the archive recomputes everything from the raw bytes; None
    where it agrees with the live figures, else what it said first."""
    return _ask(run_dir / "validator", "--recompute", str(run_dir))


def _ask(validator: Path, *arguments: str) -> str | None:
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(validator), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout + done.stderr).strip().splitlines()
    return None if done.returncode == 0 else (said[0] if said else "it gave no reason")
