"""Profile and question set -> the frozen accuracy spec, and the one wave that asks it (P5.2)."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from acceptance import gsm8k
from acceptance.accuracy.chat import body_bytes, chat_body
from acceptance.accuracy.dataset import QuestionSet, load_gsm8k, load_questions, parse_questions
from acceptance.accuracy.records import SCHEMA, AccuracyProfile, AccuracySpec
from acceptance.archive import write_once, write_record
from acceptance.canonical import canonical, sha256
from acceptance.client.spec import WaveRequest, WaveSpec
from acceptance.errors import UsageError
from acceptance.protocol import data_parallel_rank
from acceptance.records import FileHash

CHAT_PATH: Final = "/v1/chat/completions"
SPEC: Final = "plan/accuracy/spec.json"
QUESTIONS: Final = "plan/accuracy/questions.jsonl"
SECOND: Final = 1_000_000_000

OWN_KEYS: Final = ("stream", "stream_options", "messages", "max_tokens", "model", "stop", "n")
"""Keys of the body that the stage sets, or that AISBench does not send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be asked: the spec, its hash, the questions that it stands on, and the body of
    each as it goes out."""

    spec: AccuracySpec
    spec_sha256: str
    questions: QuestionSet
    wire: tuple[bytes, ...]


def check_profile(profile: AccuracyProfile, where: str) -> None:
    """UsageError, one line, for an `[accuracy]` table that can't be asked or judged."""

    def refuse(what: str) -> None:
        raise UsageError(f"{where}: accuracy.{what}")

    if not 1 <= profile.threshold <= profile.count:
        refuse(f"threshold {profile.threshold}: must be between 1 and count {profile.count}")
    for name in ("concurrency", "max_tokens", "timeout_s"):
        if getattr(profile, name) < 1:
            refuse(f"{name} must be at least 1")
    if profile.template.count("{question}") != 1:
        refuse("template must hold {question} once")
    if taken := [key for key in OWN_KEYS if key in profile.generation_kwargs]:
        refuse(f"generation_kwargs: {', '.join(taken)} can't be set here")
    if _has_float(profile.generation_kwargs):
        refuse("generation_kwargs: write 1, not 1.0: a frozen record holds no floats")
    try:
        gsm8k.find_evaluator(profile.evaluator)
    except KeyError:
        refuse(f"evaluator {profile.evaluator!r}: not a name or git blob known here")
    if profile.questions == "gsm8k":
        for name, found, frozen in (
            ("questions_sha256", profile.questions_sha256, gsm8k.SUBSET_SHA256),
            ("count", profile.count, gsm8k.SUBSET_SIZE),
            ("threshold", profile.threshold, gsm8k.THRESHOLD),
            ("template", profile.template, gsm8k.TEMPLATE),
        ):
            if found != frozen:
                refuse(f"{name} is frozen for gsm8k (P5.2, P5.4): {frozen!r}, not {found!r}")


def load(profile: AccuracyProfile, root: Path, gsm8k_path: str | None = None) -> QuestionSet:
    """The profile's question set, verified. A relative path starts at `root`."""
    if profile.questions == "gsm8k":
        return load_gsm8k(gsm8k_path)
    return load_questions(root / profile.questions, profile.questions_sha256, profile.count)


def freeze(
    profile: AccuracyProfile,
    questions: QuestionSet,
    *,
    model: str,
    encoding: tuple[FileHash, ...],
) -> Plan:
    """Freeze what will be asked. `model` is the served name; `encoding` the hashes of the files
    that turn messages into tokens."""
    is_gsm8k = profile.questions == "gsm8k"
    spec = AccuracySpec(
        schema=SCHEMA,
        source=questions.source,
        questions_sha256=sha256(questions.lines),
        indices=questions.indices(),
        indices_sha256=gsm8k.INDICES_SHA256 if is_gsm8k else None,
        count=profile.count,
        threshold=profile.threshold,
        concurrency=profile.concurrency,
        max_tokens=profile.max_tokens,
        timeout_ns=profile.timeout_s * SECOND,
        template=profile.template,
        template_sha256=sha256(profile.template.encode()),
        prompts_sha256=gsm8k.prompts_sha256(questions.prompts(profile.template)),
        bodies_sha256="",
        evaluator=gsm8k.find_evaluator(profile.evaluator).value,
        stage="chat_pipeline",
        needs_reasoning=profile.needs_reasoning,
        model=model,
        generation_kwargs_json=json.dumps(profile.generation_kwargs),
        encoding=encoding,
    )
    wire = bodies(spec, questions)
    spec = msgspec.structs.replace(spec, bodies_sha256=_joined(wire))
    return Plan(spec=spec, spec_sha256=sha256(canonical(spec)), questions=questions, wire=wire)


