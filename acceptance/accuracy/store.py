"""A finished accuracy run -> its files: figures, report, and AISBench's own (P5.5, P6.1)."""

from pathlib import Path

from acceptance import gsm8k
from acceptance.accuracy import aisbench
from acceptance.accuracy.evaluate import Evaluation, evaluate, read_run
from acceptance.accuracy.page import markdown
from acceptance.accuracy.plan import Plan
from acceptance.accuracy.records import AccuracyFigures, AccuracyReport, Reference
from acceptance.accuracy.report import make_report
from acceptance.archive import write_once, write_record


def judge_and_store(
    plan: Plan, directory: Path, reference: Reference | None = None
) -> tuple[AccuracyFigures, AccuracyReport]:
    """Evaluate the run in `directory` from its files and write everything beside them, once."""
    run = read_run(directory)
    evaluation = evaluate(plan, run, directory)
    report = make_report(plan, run, evaluation, reference)
    write_record(directory / "figures.json", evaluation.figures)
    write_record(directory / "report.json", report)
    write_once(directory / "report.md", markdown(evaluation.figures, report).encode())
    if evaluation.figures.items:
        write_aisbench(plan, evaluation, directory / "aisbench", run.wave.started_utc)
    return evaluation.figures, report


def write_aisbench(plan: Plan, evaluation: Evaluation, folder: Path, started_utc: str) -> Path:
    """The run as a work directory of AISBench, and the data that it needs to score it again."""
    spec = plan.spec
    predictions = []
    for item, reply in zip(evaluation.figures.items, evaluation.replies, strict=True):
        if not 0 <= item.question < spec.count:
            continue
        question = plan.questions.questions[item.question]
        predictions.append(
            aisbench.Prediction(
                id=item.question,
                origin_prompt=gsm8k.render(spec.template, question.question),
                prediction=gsm8k.stored_prediction(reply.reasoning, reply.content),
                gold=question.answer,
                error=", ".join(item.failed) or None,
            )
        )
    digits = "".join(filter(str.isdigit, started_utc))[:14].ljust(14, "0")
    aisbench.write_data(folder / "data" / "gsm8k", plan.questions.lines)
    return aisbench.write_run(
        folder,
        predictions,
        stamp=f"{digits[:8]}_{digits[8:]}",
        run_id=evaluation.figures.accuracy_id,
        evaluator=gsm8k.find_evaluator(spec.evaluator),
        version=aisbench.CONFIG_VERSION if spec.template == gsm8k.TEMPLATE else "-",
    )
