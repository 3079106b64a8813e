"""What the user asks for -> a request that can be served, or one line that says why not."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from acceptance import prompts, register
from acceptance.accuracy import plan as accuracy_plan
from acceptance.accuracy.dataset import QuestionSet
from acceptance.archive import check_run_dir, files_below, hash_file
from acceptance.candidate import BASELINE, Chosen, choose, parse_table
from acceptance.canonical import canonical, sha256
from acceptance.checkpoint import prepare_model
from acceptance.errors import UsageError
from acceptance.lineage import Entry
from acceptance.profile import Profile, parse_profile
from acceptance.protocol import CONCURRENCY, rounds_of
from acceptance.records import FileHash
from acceptance.reference import configuration
from acceptance.runspec import Source
from acceptance.service import ServiceSpec, check
from acceptance.settings import ROOT, runs_dir
from acceptance.source import source_state, version
from acceptance.validity import check_table

TOOLS = ("acceptance", "validator", "dsv41", "tests_service", "tests_accuracy")
TOOL_FILES = ("conftest.py", "pytest.ini", "pyproject.toml", "gate")

Kind = Literal["final", "candidate", "calibration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request that can be served: nothing of it is written yet. `profile` is without the
    candidate's switches."""

    run_id: str
    kind: Kind
    chosen: Chosen | None
    profile: Profile
    profile_bytes: bytes
    model_dir: Path
    banks: dict[str, prompts.Bank]
    questions: QuestionSet | None


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


def is_shipped(profile: Profile, data: bytes) -> bool:
    """Whether these very bytes are the profile of that name in `acceptance/profiles/`."""
    path = Path(__file__).parent / "profiles" / f"{profile.name}.toml"
    return path.is_file() and path.read_bytes() == data


def new_run_id(profile: str) -> str:
    """A name that sorts by time and does not repeat."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{profile}-{stamp}-{secrets.token_hex(3)}"


def prepare(
    profile_path: Path,
    run_id: str | None,
    kind: Kind = "final",
    candidate: str | None = None,
) -> Prepared:
    """Check everything that the user can mend; nothing is written but a checkpoint by its script.

    UsageError in one line for the first thing that is wrong.
    """
    profile, profile_bytes = read_profile(profile_path)
    check_table(profile.rules, profile_path.name)
    run_id = run_id or new_run_id(profile.name)
    if not run_id.replace("-", "").replace("_", "").replace(".", "").isalnum() or run_id[0] == ".":
        raise UsageError(f"run id {run_id!r}: use letters, digits, '-', '_' and '.' only")
    check_run_dir(runs_dir(), run_id, bytes_needed(profile, kind))
    chosen = _choose(profile, candidate, profile_path.name) if candidate else None
    model_dir = prepare_model(profile)
    questions = None
    if profile.scopes.accuracy == "planned":
        if profile.accuracy is None:
            raise UsageError(f"{profile_path.name}: accuracy is planned, but [accuracy] is missing")
        accuracy_plan.check_profile(profile.accuracy, profile_path.name)
        questions = accuracy_plan.load(profile.accuracy, ROOT)
    prepared = Prepared(
        run_id=run_id,
        kind="candidate" if chosen else kind,
        chosen=chosen,
        profile=profile,
        profile_bytes=profile_bytes,
        model_dir=model_dir,
        banks=make_banks(profile, model_dir),
        questions=questions,
    )
    check(service_spec(profile, model_dir))
    # Asked once more, under the record's lock, when the run is frozen.
    entry_of(prepared, register.read(runs_dir()).entries, source_state(name_of(prepared)), "0" * 64)
    return prepared


def _choose(profile: Profile, name: str, source: str) -> Chosen:
    if profile.candidates is None:
        raise UsageError(f"{source}: `candidates` names no table, so there is no candidate {name}")
    path = ROOT / profile.candidates
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: can't read the candidates: {error.strerror}") from None
    return choose(parse_table(data, path.name), name, profile.load.levels, path.name)


def name_of(prepared: Prepared) -> str:
    """Who is judged, in the record of runs: a calibration judges the profile's host."""
    if prepared.chosen:
        return prepared.chosen.candidate.name
    return prepared.profile.name if prepared.kind == "calibration" else BASELINE


def entry_of(
    prepared: Prepared,
    entries: tuple[Entry, ...],
    source: Source,
    runspec_sha256: str,
    tools: tuple[FileHash, ...] | None = None,
) -> Entry:
    """What the record of runs says of this one. UsageError where it may not start (P4.7)."""
    chosen, profile = prepared.chosen, prepared.profile
    return register.started(
        entries,
        kind=prepared.kind,
        run_id=prepared.run_id,
        candidate=name_of(prepared),
        commit=version(source, tools if tools is not None else tool_hashes()),
        configuration=configuration(profile, chosen.switches if chosen else {}),
        targets=chosen.candidate.targets if chosen else profile.load.levels,
        runspec_sha256=runspec_sha256,
    )


def tool_paths() -> tuple[Path, ...]:
    """Every file that takes part: suite, product and the tests that drive it (P2.1)."""
    below = [path for name in TOOLS for path in files_below(ROOT / name) if _is_source(path)]
    return (*below, *(ROOT / name for name in TOOL_FILES if (ROOT / name).is_file()))


def tool_hashes() -> tuple[FileHash, ...]:
    """`tool_paths` with size and SHA-256."""
    return tuple(hash_file(path, ROOT) for path in tool_paths())


def service_spec(profile: Profile, model_dir: Path, paths: Path | None = None) -> ServiceSpec:
    """How the profile says a service is started; `paths` is where its path counters go."""
    service = profile.service
    counters = service.path_counters
    own = {counters.variable: str(paths.absolute())} if counters and paths else {}
    return ServiceSpec(
        argv=service.argv,
        environment={**service.environment, **own},
        inherit=service.inherit,
        model=str(model_dir),
        served_name=profile.model.served_name,
        data_parallel_size=service.data_parallel_size,
        startup_timeout_s=service.startup_timeout_s,
        stop_timeout_s=service.stop_timeout_s,
        expect=service.expect,
        port=service.port,
    )


def bytes_needed(profile: Profile, kind: Kind = "final") -> int:
    """An upper estimate of the archive: frames of ~450 bytes a token, prompts echoed twice."""
    total = 64 << 20
    for size in (profile.load.warmup, profile.load.measured):
        requests = (
            len(rounds_of(kind))
            * profile.load.attempts_max
            * sum(CONCURRENCY[c] for c in profile.load.levels)
        )
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


def _is_source(path: Path) -> bool:
    return path.suffix not in (".pyc", ".safetensors")