def bodies(spec: AccuracySpec, questions: QuestionSet) -> tuple[bytes, ...]:
    """The body of every question as it goes out, in order."""
    kwargs = json.loads(spec.generation_kwargs_json)
    return tuple(
        body_bytes(
            chat_body(
                model=spec.model,
                prompt=prompt,
                max_tokens=spec.max_tokens,
                generation_kwargs=kwargs,
            )
        )
        for prompt in questions.prompts(spec.template)
    )


def write_plan(run_dir: Path, plan: Plan) -> tuple[FileHash, ...]:
    """Write spec and questions below `plan/accuracy/`; hashes for the RunSpec."""
    write_once(run_dir / QUESTIONS, plan.questions.lines)
    write_record(run_dir / SPEC, plan.spec)
    return tuple(
        FileHash(path=name, size=len(data), sha256=sha256(data))
        for name, data in ((QUESTIONS, plan.questions.lines), (SPEC, canonical(plan.spec)))
    )


def read_plan(run_dir: Path) -> Plan:
    """The frozen plan of an archive, every hash in it checked; UsageError for anything else."""
    path = run_dir / SPEC
    try:
        data, lines = path.read_bytes(), (run_dir / QUESTIONS).read_bytes()
        spec = msgspec.json.decode(data, type=AccuracySpec)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}: no accuracy plan") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    if spec.schema != SCHEMA:
        raise UsageError(f"{path}: schema {spec.schema} is not known here")
    questions = parse_questions(
        lines, str(run_dir / QUESTIONS), source=spec.source, indices=spec.indices
    )
    wire = bodies(spec, questions)
    if spec.count != len(spec.indices):
        raise UsageError(f"{path}: count {spec.count}, but {len(spec.indices)} indices")
    for what, found, frozen in (
        ("questions", sha256(lines), spec.questions_sha256),
        ("template", sha256(spec.template.encode()), spec.template_sha256),
        ("prompts", gsm8k.prompts_sha256(questions.prompts(spec.template)), spec.prompts_sha256),
        ("bodies", _joined(wire), spec.bodies_sha256),
    ):
        if found != frozen:
            raise UsageError(f"{path}: {what}: SHA-256 {found}, frozen is {frozen}")
    return Plan(spec=spec, spec_sha256=sha256(data), questions=questions, wire=wire)


def wave_spec(
    plan: Plan, *, host: str, port: int, data_parallel_size: int, barrier_timeout_ns: int
) -> WaveSpec:
    """The one wave of an accuracy run: every question once, in order, a window of C requests."""
    prompts = plan.questions.prompts(plan.spec.template)
    requests = tuple(
        WaveRequest(
            slot=slot,
            prompt_index=slot,
            prompt_sha256=sha256(prompt.encode()),
            rank=data_parallel_rank(slot, data_parallel_size),
            cache_salt="",
            body=body,
        )
        for slot, (prompt, body) in enumerate(zip(prompts, plan.wire, strict=True))
    )
    return WaveSpec(
        kind="measured",
        host=host,
        port=port,
        requests=requests,
        http_timeout_ns=plan.spec.timeout_ns,
        barrier_timeout_ns=barrier_timeout_ns,
        path=CHAT_PATH,
        concurrency=plan.spec.concurrency,
        name="question",
    )


def _joined(parts: tuple[bytes, ...]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part + b"\0")
    return digest.hexdigest()


def _has_float(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_float, value.values()))
    if isinstance(value, list):
        return any(map(_has_float, value))
    return isinstance(value, float)
