"""The stored answers of an accuracy run -> `AccuracyFigures` and the verdict of its scope (P5)."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import exposition
from .accuracy_plan import Plan, read_plan
from .attempts import READS, SCHEMA, WAVE, Request, Wave
from .chat import Reply, read_reply
from .files import load
from .runspec import RunSpec
from .scorer import score, stored
from .strict import (
    Reader,
    Refused,
    digest,
    file_name,
    integer,
    nullable,
    parse,
    read,
    record,
    schema,
    sha256,
    text,
)

DIRECTORY = "results/accuracy"
RUN = f"{DIRECTORY}/accuracy.json"
FIGURES = f"{DIRECTORY}/figures.json"
PERFORMANCE = "results/performance.json"


@dataclass(frozen=True)
class Edge:
    """The service right before or after the questions."""

    identity: str
    identity_sha256: str
    metrics: str
    running: int | None
    waiting: int | None


@dataclass(frozen=True)
class Run:
    """`accuracy.json`."""

    schema: int
    accuracy_id: str
    runspec_sha256: str
    spec_sha256: str
    service_id: str
    measured_identity_sha256: str | None
    reuse_lost: str | None
    performance_sha256: str | None
    wave: Wave
    before: Edge
    after: Edge | None
    previous: str | None
    fault: str | None


EDGE: Reader[Edge] = record(
    Edge,
    identity=file_name,
    identity_sha256=sha256,
    metrics=file_name,
    running=nullable(integer),
    waiting=nullable(integer),
)
RUN_RECORD: Reader[Run] = record(
    Run,
    schema=schema(SCHEMA),
    accuracy_id=text,
    runspec_sha256=sha256,
    spec_sha256=sha256,
    service_id=text,
    measured_identity_sha256=nullable(sha256),
    reuse_lost=nullable(text),
    performance_sha256=nullable(sha256),
    wave=WAVE,
    before=EDGE,
    after=nullable(EDGE),
    previous=nullable(text),
    fault=nullable(text),
)


@dataclass(frozen=True)
class Measured:
    """What is known of the performance part: the service of B2 and its port, None without one,
    when its last byte came, and the hash of the RunSpec."""

    service_id: str | None
    port: int
    newest_ns: int
    runspec_sha256: str


def recompute_accuracy(root: Path, runspec: RunSpec, measured: Measured) -> dict[str, Any] | None:
    """`AccuracyFigures` from the raw answers; None where no question was asked."""
    if not (root / RUN).is_file():
        return None
    run = read(load(root, RUN), RUN, RUN_RECORD)
    if run.runspec_sha256 != measured.runspec_sha256:
        raise Refused(RUN, "runspec_sha256", "is another RunSpec's")
    plan = read_plan(root, runspec)
    replies = [_reply(root, plan, runspec, measured, one) for one in run.wave.requests]
    _compare_replies(run.wave.requests, replies)
    items = [
        _item(plan, request, reply)
        for request, reply in zip(run.wave.requests, replies, strict=True)
    ]
    verdict, rule, reason = _judge(root, plan, run, measured, items)
    return {
        "schema": SCHEMA,
        "accuracy_id": run.accuracy_id,
        "spec_sha256": plan.sha256,
        "items": items,
        "correct": sum(item["correct"] for item in items),
        "count": plan.count,
        "threshold": plan.threshold,
        "verdict": {"scope": "accuracy", "verdict": verdict, "rule": rule, "reason": reason},
    }


def _reply(root: Path, plan: Plan, runspec: RunSpec, measured: Measured, request: Request) -> Reply:
    """Read what was stored of one question."""
    try:
        names = (request.raw, request.request, request.reads)
        raw, sent, reads = (load(root, f"{DIRECTORY}/{name}") for name in names)
    except Refused:
        return Reply(faults={"file-missing"})
    reply = read_reply(raw, request.outcome, plan.max_tokens)
    if not _adds_up(reads, request.reads, len(raw)):
        reply.faults.add("reads-mismatch")
    number = request.prompt_index
    is_asked = 0 <= number < plan.count and request.slot == number
    if not is_asked or not (
        sent == _sent(plan, runspec, measured, number)
        and request.prompt_sha256 == digest(plan.prompts[number].encode())
        and request.rank == number % runspec.profile.data_parallel_size
    ):
        reply.faults.add("request-mismatch")
    return reply


def _adds_up(data: bytes, name: str, size: int) -> bool:
    try:
        reads = read(data, name, READS)
    except Refused:
        return False
    times = [t_ns for t_ns, _ in reads]
    return sum(count for _, count in reads) == size and times == sorted(times)


def _sent(plan: Plan, runspec: RunSpec, measured: Measured, number: int) -> bytes:
    """The bytes that a question must have been asked with (P5.3)."""
    body = plan.bodies[number]
    rank = number % runspec.profile.data_parallel_size
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{measured.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"X-data-parallel-rank: {rank}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _compare_replies(requests: tuple[Request, ...], replies: list[Reply]) -> None:
    """Two questions share neither a file nor a response."""
    names = Counter(name for one in requests for name in {one.request, one.raw, one.reads})
    ids = Counter(reply.name for reply in replies if reply.name is not None)
    for request, reply in zip(requests, replies, strict=True):
        if max(names[request.request], names[request.raw], names[request.reads]) > 1:
            reply.faults.add("file-shared")
        if reply.name is not None and ids[reply.name] > 1:
            reply.faults.add("response-id")


def _item(plan: Plan, request: Request, reply: Reply) -> dict[str, Any]:
    number = request.prompt_index
    is_known = 0 <= number < plan.count
    kept = stored(reply.reasoning, reply.content)
    found = score(kept, plan.answers[number] if is_known else "", plan.evaluator, is_chat=True)
    return {
        "question": number,
        "index": plan.indices[number] if is_known else -1,
        "failed": sorted(reply.faults),
        "finish_reason": reply.endings[0] if reply.endings else None,
        "prompt_tokens": reply.count("prompt"),
        "completion_tokens": reply.count("completion"),
        "reasoning_empty": not reply.reasoning,
        "content_empty": not reply.content,
        "prediction_sha256": digest(kept.encode()),
        "extracted_pred": found.pred,
        "extracted_gold": found.gold or "",
        "correct": found.correct and not reply.faults,
    }


def _judge(
    root: Path, plan: Plan, run: Run, measured: Measured, items: list[dict[str, Any]]
) -> tuple[str, str, str]:
    """(verdict, rule, reason): the first thing that makes the run invalid, else the count."""
    if run.spec_sha256 != plan.sha256:
        return "INCONCLUSIVE", "P5.2", "made under another accuracy spec"
    if run.wave.aborted is not None:
        return "INCONCLUSIVE", "P5.4", f"broken off: {run.wave.aborted}"
    failed = [item["question"] for item in items if item["failed"]]
    if [item["question"] for item in items] != list(range(plan.count)) or failed:
        return "INCONCLUSIVE", "P5.4", f"not every question once and in order, or failed: {failed}"
    if reason := _unproved(root, run, measured):
        return "INCONCLUSIVE", *reason
    silent = [item["question"] for item in items if item["reasoning_empty"]]
    if plan.needs_reasoning and silent:
        return "INCONCLUSIVE", "P5.3", f"no reasoning in {len(silent)} replies"
    correct = sum(item["correct"] for item in items)
    verdict = "PASS" if correct >= plan.threshold else "FAIL"
    return verdict, "P5.4", f"{correct}/{plan.count} (threshold {plan.threshold})"


def _unproved(root: Path, run: Run, measured: Measured) -> tuple[str, str] | None:
    """P5.1, P5.6: the service is the measured one, the same throughout, and was drained."""
    if run.after is None:
        return "P5.6", "no proof of the service after the last question"
    if run.after.identity_sha256 != run.before.identity_sha256:
        return "P5.6", "the service changed"
    for edge in (run.before, run.after):
        if (edge.running, edge.waiting) != (0, 0) or _inside(root, edge.metrics) != 0:
            return "P5.6", "the service was not drained, or it is not known"
    if run.wave.origin_ns < measured.newest_ns:
        return "P5.6", "asked before the performance part was over"
    if run.performance_sha256 is not None and (
        digest(load(root, PERFORMANCE)) != run.performance_sha256
    ):
        return "P5.6", "the performance record is not the one that was judged before"
    is_other = run.measured_identity_sha256 not in (None, run.before.identity_sha256)
    is_other = is_other or measured.service_id not in (None, run.service_id)
    if is_other and run.reuse_lost is None:
        return "P5.1", "not the service that was measured, and no reason why"
    return None


def _inside(root: Path, name: str) -> int | None:
    """Requests inside the service, by its own counters; None where they do not tell."""
    try:
        return exposition.in_flight(exposition.snapshot(load(root, f"{DIRECTORY}/{name}")))
    except ValueError:
        return None


def performance_recorded(root: Path, scope: dict[str, str]) -> list[str]:
    """What the record that was sealed before the first question says otherwise."""
    if not (root / PERFORMANCE).is_file():
        return []
    kept = parse(load(root, PERFORMANCE), PERFORMANCE)
    if not isinstance(kept, dict):
        raise Refused(PERFORMANCE, "", "is no object")
    return [
        f"{PERFORMANCE}: {name}: {kept.get(name)} recorded, {scope[name]} from the raw bytes"
        for name in ("scope", "verdict", "rule")
        if kept.get(name) != scope[name]
    ]
