"""Six judged services of a run -> the frozen calibration report and its page (P4.5)."""

import json
from collections.abc import Sequence
from pathlib import Path

from acceptance.archive import hash_file, write_once, write_record
from acceptance.calibration import SERVICES, CalibrationReport, CalibrationService, freeze
from acceptance.canonical import canonical, sha256
from acceptance.freeze import Frozen
from acceptance.gather import attempt_dir
from acceptance.judge import Judged
from acceptance.protocol import CALIBRATION_ROUNDS
from acceptance.reference import ENVIRONMENT, REPORT
from acceptance.resolution import calibration_page

PAGE = "results/calibration.md"


def report(frozen: Frozen, judged: Sequence[Judged]) -> CalibrationReport:
    """The report with its exact thresholds. RunFailure (P4.5) unless all six are complete."""
    return freeze(
        profile=frozen.runspec.profile.name,
        services=[
            service
            for role, name in zip(SERVICES, CALIBRATION_ROUNDS, strict=True)
            if (service := _service(frozen, judged, role, name)) is not None
        ],
        levels=frozen.runspec.profile.levels,
    )


def write(run_dir: Path, found: CalibrationReport) -> None:
    """`results/calibration.json`, and the page that says what this host can resolve."""
    write_record(run_dir / REPORT, found)
    write_once(run_dir / PAGE, calibration_page(found).encode())


def _service(
    frozen: Frozen, judged: Sequence[Judged], role: str, name: str
) -> CalibrationService | None:
    """One service from its newest attempts; None where it was never started."""
    newest = {one.attempt.level: one for one in judged if one.attempt.round == name}
    command = frozen.run_dir / "results" / name / "service/command.json"
    if not command.is_file():
        return None
    attempts = [
        hash_file(attempt_dir(frozen.run_dir, one.attempt) / "attempt.json", frozen.run_dir)
        for one in newest.values()
    ]
    invalid = [
        f"{level}: {', '.join(one.figures.invalid)}"
        for level, one in newest.items()
        if not one.figures.valid
    ]
    preflight = json.loads((frozen.run_dir / "results" / name / "preflight.json").read_bytes())
    return CalibrationService(
        run_id=frozen.runspec.run_id,
        service_id=json.loads(command.read_bytes())["service_id"],
        role=role,  # type: ignore[arg-type]
        version=frozen.entry.commit,
        environment=sha256((frozen.run_dir / ENVIRONMENT).read_bytes()),
        started_utc=preflight["taken_utc"],
        evidence_sha256=sha256(canonical(attempts)),
        tpot_ns={
            level: newest[level].figures.mean_tpot_ns if level in newest else None
            for level in frozen.runspec.profile.levels
        },
        obstacle="; ".join(invalid) or None,
    )
