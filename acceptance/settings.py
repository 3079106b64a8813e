"""Every environment variable that the suite reads, typed and documented."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The repository: `acceptance/`, `dsv41/` and `validator/` lie side by side in it."""


def runs_dir() -> Path:
    """ACCEPTANCE_RUNS: where run directories are made. Default: `runs/` of the repository."""
    return Path(os.environ.get("ACCEPTANCE_RUNS", ROOT / "runs"))


def lease_path() -> Path:
    """ACCEPTANCE_LEASE: the lock file of what is operated (P6.9). Default: `.lease` among the runs.

    Give one file to all checkouts that share a device.
    """
    return Path(os.environ.get("ACCEPTANCE_LEASE", runs_dir() / ".lease"))


def models_dir() -> Path:
    """ACCEPTANCE_MODELS: where checkpoints made by a profile's script are kept.

    Default: `models/` of the repository.
    """
    return Path(os.environ.get("ACCEPTANCE_MODELS", ROOT / "models"))


def is_plain() -> bool:
    """ACCEPTANCE_PLAIN: any value turns the live table into plain lines."""
    return bool(os.environ.get("ACCEPTANCE_PLAIN"))


def gsm8k_dirs() -> list[Path]:
    """GSM8K_DIR: folder with train.jsonl and test.jsonl; else a data folder beside us."""
    named = os.environ.get("GSM8K_DIR")
    return [Path(named)] if named else [ROOT.parent / "shared" / "data" / "gsm8k"]
