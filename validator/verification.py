"""A sealed run directory -> intact and reproduced, or the first things that are not (P6.2)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import thresholds
from .accuracy import FIGURES, performance_recorded
from .claim import objections, read_claim
from .files import load
from .manifest import RECOMPUTED, differences
from .recomputation import Recomputed, recompute_all
from .strict import Refused, canonical, parse

LIVE = "results/figures.json"


@dataclass(frozen=True)
class Result:
    """status: 0 intact and reproduced, 1 a byte or a figure differs, 2 no archive. lines: what
    is wrong, one line each, or the verdict that was reproduced."""

    status: int
    lines: tuple[str, ...]
    figures: dict[str, Any] | None = None


def verify(run_dir: Path | str) -> Result:
    """Compare every byte with the seal, every figure and the verdict with the raw bytes."""
    root = Path(run_dir)
    try:
        if not root.is_dir():
            raise Refused(str(run_dir), "", "no such directory")
        if lines := differences(root):
            return Result(1, tuple(lines))
        found = recompute_all(root)
        figures = found.figures
        claim = read_claim(root)
        lines = [
            *live_disagreements(root, found),
            *disagreements(root, RECOMPUTED, figures),
            *objections(root, claim, figures),
        ]
    except Refused as error:
        return Result(2, (str(error),))
    if lines:
        return Result(1, tuple(lines), figures)
    said = f"{figures['run_id']}: intact, {claim.verdict} as recorded; {summary(figures)}"
    return Result(0, (said,), figures)


def summary(figures: dict[str, Any]) -> str:
    """One line: what the raw bytes say of each scope, with the rule."""
    scopes = ", ".join(f"{s['scope']} {s['verdict']} ({s['rule']})" for s in figures["scopes"])
    return f"reproduced from raw bytes: {scopes}"


def live_disagreements(root: Path, found: Recomputed) -> list[str]:
    """What the live side recorded otherwise than the raw bytes say."""
    lines = [*disagreements(root, LIVE, found.figures), *thresholds.objections(root, found.figures)]
    if found.accuracy is not None:
        lines += performance_recorded(root, found.figures["scopes"][0])
        lines += disagreements(root, FIGURES, found.accuracy)
    return lines


def disagreements(root: Path, path: str, figures: dict[str, Any]) -> list[str]:
    """What a stored `Figures` says otherwise than the raw bytes, field by field.

    The wording of a scope's reason is free. Refused if the file is no JSON of ours.
    """
    stored = parse(load(root, path), path)
    return [f"{path}: {line}" for line in _compare(stored, figures, "")]


def _compare(stored: Any, found: Any, place: str) -> list[str]:
    if isinstance(stored, dict) and isinstance(found, dict):
        lines = []
        for name in sorted(stored.keys() | found.keys()):
            below = f"{place}.{name}" if place else name
            if name not in stored or name not in found:
                lines.append(f"{below}: {'is missing' if name not in stored else 'is surplus'}")
            elif not (name == "reason" and "scope" in found):
                lines += _compare(stored[name], found[name], below)
        return lines
    if isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        return [
            line
            for number, (one, other) in enumerate(zip(stored, found, strict=True))
            for line in _compare(one, other, f"{place}[{number}]")
        ]
    if type(stored) is type(found) and stored == found:
        return []
    return [f"{place}: {_show(stored)} recorded, {_show(found)} from the raw bytes"]


def _show(value: Any) -> str:
    shown = canonical(value).decode("utf-8", "replace")
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
