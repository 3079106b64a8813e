"""Raw answers of a finished run -> figures and the accuracy verdict (P5.4).

Reads files, decides nothing that is not a function of them. The validator does the same again
without sharing a line.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from acceptance import gsm8k
from acceptance.accuracy.chat import ChatReply, check_reads, parse_reply
from acceptance.accuracy.plan import Plan
from acceptance.accuracy.records import SCHEMA, AccuracyFigures, AccuracyRun, ItemFigures
from acceptance.accuracy.stage import RUN
from acceptance.canonical import sha256
from acceptance.errors import UsageError
from acceptance.protocol import Verdict
from acceptance.records import Request, ScopeVerdict

NO_REPLY = ChatReply(
    id=None,
    reasoning="",
    content="",
    finish_reason=None,
    prompt_tokens=None,
    completion_tokens=None,
    failed=("file-missing",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The figures of a run, and the replies they were taken from, in the order asked."""

    figures: AccuracyFigures
    replies: tuple[ChatReply, ...]


def read_run(directory: Path) -> AccuracyRun:
    """`accuracy.json` of a directory; UsageError for anything else."""
    path = directory / RUN
    try:
        run = msgspec.json.decode(path.read_bytes(), type=AccuracyRun)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: no accuracy run") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}") from None
    if run.schema != SCHEMA:
        raise UsageError(f"{path}: schema {run.schema} is not known here")
    return run


def evaluate(plan: Plan, run: AccuracyRun, directory: Path) -> Evaluation:
    """Parse every raw response, score it natively, and judge the run."""
    requests = run.wave.requests
    replies = [_reply(plan, request, directory) for request in requests]
    ids = Counter(reply.id for reply in replies if reply.id is not None)
    shared = Counter(name for r in requests for name in {r.request, r.raw, r.reads})
    items = []
    for request, reply in zip(requests, replies, strict=True):
        faults = set(reply.failed)
        if any(shared[name] > 1 for name in (request.request, request.raw, request.reads)):
            faults.add("file-shared")
        if reply.id is not None and ids[reply.id] > 1:
            faults.add("response-id")
        items.append(_item(plan, request, reply, tuple(sorted(faults))))
    figures = AccuracyFigures(
        schema=SCHEMA,
        accuracy_id=run.accuracy_id,
        spec_sha256=plan.spec_sha256,
        items=tuple(items),
        correct=sum(item.correct for item in items),
        count=plan.spec.count,
        threshold=plan.spec.threshold,
        verdict=judge(plan, run, items),
    )
    return Evaluation(figures=figures, replies=tuple(replies))


def judge(plan: Plan, run: AccuracyRun, items: Sequence[ItemFigures]) -> ScopeVerdict:
    """The verdict, after whatever makes the run say nothing at all."""
    found = gsm8k.judge(
        [
            gsm8k.Answer(question=item.question, failed=item.failed, correct=item.correct)
            for item in items
        ],
        count=plan.spec.count,
        threshold=plan.spec.threshold,
    )
    if obstacle := _obstacle(plan, run, items, found):
        rule, reason = obstacle
        return ScopeVerdict(
            scope="accuracy", verdict=Verdict.INCONCLUSIVE.value, rule=rule, reason=reason
        )
    return found


def _obstacle(
    plan: Plan, run: AccuracyRun, items: Sequence[ItemFigures], found: ScopeVerdict
) -> tuple[str, str] | None:
    """(rule, reason) of the first thing that makes the run invalid, None if nothing does."""
    before, after, measured = run.before, run.after, run.measured_identity_sha256
    if run.spec_sha256 != plan.spec_sha256:
        return "P5.2", f"the run was made under spec {run.spec_sha256}, not {plan.spec_sha256}"
    if run.wave.aborted is not None:
        return "P5.4", f"the run was aborted: {run.wave.aborted}"
    if found.verdict == Verdict.INCONCLUSIVE:
        return found.rule, found.reason
    if after is None:
        return "P5.6", "the service could not be proved after the last question"
    if after.identity_sha256 != before.identity_sha256:
        return "P5.6", "the service changed during the run"
    for name, edge in (("before the first", before), ("after the last", after)):
        if (edge.running, edge.waiting) != (0, 0):
            return "P5.6", f"the service was not drained {name} question, or it is not known"
    if measured not in (None, before.identity_sha256) and run.reuse_lost is None:
        return "P5.1", "the service is not the one that was measured, and no reason why"
    silent = [item.question for item in items if item.reasoning_empty]
    if plan.spec.needs_reasoning and silent:
        return "P5.3", f"thinking not proved: no reasoning in {len(silent)} replies: {silent[:5]}"
    return None


def _reply(plan: Plan, request: Request, directory: Path) -> ChatReply:
    try:
        raw, sent = (_file(directory, name) for name in (request.raw, request.request))
        reads = _reads(_file(directory, request.reads))
    except (OSError, ValueError):
        return NO_REPLY
    reply = parse_reply(raw, outcome=request.outcome, max_tokens=plan.spec.max_tokens)
    faults = set(reply.failed)
    if reads is None or not check_reads(reads, len(raw)):
        faults.add("reads-mismatch")
    if not _is_asked(plan, request, sent):
        faults.add("request-mismatch")
    return replace(reply, failed=tuple(sorted(faults)))


def _is_asked(plan: Plan, request: Request, sent: bytes) -> bool:
    """The bytes sent, slot and prompt hash are those of the question."""
    if not 0 <= request.prompt_index < plan.spec.count or request.slot != request.prompt_index:
        return False
    item = plan.questions.questions[request.prompt_index]
    prompt = gsm8k.render(plan.spec.template, item.question)
    body = sent.partition(b"\r\n\r\n")[2]
    is_body = body == plan.wire[request.prompt_index]
    return is_body and request.prompt_sha256 == sha256(prompt.encode())


def _file(directory: Path, name: str) -> bytes:
    if Path(name).name != name:
        raise ValueError(f"{name}: not a plain file name")
    return (directory / name).read_bytes()


def _reads(data: bytes) -> list[tuple[int, int]] | None:
    try:
        return msgspec.json.decode(data, type=list[tuple[int, int]])
    except msgspec.DecodeError:
        return None


def _item(plan: Plan, request: Request, reply: ChatReply, failed: tuple[str, ...]) -> ItemFigures:
    spec, question = plan.spec, request.prompt_index
    is_known = 0 <= question < spec.count
    gold_raw = plan.questions.questions[question].answer if is_known else ""
    prediction = gsm8k.stored_prediction(reply.reasoning, reply.content)
    scored = gsm8k.score(
        prediction,
        gold_raw,
        stage=spec.stage,
        evaluator=gsm8k.find_evaluator(spec.evaluator),
    )
    return ItemFigures(
        question=question,
        index=spec.indices[question] if is_known else -1,
        failed=failed,
        finish_reason=reply.finish_reason,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        reasoning_empty=not reply.reasoning,
        content_empty=not reply.content,
        prediction_sha256=sha256(prediction.encode()),
        extracted_pred=scored.extracted_pred,
        extracted_gold=scored.extracted_gold or "",
        correct=bool(scored.correct) and not failed,
    )
