"""Records of a run -> `results/report.md` and the plots it shows (P6.8, P3.9)."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from acceptance.archive import write_once
from acceptance.plan import Outcome
from acceptance.protocol import CALIBRATION_ROUNDS, ROUNDS, Verdict
from acceptance.records import Attempt, Figures, LevelFigures, RequestFigures
from acceptance.report.plots import timeline_plot, tpot_plot
from acceptance.report.speculation import speculation
from acceptance.runspec import RunSpec

MS = 1_000_000


def ms(value: Fraction | str | int | None, digits: int = 4) -> str:
    """Nanoseconds for display, in ms; unknown stays unknown."""
    if value is None:
        return "unknown"
    return f"{float(Fraction(value)) / MS:.{digits}f}"


def write_report(
    run_dir: Path,
    runspec: RunSpec,
    figures: Figures,
    attempts: Sequence[Attempt],
    outcomes: Sequence[Outcome],
    last_line: str,
    notes: Sequence[str],
) -> Path:
    """Write the page and its plots, once. Returns the path of the page."""
    results = run_dir / "results"
    limits = {k: Fraction(v) for k, v in runspec.limits_tpot_ns.items()}
    shown = [level for level in figures.levels if level.requests]
    parts = [_head(runspec, last_line, notes), _verdicts(figures)]
    if shown:
        close = _is_near(shown, limits)
        write_once(results / "tpot.svg", tpot_plot(shown, limits, close))
        parts.append(_levels(figures, limits))
        parts.append("![TPOT of every request](tpot.svg)\n")
    parts += [_tokens(shown), _definitions(shown), speculation(run_dir, attempts)]
    for attempt in attempts:
        parts.append(_attempt(results, attempt, figures))
    parts.append(_tests(outcomes))
    parts.append(_rules(runspec))
    path = results / "report.md"
    write_once(path, "\n".join(parts).encode())
    return path


def _head(runspec: RunSpec, last_line: str, notes: Sequence[str]) -> str:
    rounds = "two service starts" if runspec.profile.rounds == "restart" else "one service start"
    if runspec.kind == "calibration":
        rounds = "six service starts"
    candidate = runspec.candidate
    state = {True: "tree differs from it", False: "clean tree", None: "state unknown"}
    lines = [
        f"# Run {runspec.run_id}",
        "",
        f"**{last_line}**",
        "",
        f"- profile `{runspec.profile.name}`, rounds `{runspec.profile.rounds}` ({rounds}); "
        "results of the two kinds are never compared with each other (P3.1)",
        f"- commit `{candidate.commit or 'unknown'}` ({state[candidate.dirty]})",
        f"- frozen {runspec.created_utc}; plan of {len(runspec.plan)} tests",
        "- The figures are the latency of one fixed wave of requests per level. They claim "
        "nothing about sustained load or a service level objective (P3.9).",
    ]
    return "\n".join(lines + [f"- {note}" for note in notes]) + "\n"


def _verdicts(figures: Figures) -> str:
    rows = [f"| {s.scope} | **{s.verdict}** | {s.rule} | {s.reason} |" for s in figures.scopes]
    return "\n".join(["| scope | verdict | rule | reason |", "|---|---|---|---|", *rows, ""])


def _is_near(levels: Sequence[LevelFigures], limits: dict[str, Fraction]) -> bool:
    """The target is drawn where it does not squash the points to the floor."""
    return all(
        Fraction(r.tpot_ns) * 4 > limits[level.level] for level in levels for r in level.requests
    )


def _levels(figures: Figures, limits: dict[str, Fraction]) -> str:
    means = {(x.round, x.level): x for x in figures.levels}
    rounds = sorted({x.round for x in figures.levels} | set(_usual(figures)))
    lines = [
        "## Levels, ms/token",
        "",
        f"| level | {' | '.join(rounds)} | TPOT(C) | target | TTFT mean {' / '.join(rounds)}, ms |",
        f"|---|{'---|' * len(rounds)}---|---|---|",
    ]
    for name in dict.fromkeys(x.level for x in figures.levels):
        pair = [means.get((r, name)) for r in rounds]
        ttft = " / ".join(ms(_mean_ttft(x), 1) if x else "-" for x in pair)
        values = " | ".join(ms(x.mean_tpot_ns if x else None) for x in pair)
        lines.append(
            f"| {name} | {values} | {ms(figures.tpot_ns.get(name))} | <= {ms(limits[name], 2)} "
            f"| {ttft} |"
        )
    return "\n".join([*lines, ""])


def _usual(figures: Figures) -> tuple[str, ...]:
    """The rounds that have a column even where they were not reached."""
    is_calibration = any(x.round in CALIBRATION_ROUNDS for x in figures.levels)
    return CALIBRATION_ROUNDS if is_calibration else ROUNDS


def _mean_ttft(level: LevelFigures) -> Fraction | None:
    if not level.requests:
        return None
    return Fraction(sum(r.ttft_ns for r in level.requests), len(level.requests))


def _mean(requests: Sequence[RequestFigures], field: str) -> Fraction | None:
    values = [getattr(r, field) for r in requests]
    if not values or any(v is None for v in values):
        return None
    return sum((Fraction(v) for v in values), Fraction()) / len(values)


def _tokens(levels: Sequence[LevelFigures]) -> str:
    """Greedy and seeded, the two rounds answer alike where batching does not change a rounding."""
    by_round = {(x.round, x.level): {r.slot: r for r in x.requests} for x in levels}
    lines = []
    for name in dict.fromkeys(x.level for x in levels):
        one, two = by_round.get(("B1", name)), by_round.get(("B2", name))
        if one and two:
            same = sum(
                two[s].token_ids_sha256 == r.token_ids_sha256 for s, r in one.items() if s in two
            )
            lines.append(f"{name}: {same} of {len(one)}")
    if not lines:
        return ""
    return f"Requests with the same token IDs in B1 and B2: {'; '.join(lines)}.\n"


def _definitions(levels: Sequence[LevelFigures]) -> str:
    """Other tools stop the clock elsewhere; beside each other nobody mistakes one for another."""
    if not levels:
        return ""
    lines = [
        "## The same requests by three definitions, ms/token",
        "",
        "Ours ends at HTTP EOF and divides by n-1 (P4.0). k is the number of tokens in the first "
        "frame; arms whose k differs are not comparable to the last digit.",
        "",
        "| round, level | EOF, n-1 (ours) | last token frame, n-1 | last token frame, n-k "
        "| k | tail EOF - last token, ms |",
        "|---|---|---|---|---|---|",
    ]
    for level in levels:
        requests = level.requests
        k = sorted({r.first_frame_tokens for r in requests})
        tail = Fraction(sum(r.end_ns - r.last_token_ns for r in requests), len(requests))
        lines.append(
            f"| {level.round} {level.level} | {ms(level.mean_tpot_ns)} "
            f"| {ms(_mean(requests, 'tpot_last_token_ns'))} "
            f"| {ms(_mean(requests, 'tpot_per_later_token_ns'))} "
            f"| {', '.join(map(str, k))} | {ms(tail, 2)} |"
        )
    return "\n".join([*lines, ""])


def _attempt(results: Path, attempt: Attempt, figures: Figures) -> str:
    name = f"{attempt.round}-{attempt.level}-{attempt.attempt}"
    lines = [f"## {attempt.round} {attempt.level}, attempt {attempt.attempt}", ""]
    level = next(
        (
            x
            for x in figures.levels
            if (x.round, x.level, x.attempt) == (attempt.round, attempt.level, attempt.attempt)
        ),
        None,
    )
    if level is None:
        lines.append(f"Superseded by a later attempt; kept (P3.7). Reason: {attempt.reason}.")
    elif not level.valid:
        lines.append(f"**Invalid**: {', '.join(level.invalid)}.")
    for wave in attempt.waves:
        starts = [r.start_ns for r in wave.requests if r.start_ns is not None]
        skew = max(starts) - min(starts) if starts else None
        client = wave.client
        stall = client.stall_ns_max if client else None
        how = f"{client.scheduler}, nice {client.nice}" if client else "no report"
        lines.append(
            f"- {wave.kind}: {len(wave.requests)} requests, send skew {ms(skew, 3)} ms, "
            f"worst client stall {ms(stall, 3)} ms, client {how}"
        )
        if wave.kind == "measured":
            plot = timeline_plot(
                f"{name} {wave.kind}", wave.requests, level.requests if level else ()
            )
            write_once(results / f"timeline-{name}.svg", plot)
            lines += ["", f"![timeline of {name}](timeline-{name}.svg)"]
    return "\n".join([*lines, ""])


def _tests(outcomes: Sequence[Outcome]) -> str:
    lines = ["## Tests", "", "| test | verdict | reason |", "|---|---|---|"]
    for outcome in outcomes:
        reason = (outcome.reason.splitlines() or [""])[0].replace("|", "\\|")
        mark = outcome.verdict if outcome.verdict is Verdict.PASS else f"**{outcome.verdict}**"
        lines.append(f"| `{outcome.test}` | {mark} | {reason} |")
    return "\n".join([*lines, ""])


def _rules(runspec: RunSpec) -> str:
    off = {k: v for k, v in runspec.profile.rules.items() if v != "required"}
    if not off:
        return ""
    lines = ["## Validity rules that do not apply on this profile", ""]
    return "\n".join([*lines, *(f"- `{k}`: {v}" for k, v in sorted(off.items())), ""])
