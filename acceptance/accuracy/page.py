"""Figures and report of an accuracy run -> Markdown: the verdict first, the rest beside it."""

from collections.abc import Sequence

from acceptance.accuracy.records import AccuracyFigures, AccuracyReport, Listed, PairedTable


def markdown(found: AccuracyFigures, report: AccuracyReport) -> str:
    """The report as text."""
    verdict, margin = found.verdict, found.correct - found.threshold
    parts = [
        "# Accuracy\n",
        f"**{verdict.verdict}** by {verdict.rule}: {verdict.reason}\n",
        f"Right: {found.correct} of {found.count}, threshold {found.threshold}, "
        f"margin {margin:+d}. The verdict follows from these integers alone.\n",
        *(f"- {note}" for note in report.notes),
        "\n## What the count says, for information\n",
        *_information(report),
        "\n## Why questions were lost\n",
        *(
            f"- {cause}: {len(items)}" + "".join(f"\n  - {_line(item)}" for item in items)
            for cause, items in report.causes.items()
        ),
        "\n## Right by luck, perhaps\n",
        *_list(report.lucky),
        "\n## Scorers that disagree\n",
        *_list(report.disagreements),
        "\n## Questions with a disputed gold\n",
        *_list(report.disputed),
    ]
    if report.paired is not None:
        parts += _paired(report.paired)
    return "\n".join(parts) + "\n"


def _information(report: AccuracyReport) -> list[str]:
    power, tokens = report.power, report.tokens
    return [
        f"- 95 % intervals for questions of this kind: Wilson {_span(report.wilson)}, "
        f"Clopper-Pearson {_span(report.clopper_pearson)}; one-sided lower bound "
        f"{report.lower_95}",
        f"- This gate rejects a true accuracy of {power['rejected_95']} or less with 95 % "
        f"probability, one of {power['rejected_80']} or less with 80 %; it passes one of "
        f"{power['accepted_95']} or more with 95 %, of {power['accepted_99']} or more with 99 %",
        *(
            f"- A true accuracy of {share} passes with probability {once} in one run, {best} in "
            "the best of three"
            for share, (once, best) in report.passes.items()
        ),
        f"- On the final content alone: {report.content_correct} right; by a second scorer "
        f"(last `answer:` line, separators read): {report.anchored_correct} right",
        f"- Completion tokens: {tokens.total} in all, p50 {tokens.p50}, p95 {tokens.p95}, "
        f"max {tokens.max}; at the limit: {tokens.at_limit} replies",
    ]


def _paired(table: PairedTable) -> list[str]:
    return [
        f"\n## Paired with {table.reference} ({table.reference_correct} right)\n",
        f"- both right {table.both_right}, lost {table.lost}, gained {table.gained}, "
        f"both wrong {table.both_wrong}",
        f"- McNemar, exact: two-sided p {table.p_two_sided}, regression p {table.p_regression}; "
        "diagnosis, never the verdict",
        *(
            f"- question {f.question} (line {f.index}): gold {f.gold}, was {f.reference_pred} "
            f"({'right' if f.was_correct else 'wrong'}), now {f.pred}, finish {f.finish_reason}"
            for f in table.flips
        ),
    ]


def _list(items: Sequence[Listed]) -> list[str]:
    return [f"- {_line(item)}" for item in items] or ["- none"]


def _line(item: Listed) -> str:
    return (
        f"question {item.question} (line {item.index}): gold {item.gold}, read {item.pred}; "
        f"{item.why}"
    )


def _span(interval: tuple[str, str]) -> str:
    return f"{interval[0]} to {interval[1]}"
