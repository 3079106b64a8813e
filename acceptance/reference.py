"""Archives on record -> the parent's P(C) and the thresholds of a candidate, frozen (P4.2, P4.5).

Which rounds count is no choice: all that ended with a valid verdict, of exactly the parent's
version and configuration. Every archive is verified before a figure of it is taken.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from acceptance import calibration, lineage
from acceptance.archive import MANIFEST_HASH
from acceptance.calibration import CalibrationReport
from acceptance.candidate import BASELINE, Chosen
from acceptance.canonical import canonical, sha256
from acceptance.errors import RunFailure
from acceptance.exact import write
from acceptance.lineage import Entry
from acceptance.parent import ParentRound, differences, reference
from acceptance.profile import Profile
from acceptance.prompts import Release
from acceptance.protocol import ROUNDS, Verdict
from acceptance.records import SCHEMA, Figures, FileHash, Record
from acceptance.source import fingerprint, versions
from acceptance.validating import verify_archive

ENVIRONMENT = "plan/environment.json"
REPORT = "results/calibration.json"

Verify = Callable[[Path], str | None]


class CalibrationUse(Record, frozen=True, kw_only=True):
    """Which calibration gave the thresholds, and how many there are on record."""

    run_id: str
    path: str
    sha256: str
    on_record: int


class ReferenceRecord(Record, frozen=True, kw_only=True):
    """`plan/reference.json`: what a candidate is compared with, or what is in the way.

    `rounds` have paths relative to the runs directory and the SHA-256 of their archive's manifest.
    `parent_tpot_ns` and `thresholds` are "n/d", and null where an obstacle forbids to use them.
    """

    schema: int
    parent: str
    parent_version: str
    rounds: tuple[ParentRound, ...]
    calibration: CalibrationUse | None
    parent_tpot_ns: dict[str, str] | None
    thresholds: dict[str, str] | None
    obstacles: tuple[str, ...]
    disclosure: str


def environment(
    profile: Profile, model: Iterable[FileHash], release: Release
) -> dict[str, str | None]:
    """What must be equal for two runs to be comparable, by the names of `parent.COMPARABLE`.

    `profile` is the one without a candidate's switches: those are what is compared.
    """
    load, limits = profile.load, profile.limits
    return {
        "profile": profile.name,
        "rounds": profile.rounds,
        "machine": fingerprint(),
        "configuration": sha256(canonical([configuration(profile, {}), versions()])),
        "weights": sha256(canonical(tuple(model))),
        "inputs": sha256(
            canonical(
                [release.warmup, release.measured, load.levels, load.warmup, load.measured,
                 profile.timeouts]
            )
        ),
        "client": sha256(canonical([release.client, limits])),
    }  # fmt: skip


def configuration(profile: Profile, switches: Mapping[str, str]) -> str:
    """SHA-256 of how the service is started, with these switches on."""
    service = with_switches(profile, switches).service
    return sha256(canonical([profile.name, profile.rounds, service]))


def with_switches(profile: Profile, switches: Mapping[str, str]) -> Profile:
    """The profile with these variables in the service's environment."""
    service = profile.service
    merged = {**service.environment, **switches}
    return msgspec.structs.replace(
        profile, service=msgspec.structs.replace(service, environment=merged)
    )


def compose(
    runs: Path,
    entries: tuple[Entry, ...],
    chosen: Chosen,
    *,
    profile: Profile,
    version: str,
    environment: Mapping[str, str | None],
    started_utc: str,
    verify: Verify | None = None,
) -> ReferenceRecord:
    """Everything that stands on earlier runs. `version`: of the tree as it is now.

    `verify` says why an archive can't be used, or None; by default the validator does.
    """
    candidate = chosen.candidate
    verify = verify or verify_archive
    parent_version = candidate.parent_commit or version
    rounds = _rounds(
        runs,
        entries,
        candidate.parent,
        parent_version,
        configuration(profile, chosen.parent_switches),
        verify,
    )
    levels = profile.load.levels
    found = reference(
        rounds=rounds,
        version=parent_version,
        environment=environment,
        levels=levels,
        started_utc=started_utc,
    )
    obstacles = [one.reason if one.level is None else f"{one.level}: {one.reason}"
                 for one in found.obstacles]  # fmt: skip
    if not rounds:
        which = "" if candidate.parent == BASELINE else f" --candidate {candidate.parent}"
        obstacles.append(
            f"`./gate --profile {profile.name}{which}` on version {parent_version} makes the "
            f"rounds of {candidate.parent}"
        )
    known = {level: write(value) for level, value in found.parent_ns.items() if value is not None}
    thresholds, use, trouble = _thresholds(runs, entries, profile, environment, verify)
    return ReferenceRecord(
        schema=SCHEMA,
        parent=candidate.parent,
        parent_version=parent_version,
        rounds=rounds,
        calibration=use,
        parent_tpot_ns=None if found.obstacles else known,
        thresholds=thresholds,
        obstacles=(*obstacles, *trouble),
        disclosure=found.disclosure,
    )


