"""Arguments -> exit status and lines for people."""

import os
import sys
from pathlib import Path

from .manifest import RECOMPUTED
from .recomputation import recompute_all
from .strict import Refused, canonical
from .verification import Result, live_disagreements, summary, verify

USAGE = "usage: python -m validator [--recompute] RUN_DIR"
SHOWN_MAX = 20


def main(arguments: list[str]) -> int:
    """`RUN_DIR` verifies a sealed archive. `--recompute RUN_DIR` recomputes one that is not sealed
    yet, stores what it found as validator/recomputation.json and compares it with the live
    figures."""
    is_recompute = arguments[:1] == ["--recompute"]
    paths = arguments[1:] if is_recompute else arguments
    if len(paths) != 1 or paths[0].startswith("-"):
        _say(sys.stderr.fileno(), USAGE)
        return 2
    try:
        result = (store if is_recompute else verify)(paths[0])
    except Exception as error:  # the validator's own fault, and still one line
        said = " ".join(str(error).split())
        result = Result(3, (f"the validator failed: {type(error).__name__}: {said}",))
    for line in result.lines[:SHOWN_MAX]:
        _say(sys.stdout.fileno(), line)
    if len(result.lines) > SHOWN_MAX:
        _say(sys.stdout.fileno(), f"and {len(result.lines) - SHOWN_MAX} more")
    return result.status


def store(run_dir: Path | str) -> Result:
    """Recompute, write the figures down once, and compare them with the live ones."""
    root = Path(run_dir)
    try:
        found = recompute_all(root)
        figures = found.figures
        _write_once(root / RECOMPUTED, canonical(figures))
        lines = live_disagreements(root, found)
    except Refused as error:
        return Result(2, (str(error),))
    except FileExistsError:
        return Result(2, (f"{RECOMPUTED}: is there already; nothing is overwritten",))
    except OSError as error:
        return Result(2, (f"{RECOMPUTED}: {error.strerror}",))
    return Result(1 if lines else 0, tuple(lines) or (summary(figures),), figures)


def _write_once(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".part-{os.getpid()}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _say(stream: int, line: str) -> None:
    os.write(stream, f"{line}\n".encode("utf-8", "backslashreplace"))
