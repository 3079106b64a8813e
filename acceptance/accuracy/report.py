"""Figures and replies -> what stands beside the accuracy verdict, as a record.

Nothing here enters the verdict (P5.5).
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from acceptance import exact, gsm8k
from acceptance.accuracy import figures, taxonomy
from acceptance.accuracy.aisbench import read_results
from acceptance.accuracy.chat import ChatReply
from acceptance.accuracy.evaluate import Evaluation
from acceptance.accuracy.plan import Plan
from acceptance.accuracy.records import (
    SCHEMA,
    AccuracyFigures,
    AccuracyReport,
    AccuracyRun,
    Flip,
    ItemFigures,
    Listed,
    PairedTable,
    Reference,
    Tokens,
)
from acceptance.errors import UsageError

FROZEN_CONCURRENCY = 32
FROZEN_MAX_TOKENS = 4096
REFERENCE_CORRECT = 295


def read_reference(path: Path, count: int) -> Reference:
    """Per-item results of an earlier run: a results file of AISBench with details, or the
    `figures.json` of one of our runs. UsageError unless it has exactly the items 0..count-1."""
    try:
        old = msgspec.json.decode(path.read_bytes(), type=AccuracyFigures)
        items = [(item.question, item.correct, item.extracted_pred) for item in old.items]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except msgspec.DecodeError:
        items = [(item.id, item.correct, item.pred) for item in read_results(path)]
    if [number for number, _, _ in items] != list(range(count)):
        raise UsageError(f"{path}: {len(items)} items, expected the questions 0..{count - 1}")
    return Reference(
        name=path.name,
        correct=tuple(correct for _, correct, _ in items),
        preds=tuple(pred for _, _, pred in items),
    )


def make_report(
    plan: Plan, run: AccuracyRun, evaluation: Evaluation, reference: Reference | None = None
) -> AccuracyReport:
    """Everything of P5.5 for a run. Taxonomy and luck look at valid replies only."""
    found, count = evaluation.figures, max(1, len(evaluation.figures.items))
    pairs = [
        (item, reply)
        for item, reply in zip(found.items, evaluation.replies, strict=True)
        if not item.failed
    ]
    power = figures.power(found.count, found.threshold)
    return AccuracyReport(
        schema=SCHEMA,
        accuracy_id=found.accuracy_id,
        wilson=_decimals(*figures.wilson(found.correct, count)),
        clopper_pearson=_decimals(*figures.clopper_pearson(found.correct, count)),
        lower_95=_decimal(figures.clopper_pearson(found.correct, count, alpha=0.1)[0]),
        power={
            name: _decimal(getattr(power, name))
            for name in ("rejected_95", "rejected_80", "accepted_95", "accepted_99")
        },
        passes={_decimal(p): _decimals(once, best) for p, once, best in power.passes},
        causes=_causes(pairs),
        lucky=tuple(
            _listed(item, ", ".join(found_lucks))
            for item, reply in pairs
            if (found_lucks := taxonomy.lucks(_view(item, reply)))
        ),
        disputed=_disputed(plan, found.items),
        content_correct=sum(
            taxonomy.content_is_correct(r.content, i.extracted_gold) for i, r in pairs
        ),
        anchored_correct=sum(
            taxonomy.anchored_is_right(r.content, i.extracted_gold) for i, r in pairs
        ),
        disagreements=tuple(
            _listed(i, f"second scorer reads {taxonomy.anchored(r.content)}")
            for i, r in pairs
            if taxonomy.anchored_is_right(r.content, i.extracted_gold) is not i.correct
        ),
        tokens=_tokens(plan, pairs),
        paired=_paired(found.items, reference) if reference else None,
        notes=_notes(plan, run, reference),
    )


Pairs = Sequence[tuple[ItemFigures, ChatReply]]


def _view(item: ItemFigures, reply: ChatReply) -> taxonomy.Reply:
    return taxonomy.Reply(
        reasoning=reply.reasoning,
        content=reply.content,
        gold=item.extracted_gold,
        correct=item.correct,
        is_truncated=item.finish_reason == "length",
    )


def _causes(pairs: Pairs) -> dict[str, tuple[Listed, ...]]:
    found: dict[str, list[Listed]] = {name: [] for name in taxonomy.CAUSES}
    for item, reply in pairs:
        cause = taxonomy.cause(_view(item, reply))
        if cause is not None:
            found[cause].append(_listed(item, cause))
    return {name: tuple(items) for name, items in found.items()}


def _disputed(plan: Plan, items: Sequence[ItemFigures]) -> tuple[Listed, ...]:
    if plan.spec.indices_sha256 != gsm8k.INDICES_SHA256:
        return ()
    return tuple(
        _listed(item, taxonomy.DISPUTED[item.index])
        for item in items
        if item.index in taxonomy.DISPUTED
    )


def _tokens(plan: Plan, pairs: Pairs) -> Tokens:
    counts = [item.completion_tokens or 0 for item, _ in pairs]
    return Tokens(
        total=sum(counts),
        p50=figures.quantile(counts, 50) if counts else None,
        p95=figures.quantile(counts, 95) if counts else None,
        max=max(counts, default=None),
        at_limit=sum(count == plan.spec.max_tokens for count in counts),
    )


def _paired(items: Sequence[ItemFigures], reference: Reference) -> PairedTable | None:
    if len(items) != len(reference.correct):
        return None
    table = figures.paired(reference.correct, [item.correct for item in items])
    return PairedTable(
        reference=reference.name,
        reference_correct=sum(reference.correct),
        both_right=table.both_right,
        lost=table.lost,
        gained=table.gained,
        both_wrong=table.both_wrong,
        p_two_sided=exact.write(table.p_two_sided),
        p_regression=exact.write(table.p_regression),
        flips=tuple(
            Flip(
                question=item.question,
                index=item.index,
                gold=item.extracted_gold,
                was_correct=was,
                reference_pred=pred,
                pred=item.extracted_pred,
                finish_reason=item.finish_reason,
            )
            for item, was, pred in zip(items, reference.correct, reference.preds, strict=True)
            if item.correct is not was
        ),
    )


def _notes(plan: Plan, run: AccuracyRun, reference: Reference | None) -> tuple[str, ...]:
    spec, notes = plan.spec, []
    notes.append(f"questions: {spec.source}, SHA-256 {spec.questions_sha256}")
    name = gsm8k.find_evaluator(spec.evaluator).name.lower()
    notes.append(f"scored as AISBench's native evaluator, {name}, blob {spec.evaluator}")
    if run.measured_identity_sha256 is None:
        notes.append("accuracy alone was asked for: this says nothing about a candidate (P4.3)")
    elif run.reuse_lost is not None:
        notes.append(f"not the service that was measured: {run.reuse_lost} (P5.1)")
    else:
        notes.append("asked of the very service that was measured (P5.1)")
    if spec.indices_sha256 is None:
        notes.append("a question set of the profile's own: not GSM8K, and not to be compared to it")
    elif (spec.concurrency, spec.max_tokens) != (FROZEN_CONCURRENCY, FROZEN_MAX_TOKENS):
        notes.append(
            f"C{spec.concurrency} and {spec.max_tokens} tokens, not C32 and 4096 (P5.3): "
            "another load, not to be compared to 295/300"
        )
    if reference and spec.indices_sha256 and sum(reference.correct) != REFERENCE_CORRECT:
        notes.append(f"the reference has {sum(reference.correct)} right: not the frozen 295/300")
    return tuple(notes)


def _listed(item: ItemFigures, why: str) -> Listed:
    return Listed(
        question=item.question,
        index=item.index,
        gold=item.extracted_gold,
        pred=item.extracted_pred,
        why=why,
    )


def _decimal(value: float) -> str:
    return f"{value:.4f}"


def _decimals(low: float, high: float) -> tuple[str, str]:
    return _decimal(low), _decimal(high)
