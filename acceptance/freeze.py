"""A prepared request -> a new run directory with its frozen RunSpec, and proof that it holds."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from acceptance import prompts, register
from acceptance.accuracy import plan as accuracy_plan
from acceptance.archive import (
    create_run_dir,
    files_below,
    hash_below,
    hash_file,
    write_once,
    write_record,
)
from acceptance.canonical import sha256
from acceptance.errors import RunFailure, UsageError
from acceptance.exact import write
from acceptance.lineage import Entry
from acceptance.prepare import (
    Prepared,
    bytes_needed,
    entry_of,
    is_shipped,
    name_of,
    tool_hashes,
    tool_paths,
)
from acceptance.profile import Profile
from acceptance.records import SCHEMA, FileHash
from acceptance.reference import (
    ENVIRONMENT,
    ReferenceRecord,
    compose,
    environment,
    with_switches,
)
from acceptance.runspec import RunSpec, ServiceCommand, Source, run_profile
from acceptance.settings import ROOT, runs_dir
from acceptance.source import source_state, version, versions

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A run that is ready to start: where it lies, what it is, and its inputs in memory.

    `profile` has the candidate's switches on; `reference` is what a candidate is compared with.
    `is_own`: the profile is the user's own, none of those that are committed here.
    """

    run_dir: Path
    entry: Entry
    reference: ReferenceRecord | None
    profile: Profile
    runspec: RunSpec
    runspec_sha256: str
    model_dir: Path
    banks: dict[str, prompts.Bank]
    stats: dict[Path, tuple[int, ...]]
    is_own: bool


def freeze(prepared: Prepared, plan: tuple[str, ...]) -> Frozen:
    """Make the run directory; write `plan/`, `patch/` and `validator/` and hash it all.

    UsageError, with nothing left behind, where the archive can't be written.
    """
    space = bytes_needed(prepared.profile, prepared.kind)
    run_dir = create_run_dir(runs_dir(), prepared.run_id, space)
    try:
        with register.opened(runs_dir()) as book:
            return _write(run_dir, prepared, plan, book)
    except OSError as error:
        shutil.rmtree(run_dir, ignore_errors=True)
        raise UsageError(f"{run_dir}: can't write the archive: {error.strerror}") from None
    except BaseException:
        # Also a signal: nothing was frozen yet, so nothing is left behind.
        shutil.rmtree(run_dir, ignore_errors=True)
        raise


def _write(
    run_dir: Path, prepared: Prepared, plan: tuple[str, ...], book: register.Register
) -> Frozen:
    profile, model_dir, banks = prepared.profile, prepared.model_dir, prepared.banks
    tools, model = tool_hashes(), hash_below(model_dir, model_dir)
    release = prompts.Release(
        schema=SCHEMA,
        source=profile.load.banks.source,
        seed=profile.load.banks.seed,
        tokenizer_sha256=next(f.sha256 for f in model if f.path == "tokenizer.json"),
        warmup=prompts.bank_hash(banks["warmup"]),
        measured=prompts.bank_hash(banks["measured"]),
        generator=next(f for f in tools if f.path == "acceptance/prompts.py"),
        client=tuple(f for f in tools if f.path.startswith("acceptance/client/")),
    )
    prompts.check_release(release, banks["warmup"], banks["measured"])
    _write_plan(run_dir, prepared.profile_bytes, plan, release, banks)
    _write_questions(run_dir, prepared, model)
    write_record(run_dir / "patch/deployed.json", tools)
    source = source_state(name_of(prepared))
    reference = _write_campaign(run_dir, prepared, book, source, tools, model, release)
    switched = with_switches(profile, prepared.chosen.switches if prepared.chosen else {})
    runspec = _runspec(run_dir, prepared, switched, plan, book, source, reference, tools, model)
    written = write_record(run_dir / "plan/runspec.json", runspec)
    entry = entry_of(prepared, book.entries, source, written.sha256, tools)
    book.append(entry)
    watched = [ROOT / f.path for f in tools] + [model_dir / f.path for f in model]
    return Frozen(
        run_dir=run_dir,
        entry=entry,
        reference=reference,
        profile=switched,
        runspec=runspec,
        runspec_sha256=written.sha256,
        model_dir=model_dir,
        banks=banks,
        stats={path: _stat(path) for path in watched},
        is_own=not is_shipped(prepared.profile, prepared.profile_bytes),
    )


