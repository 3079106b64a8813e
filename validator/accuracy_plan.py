"""`plan/accuracy/` -> what was to be asked, every hash in it checked (P5.2, P5.3)."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .attempts import SCHEMA
from .events import stream_json
from .files import load
from .runspec import FILE_HASH, RunSpec
from .scorer import EVALUATORS, score
from .strict import (
    Reader,
    Refused,
    array,
    boolean,
    canonical,
    digest,
    integer,
    natural,
    nullable,
    one_of,
    read,
    record,
    schema,
    sha256,
    text,
)

SPEC = "plan/accuracy/spec.json"
QUESTIONS = "plan/accuracy/questions.jsonl"

GSM8K = "openai/grade-school-math@"
FROZEN = {
    "count": 300,
    "threshold": 292,
    "questions_sha256": "ad6bc9a92ac8716846871d881e1442d97a2546aeafb75bfbfd6d09b90c591e26",
    "indices_sha256": "375d872200392b94db477c5be383b944fc970df2f3215fbefc292f9feedc60da",
    "template_sha256": "da11364642ac6e0ad4223d97d7003cb8671aa2752b54a625052723fcd1f3fc75",
    "prompts_sha256": "5ad4a8f9ebef3a2b6b7d987405b05e0d21519135e452b8f96936e0d9a9655970",
}
"""P5.2, P5.4: what no spec for GSM8K may say otherwise."""


@dataclass(frozen=True)
class Plan:
    """The questions as they had to go out, and how their answers count."""

    sha256: str
    count: int
    threshold: int
    max_tokens: int
    evaluator: str
    needs_reasoning: bool
    indices: tuple[int, ...]
    prompts: tuple[str, ...]
    answers: tuple[str, ...]
    bodies: tuple[bytes, ...]


SPEC_RECORD: Reader[dict[str, Any]] = record(
    dict,
    schema=schema(SCHEMA),
    source=text,
    questions_sha256=sha256,
    indices=array(integer),
    indices_sha256=nullable(sha256),
    count=natural,
    threshold=natural,
    concurrency=natural,
    max_tokens=natural,
    timeout_ns=natural,
    template=text,
    template_sha256=sha256,
    prompts_sha256=sha256,
    bodies_sha256=sha256,
    evaluator=one_of(EVALUATORS),
    stage=one_of(("chat_pipeline",)),
    needs_reasoning=boolean,
    model=text,
    generation_kwargs_json=text,
    encoding=array(FILE_HASH),
)


def read_plan(root: Path, runspec: RunSpec) -> Plan:
    """The frozen accuracy plan of an archive. Refused if a hash or a count in it is wrong."""
    data, lines = load(root, SPEC), load(root, QUESTIONS)
    spec = read(data, SPEC, SPEC_RECORD)
    questions = _questions(lines, spec["count"])
    prompts = tuple(spec["template"].replace("{question}", one) for one, _ in questions)
    bodies = tuple(_body(spec, prompt) for prompt in prompts)
    indices = spec["indices"]
    found = {
        "count": len(indices),
        "questions_sha256": digest(lines),
        "template_sha256": digest(spec["template"].encode()),
        "prompts_sha256": _joined(prompt.encode() for prompt in prompts),
        "bodies_sha256": _joined(bodies),
        "model": runspec.profile.served_name,
    }
    if spec["source"].startswith(GSM8K):
        found |= {**FROZEN, "indices_sha256": digest(canonical(list(indices)))}
        if found["indices_sha256"] != FROZEN["indices_sha256"]:
            raise Refused(SPEC, "indices", "not the frozen questions (P5.2)")
    for name, value in found.items():
        if spec[name] != value:
            raise Refused(SPEC, name, f"{spec[name]}, must be {value}")
    return Plan(
        sha256=digest(data),
        count=spec["count"],
        threshold=spec["threshold"],
        max_tokens=spec["max_tokens"],
        evaluator=spec["evaluator"],
        needs_reasoning=spec["needs_reasoning"],
        indices=indices,
        prompts=prompts,
        answers=tuple(answer for _, answer in questions),
        bodies=bodies,
    )


def _questions(data: bytes, count: int) -> list[tuple[str, str]]:
    """(question, worked answer) of each line."""
    lines = data.removesuffix(b"\n").split(b"\n")
    if len(lines) != count:
        raise Refused(QUESTIONS, "", f"{len(lines)} lines, not {count}")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            row = stream_json(line)
        except ValueError as error:
            raise Refused(QUESTIONS, f"line {number}", str(error)) from None
        question, answer = (_text(row, name) for name in ("question", "answer"))
        if question is None or answer is None:
            raise Refused(QUESTIONS, f"line {number}", "no question with its answer")
        if score("0", answer, EVALUATORS[0], is_chat=False).error:
            raise Refused(QUESTIONS, f"line {number}", "no gold that the evaluator can read")
        found.append((question, answer))
    return found


def _text(row: Any, name: str) -> str | None:
    """A text that UTF-8 can hold."""
    value = row.get(name) if isinstance(row, dict) else None
    if not isinstance(value, str) or any("\ud800" <= one <= "\udfff" for one in value):
        return None
    return value


def _body(spec: dict[str, Any], prompt: str) -> bytes:
    """The body as AISBench's chat client sends it: its order of keys, its spaces, ASCII."""
    try:
        more = stream_json(spec["generation_kwargs_json"].encode())
    except ValueError as error:
        raise Refused(SPEC, "generation_kwargs_json", str(error)) from None
    if not isinstance(more, dict):
        raise Refused(SPEC, "generation_kwargs_json", "is no object")
    body: dict[str, Any] = {"stream": True}
    body["messages"] = [{"content": prompt, "role": "user"}]
    body["stream_options"] = {"include_usage": True}
    body.update(more)
    body["max_tokens"] = spec["max_tokens"]
    body["model"] = spec["model"]
    return json.dumps(body).encode("ascii")


def _joined(parts: Iterable[bytes]) -> str:
    """SHA-256 over the parts, each followed by NUL."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
        whole.update(b"\0")
    return whole.hexdigest()