def _rounds(
    runs: Path,
    entries: tuple[Entry, ...],
    name: str,
    version: str,
    configuration: str,
    verify: Verify,
) -> tuple[ParentRound, ...]:
    ended = [
        entry
        for entry in entries
        if entry.candidate == name
        and entry.kind in ("final", "candidate")
        and (entry.commit, entry.configuration) == (version, configuration)
        and lineage.is_final(entry)
    ]
    return tuple(one for entry in ended for one in _rounds_of(runs / entry.run_id, entry, verify))


def _rounds_of(run_dir: Path, entry: Entry, verify: Verify) -> list[ParentRound]:
    """Both rounds of one archive; what can't be read or verified is their obstacle."""
    obstacle, known, figures = _seal_trouble(run_dir, entry) or verify(run_dir), {}, None
    if obstacle is None:
        try:
            known = msgspec.json.decode(
                (run_dir / ENVIRONMENT).read_bytes(), type=dict[str, str | None]
            )
            figures = msgspec.json.decode(
                (run_dir / "results/figures.json").read_bytes(), type=Figures
            )
        except (OSError, msgspec.DecodeError) as error:
            obstacle = str(error)
    return [
        ParentRound(
            version=entry.commit,
            run_id=entry.run_id,
            round=round_name,
            path=run_dir.name,
            sha256=entry.seal_sha256 or "",
            ended_utc=entry.time_utc,
            environment=known,
            tpot_ns={
                level.level: level.mean_tpot_ns
                for level in (figures.levels if figures else ())
                if level.round == round_name
            },
            obstacle=obstacle,
        )
        for round_name in ROUNDS
    ]


def _thresholds(
    runs: Path,
    entries: tuple[Entry, ...],
    profile: Profile,
    environment: Mapping[str, str | None],
    verify: Verify,
) -> tuple[dict[str, str] | None, CalibrationUse | None, list[str]]:
    """(thresholds, their origin, what is in the way), of the newest complete calibration."""
    how = f"`python -m acceptance calibrate --profile {profile.name}` makes one"
    done = [
        entry
        for entry in entries
        if entry.kind == "calibration"
        and entry.event == "ended"
        and entry.verdict is Verdict.PASS
        and entry.candidate == profile.name
    ]
    if not done:
        return None, None, [f"no complete calibration of profile {profile.name}; {how} (P4.5)"]
    entry = done[-1]
    run_dir = runs / entry.run_id
    use = CalibrationUse(
        run_id=entry.run_id,
        path=f"{entry.run_id}/{REPORT}",
        sha256=_hash_of(run_dir / REPORT),
        on_record=len(done),
    )
    trouble = _seal_trouble(run_dir, entry) or verify(run_dir)
    if trouble is None:
        try:
            then = msgspec.json.decode(
                (run_dir / ENVIRONMENT).read_bytes(), type=dict[str, str | None]
            )
            report = msgspec.json.decode((run_dir / REPORT).read_bytes(), type=CalibrationReport)
            thresholds = calibration.thresholds(report)
            found = differences(then, environment)
            if not found:
                return {level: write(v) for level, v in thresholds.items()}, use, []
            trouble = f"{'; '.join(found)}; {how}"
        except (OSError, msgspec.DecodeError, RunFailure) as error:
            trouble = str(error)
    return None, use, [f"calibration {entry.run_id}: {trouble}"]


def _seal_trouble(run_dir: Path, entry: Entry) -> str | None:
    try:
        seal = (run_dir / MANIFEST_HASH).read_text(errors="replace").strip()
    except OSError as error:
        return f"its archive can't be read: {error.strerror}"
    return None if seal == entry.seal_sha256 else "its archive is not the one on record"


def _hash_of(path: Path) -> str:
    try:
        return sha256(path.read_bytes())
    except OSError:
        return ""
