"""Evidence of an attempt + the profile's table of rules -> findings, and what they forbid.

A rule is required or, for a stated reason, not applicable on a kind of machine. Neither a candidate
nor an option can change the table; a rule that the table does not name is an error.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from acceptance.errors import UsageError
from acceptance.evidence import LevelEvidence, Outcome, Rule
from acceptance.judgement import Obstacle
from acceptance.records import Record
from acceptance.validity_counters import COUNTER_RULES
from acceptance.validity_requests import REQUEST_RULES
from acceptance.validity_service import SERVICE_RULES

RULES: tuple[Rule, ...] = (*REQUEST_RULES, *COUNTER_RULES, *SERVICE_RULES)
"""The registry, in the order in which findings are reported."""

REQUIRED = "required"
NOT_APPLICABLE = "not_applicable:"


EXCUSABLE = frozenset(
    (
        "candidate-path",
        "device-preflight",
        "draft-acceptance",
        "fused-mc2",
        "flashcomm",
        "graph-replay",
        "host-load",
        "host-throttling",
    )
)
"""Rules that stand on what a kind of machine or service has; no profile is excused from others."""


class Finding(Record, frozen=True, kw_only=True):
    """What one rule said about one attempt. `codes` are those of docs/run-directory.md, or
    where it has none the rule's id, or `<id>-unknown`; empty for any other outcome."""

    id: str
    rule: str
    reads: tuple[str, ...]
    decides: str
    is_recomputable: bool
    outcome: Outcome
    reason: str
    codes: tuple[str, ...]


def table_problems(table: Mapping[str, str]) -> tuple[str, ...]:
    """What is wrong with a profile's table: a missing rule, an unknown id, a malformed entry."""
    known = [rule.id for rule in RULES]
    problems = [f"validity rule `{id}` is missing" for id in known if id not in table]
    for id, entry in table.items():
        if id not in known:
            near = get_close_matches(id, known, n=1, cutoff=0.0)
            problems.append(f"no validity rule `{id}`; the nearest is `{near[0]}`")
        elif entry != REQUIRED and not _not_applicable(entry):
            problems.append(f"rule `{id}` must be `required` or `not_applicable: <reason>`")
        elif entry != REQUIRED and id not in EXCUSABLE:
            problems.append(f"rule `{id}` must be `required`: it holds on every machine")
    return tuple(problems)


def check_table(table: Mapping[str, str], source: str) -> None:
    """UsageError with the first problem; `source` is the file that holds the table."""
    problems = table_problems(table)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UsageError(f"{source}: [rules]: {problems[0]}{more}")


def examine(evidence: LevelEvidence, table: Mapping[str, str]) -> tuple[Finding, ...]:
    """Apply every rule, in the registry's order. UsageError where the table is not complete."""
    check_table(table, "profile")
    return tuple(_finding(rule, evidence, table[rule.id]) for rule in RULES)


def _finding(rule: Rule, evidence: LevelEvidence, entry: str) -> Finding:
    codes: tuple[str, ...] = ()
    if entry == REQUIRED:
        checked = rule.check(evidence)
        outcome, reason = checked.outcome, checked.reason
        if outcome is Outcome.INVALID:
            codes = checked.codes or (rule.id,)
        elif outcome is Outcome.UNKNOWN:
            codes = checked.codes or (f"{rule.id}-unknown",)
    else:
        outcome, reason = Outcome.NOT_APPLICABLE, _not_applicable(entry)
    return Finding(
        id=rule.id,
        rule=rule.rule,
        reads=rule.reads,
        decides=rule.decides,
        is_recomputable=rule.is_recomputable,
        outcome=outcome,
        reason=reason,
        codes=codes,
    )


def _not_applicable(entry: str) -> str:
    """The reason of `not_applicable: reason`; "" where the entry is no such thing."""
    return entry.removeprefix(NOT_APPLICABLE).strip() if entry.startswith(NOT_APPLICABLE) else ""


def is_valid(findings: Iterable[Finding]) -> bool:
    """P4.1: every rule on the level is valid or, by the profile, not applicable."""
    return not level_codes(findings)


def level_codes(findings: Iterable[Finding], *, recomputable_only: bool = False) -> tuple[str, ...]:
    """Sorted reason codes that make the attempt invalid; empty for a valid one.

    `recomputable_only`: those that the raw files of the attempt are enough to find.
    """
    codes = {
        code
        for finding in findings
        if finding.decides == "level" and (finding.is_recomputable or not recomputable_only)
        for code in finding.codes
    }
    return tuple(sorted(codes))


def obstacles(findings: Iterable[Finding], round: str, level: str) -> tuple[Obstacle, ...]:
    """What the attempt's findings put in the way of a verdict (P4.1, P4.2.1)."""
    return tuple(
        Obstacle(
            rule=finding.rule,
            level=level,
            reason=f"{round} {finding.id} {finding.outcome}: {finding.reason}",
        )
        for finding in findings
        if finding.decides == "level" and finding.codes
    )


def path_ran(findings: Iterable[Iterable[Finding]]) -> bool | None:
    """P7.3 over the findings of all attempts: False as soon as the path did not run in one, None
    where it is not shown in all of them. No attempt at all shows nothing."""
    outcomes = [
        finding.outcome
        for attempt in findings
        for finding in attempt
        if finding.decides == "candidate"
    ]
    if Outcome.INVALID in outcomes:
        return False
    is_shown = outcomes and all(outcome is Outcome.VALID for outcome in outcomes)
    return True if is_shown else None


def not_applicable(findings: Iterable[Finding]) -> dict[str, str]:
    """Rule id -> reason, for report and verdict: what this machine can't be asked for."""
    return {f.id: f.reason for f in findings if f.outcome is Outcome.NOT_APPLICABLE}
