"""`results/calibration.json` against the raw bytes of its six services (P4.5)."""

from fractions import Fraction
from pathlib import Path
from typing import Any

from .files import load
from .runspec import CALIBRATION_ROUNDS
from .strict import exact, parse, ratio_text

REPORT = "results/calibration.json"
ROLES = ("parent", "candidate", "candidate", "parent", "parent", "candidate")
FLOOR = Fraction(1, 100)


def objections(root: Path, figures: dict[str, Any]) -> list[str]:
    """What the report says otherwise than the figures of its run; a run that is no complete
    calibration has none."""
    is_there = (root / REPORT).is_file()
    performance = figures["scopes"][0]
    is_complete = (performance["rule"], performance["verdict"]) == ("P4.5", "PASS")
    if not is_complete:
        return [f"{REPORT}: there is no complete calibration to report"] if is_there else []
    stored = parse(load(root, REPORT), REPORT)
    if not isinstance(stored, dict):
        return [f"{REPORT}: is no report"]
    times = {
        name: {
            one["level"]: one["mean_tpot_ns"] for one in figures["levels"] if one["round"] == name
        }
        for name in CALIBRATION_ROUNDS
    }
    levels = list(times["S1"])
    found = []
    if stored.get("levels") != levels:
        found.append(f"{REPORT}: levels: are not those of the run")
    services = stored.get("services")
    said = [_service(one) for one in services] if isinstance(services, list) else []
    if said != [(role, times[name]) for role, name in zip(ROLES, CALIBRATION_ROUNDS, strict=True)]:
        found.append(f"{REPORT}: services: are not the six of the run, in their order")
    for level in levels:
        jitters = _jitters([exact(times[name][level]) for name in CALIBRATION_ROUNDS])
        if _at(stored, "jitter", level) != [ratio_text(one) for one in jitters]:
            found.append(f"{REPORT}: jitter.{level}: does not follow from the raw bytes")
        if _at(stored, "thresholds", level) != ratio_text(max(FLOOR, *jitters)):
            found.append(f"{REPORT}: thresholds.{level}: does not follow from the raw bytes")
    return found


def _jitters(times: list[Fraction]) -> list[Fraction]:
    """|candidate - parent| / parent of the three pairs."""
    found = []
    for first in range(0, len(times), 2):
        pair = dict(zip(ROLES[first : first + 2], times[first : first + 2], strict=True))
        found.append(abs(pair["candidate"] - pair["parent"]) / pair["parent"])
    return found


def _service(one: Any) -> tuple[Any, Any]:
    return (one.get("role"), one.get("tpot_ns")) if isinstance(one, dict) else (None, None)


def _at(stored: dict[str, Any], name: str, level: str) -> Any:
    below = stored.get(name)
    return below.get(level) if isinstance(below, dict) else None
