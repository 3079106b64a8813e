"""`score FILE.jsonl`: lines with a prediction and a gold answer -> one JSON line each, scored.

The scorer alone, without a run: to check it against AISBench, or answers from anywhere.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from acceptance import gsm8k
from acceptance.errors import UsageError
from acceptance.protocol import EXIT_USAGE

STAGES = get_args(gsm8k.Stage)
EVALUATORS = ", ".join(f"{e.name.lower()} ({e.value[:8]})" for e in gsm8k.Evaluator)


def main(argv: Sequence[str]) -> int:
    """Run the command; 0 once every line is scored, 2 with one line of reason otherwise."""
    options = parser().parse_args(argv)
    try:
        lines = score_lines(_read(options.file), str(options.file), options.evaluator)
    except UsageError as error:
        sys.stderr.write(f"score: {error}\n")
        return EXIT_USAGE
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def parser(add_to: argparse.ArgumentParser | None = None) -> argparse.ArgumentParser:
    """The command's arguments, put on a parser of the caller or on a new one."""
    made = add_to or argparse.ArgumentParser(prog="python -m acceptance score")
    made.description = __doc__
    made.add_argument(
        "file",
        help="JSON lines with `prediction`, `gold_raw` and, if wanted, `stage` (native, the "
        "default, or chat_pipeline); - for stdin",
    )
    made.add_argument(
        "--evaluator",
        default=gsm8k.Evaluator.RELEASED.name.lower(),
        help=f"version of the native evaluator, by name or git blob: {EVALUATORS}",
    )
    return made


def score_lines(data: bytes, where: str, evaluator: str) -> list[str]:
    """Score the lines of a file. Nothing is returned unless every line can be read."""
    try:
        version = gsm8k.find_evaluator(evaluator)
    except KeyError:
        raise UsageError(f"--evaluator {evaluator}: not known; there are {EVALUATORS}") from None
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    rows = [_row(line, f"{where}:{number}") for number, line in enumerate(lines, start=1)]
    return [_scored(row, version) for row in rows]


def _scored(row: dict[str, Any], evaluator: gsm8k.Evaluator) -> str:
    scored = gsm8k.score(
        row["prediction"],
        row["gold_raw"],
        stage=row.get("stage", "native"),
        evaluator=evaluator,
    )
    out: dict[str, Any] = {
        "extracted_pred": scored.extracted_pred,
        "extracted_gold": scored.extracted_gold,
        "correct": scored.correct,
    }
    if scored.error is not None:
        out["error"] = scored.error
    return json.dumps(out)


def _row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise UsageError(f"{where}: not a JSON object")
    for key in ("prediction", "gold_raw"):
        if not isinstance(row.get(key), str):
            raise UsageError(f"{where}: `{key}` must be there and be a string")
    if row.get("stage", "native") not in STAGES:
        raise UsageError(f"{where}: `stage` must be {' or '.join(STAGES)}, got {row['stage']!r}")
    return row


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