def _write_campaign(
    run_dir: Path,
    prepared: Prepared,
    book: register.Register,
    source: Source,
    tools: tuple[FileHash, ...],
    model: tuple[FileHash, ...],
    release: prompts.Release,
) -> ReferenceRecord | None:
    """What makes the run comparable with others, and what a candidate is compared with (P4.2)."""
    profile, chosen = prepared.profile, prepared.chosen
    comparable = environment(profile, model, release)
    write_record(run_dir / ENVIRONMENT, comparable)
    if chosen is None:
        return None
    write_record(run_dir / "plan/candidate.json", chosen)
    reference = compose(
        runs_dir(),
        book.entries,
        chosen,
        profile=profile,
        version=version(source, tools),
        environment=comparable,
        started_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    write_record(run_dir / "plan/reference.json", reference)
    return reference


def _runspec(
    run_dir: Path,
    prepared: Prepared,
    profile: Profile,
    plan: tuple[str, ...],
    book: register.Register,
    source: Source,
    reference: ReferenceRecord | None,
    tools: tuple[FileHash, ...],
    model: tuple[FileHash, ...],
) -> RunSpec:
    candidate = prepared.chosen.candidate if prepared.chosen else None
    return RunSpec(
        schema=SCHEMA,
        run_id=prepared.run_id,
        kind=prepared.kind,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        profile=run_profile(profile, prepared.kind),
        service=ServiceCommand(
            argv=profile.service.argv,
            environment=profile.service.environment,
            inherit=profile.service.inherit,
            expect=profile.service.expect,
            startup_timeout_s=profile.service.startup_timeout_s,
            stop_timeout_s=profile.service.stop_timeout_s,
            port=profile.service.port,
            kv_tokens_min=profile.service.kv_tokens_min,
        ),
        http_timeout_ns=profile.timeouts.http_s * SECOND,
        barrier_timeout_ns=profile.timeouts.barrier_s * SECOND,
        limits_tpot_ns={k: write(v) for k, v in profile.targets_ns().items()},
        targets=candidate.targets if candidate else profile.load.levels,
        thresholds=reference.thresholds if reference else None,
        parent_tpot_ns=reference.parent_tpot_ns if reference else None,
        candidate=source,
        parent=_parent(reference) if reference else None,
        paths_claimed=candidate.paths if candidate else (),
        workers=profile.service.workers,
        register_head=book.head,
        function=None if prepared.kind == "calibration" else profile.function,
        plan=plan,
        versions=versions(),
        files=tuple(
            hash_file(p, run_dir)
            for p in sorted(run_dir.rglob("*"))
            if p.is_file() and p.relative_to(run_dir).parts[0] in ("plan", "validator", "patch")
        ),
        tools=tools,
        model=model,
    )


def _parent(reference: ReferenceRecord) -> Source:
    commit, _, tree = reference.parent_version.partition("+")
    return Source(name=reference.parent, commit=commit, dirty=bool(tree))


def _write_plan(
    run_dir: Path,
    profile_bytes: bytes,
    plan: tuple[str, ...],
    release: prompts.Release,
    banks: dict[str, prompts.Bank],
) -> None:
    write_once(run_dir / "plan/profile.toml", profile_bytes)
    write_once(run_dir / "plan/plan.txt", "".join(f"{t}\n" for t in plan).encode())
    write_once(run_dir / "plan/protocol.md", (ROOT / "docs/protocol.md").read_bytes())
    write_record(run_dir / "plan/release.json", release)
    for name, bank in banks.items():
        write_record(run_dir / f"plan/banks/{name}.json", bank)
    for file in sorted((ROOT / "validator").rglob("*.py")):
        write_once(run_dir / "validator" / file.relative_to(ROOT / "validator"), file.read_bytes())


def _write_questions(run_dir: Path, prepared: Prepared, model: tuple[FileHash, ...]) -> None:
    """Freeze what will be asked, where accuracy is planned (P5.2)."""
    profile = prepared.profile
    if profile.accuracy is None or prepared.questions is None or prepared.kind == "calibration":
        return
    asked = accuracy_plan.freeze(
        profile.accuracy,
        prepared.questions,
        model=profile.model.served_name,
        encoding=tuple(f for f in model if f.path.startswith(("tokenizer", "chat_template"))),
    )
    accuracy_plan.write_plan(run_dir, asked)


def _stat(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def check_frozen(frozen: Frozen) -> None:
    """Tools, weights and inputs are what was frozen; RunFailure names the first that is not."""
    changed = [*changed_files(frozen)[0], *changed_files(frozen)[1]]
    changed += _differences(frozen, frozen.run_dir, frozen.runspec.files)
    if sha256((frozen.run_dir / "plan/runspec.json").read_bytes()) != frozen.runspec_sha256:
        changed.append("plan/runspec.json")
    if changed:
        raise RunFailure("P4.2", f"{changed[0]} changed after the RunSpec was frozen")


def changed_files(frozen: Frozen) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tools and sources, files of the checkpoint) that differ from the RunSpec's hashes (P2.1)."""
    spec = frozen.runspec
    tools = _differences(frozen, ROOT, spec.tools)
    model = _differences(frozen, frozen.model_dir, spec.model)
    return (
        (*tools, *_added(tool_paths(), ROOT, spec.tools)),
        (*model, *_added(files_below(frozen.model_dir), frozen.model_dir, spec.model)),
    )


def _added(paths: Iterable[Path], root: Path, files: tuple[FileHash, ...]) -> list[str]:
    """Files that were not there at freezing: a service would read some of them just as well."""
    known = {file.path for file in files}
    found = sorted(path.relative_to(root).as_posix() for path in paths)
    return [f"{name} (added)" for name in found if name not in known]


def _differences(frozen: Frozen, root: Path, files: tuple[FileHash, ...]) -> list[str]:
    """Paths that differ. A file whose inode, size and times are those at freezing is taken as
    unchanged; all others are hashed."""
    found = []
    for file in files:
        path = root / file.path
        try:
            if path in frozen.stats and frozen.stats[path] == _stat(path):
                continue
            if hash_file(path, root) != file:
                found.append(file.path)
        except OSError:
            found.append(file.path)
    return found


def load_runspec(run_dir: Path) -> RunSpec:
    """The RunSpec of an archive. UsageError for anything else."""
    path = run_dir / "plan/runspec.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunSpec)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: not a run directory") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}") from None
