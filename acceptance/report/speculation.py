"""Snapshots at the edges of the measured waves -> acceptance length, for the report (P2.4)."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from acceptance import exact, probes
from acceptance.gather import attempt_dir
from acceptance.records import Attempt

HEAD = (
    "| round, level | engine | drafts | accepted | acceptance length | share accepted by position |"
)


def speculation(run_dir: Path, attempts: Sequence[Attempt]) -> str:
    """A section of the report; empty where no service of the run drafted anything."""
    rows = [row for attempt in attempts for row in _rows(run_dir, attempt)]
    if not rows:
        return ""
    lines = [
        "## Speculation in the measured waves",
        "",
        "Acceptance length = 1 + accepted / drafts, from the service's counters; a drafter that is "
        "dead shows 1.00.",
        "",
        HEAD,
        "|---|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join([*lines, ""])


def _rows(run_dir: Path, attempt: Attempt) -> list[str]:
    directory = attempt_dir(run_dir, attempt)
    try:
        before, after = (
            probes.snapshot((directory / name).read_bytes()) for name in attempt.metrics[-2:]
        )
    except (OSError, ValueError):
        return []
    rows = []
    for engine, moved in probes.difference(before, after).items():
        if moved.drafts is None:
            continue
        shares = probes.acceptance_by_position(moved)
        rows.append(
            f"| {attempt.round} {attempt.level} | {engine} | {moved.drafts} "
            f"| {_text(moved.accepted_tokens)} | {_decimal(probes.acceptance_length(moved))} "
            f"| {' '.join(map(_decimal, shares)) if shares else 'unknown'} |"
        )
    return rows


def _text(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _decimal(value: Fraction | None) -> str:
    return "unknown" if value is None else exact.decimal(value, 2)
