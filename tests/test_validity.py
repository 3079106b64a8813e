"""The registry of validity rules: complete, honest about the unknown, and bound to its table."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from acceptance import validity, validity_counters, validity_requests, validity_service
from acceptance.errors import UsageError
from acceptance.evidence import LevelEvidence, Outcome, Rule, settle
from acceptance.testing.evidence import evidence, required
from acceptance.validity import (
    RULES,
    Finding,
    check_table,
    examine,
    is_valid,
    level_codes,
    not_applicable,
    obstacles,
    path_ran,
    table_problems,
)

ROOT = Path(__file__).parent.parent
FIELDS = set(LevelEvidence.__struct_fields__)
IDENTITY = {"round", "level"}
"""Fields that name the attempt and prove nothing."""


def test_a_clean_attempt_is_valid_by_every_rule():
    findings = examine(evidence(), required())

    assert {Outcome.VALID} == {finding.outcome for finding in findings}
    assert is_valid(findings)
    assert () == obstacles(findings, "B1", "C4")


def test_every_rule_that_is_written_is_in_the_registry():
    modules = (validity_counters, validity_requests, validity_service)
    written = [v for m in modules for v in vars(m).values() if isinstance(v, Rule)]

    assert sorted(rule.id for rule in written) == sorted(rule.id for rule in RULES)
    assert len(RULES) == len({rule.id for rule in RULES})


def test_every_rule_has_a_number_of_the_protocol_a_meaning_and_evidence():
    known = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    for rule in RULES:
        assert re.search(rf"\b{re.escape(rule.rule)}\b", known), rule.id
        assert rule.meaning.endswith("."), rule.id
        assert rule.reads, rule.id
        assert FIELDS >= set(rule.reads), rule.id
        assert rule.decides in ("level", "candidate")


def test_every_field_of_the_evidence_is_read_by_a_rule():
    read = {field for rule in RULES for field in rule.reads}

    assert FIELDS - IDENTITY == read


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in RULES])
def test_a_rule_reads_only_what_it_says(rule):
    """Taking away everything else changes nothing of what the rule finds."""
    unread = FIELDS - IDENTITY - {"attempt", "expected"} - set(rule.reads)
    others = dict.fromkeys(unread)

    assert rule.check(evidence()) == rule.check(replace(evidence(), **others))


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in RULES])
def test_no_rule_is_valid_without_its_evidence(rule):
    """Unknown is never valid. `attempt` alone can be known from what is always there."""
    gone = {name: None for name in rule.reads if name not in ("attempt", "expected")}
    checked = rule.check(replace(evidence(), **gone))

    assert rule.id == "attempt" or checked.outcome is Outcome.UNKNOWN


def test_nothing_known_is_nothing_valid():
    nothing = dict.fromkeys(FIELDS - IDENTITY - {"attempt", "expected"})
    findings = examine(replace(evidence(), **nothing), required())

    assert ["attempt"] == [f.id for f in findings if f.outcome is Outcome.VALID]
    assert not is_valid(findings)


NULLABLE = sorted(FIELDS - IDENTITY - {"attempt", "expected"})


@given(st.sets(st.sampled_from(NULLABLE)))
def test_taking_evidence_away_never_makes_an_attempt_valid(gone):
    before = {f.id: f.outcome for f in examine(evidence(), required())}
    after = examine(replace(evidence(), **dict.fromkeys(gone)), required())
    links = {"previous", "previous_valid", "previous_reason"}
    of_candidate = {"paths_claimed", "path_calls"}

    assert all(f.outcome in (before[f.id], Outcome.UNKNOWN) for f in after)
    assert is_valid(after) is (gone <= links | of_candidate)


@pytest.mark.rule("P3.1")
def test_a_second_round_on_one_service_start_has_no_warm_up():
    """`same-service`: one wave, one window, two edges; a warm-up would be one too many."""
    clean = evidence()
    second = replace(
        clean,
        expected=replace(clean.expected, waves=("measured",)),
        waves=clean.waves[1:],
        windows=clean.windows[1:],
        edge_reads=2,
    )

    assert is_valid(examine(second, required()))
    again = examine(replace(second, waves=clean.waves), required())
    assert ("wave-order",) == level_codes(again)
    assert not is_valid(examine(replace(second, waves=()), required()))
    assert not is_valid(examine(replace(second, windows=()), required()))


# The table of a profile.


def test_a_table_that_requires_everything_is_complete():
    assert () == table_problems(required())
    check_table(required(), "p.toml")


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in RULES])
def test_a_rule_missing_from_the_table_is_an_error(rule):
    table = {id: entry for id, entry in required().items() if id != rule.id}

    with pytest.raises(UsageError, match=rf"^p.toml: \[rules\]: .* `{rule.id}` is missing$"):
        check_table(table, "p.toml")


def test_the_first_trouble_of_a_table_is_told_and_the_others_counted():
    with pytest.raises(
        UsageError, match=rf"`wave-count` is missing \(and {len(RULES) - 1} more\)$"
    ):
        check_table({}, "p.toml")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        pytest.param({"preemption": "required"}, "nearest is `preemptions`", id="unknown-id"),
        pytest.param({"usage": "optional"}, "must be `required` or `not_app", id="other-word"),
        pytest.param({"usage": "not_applicable"}, "must be", id="no-reason"),
        pytest.param({"usage": "not_applicable:  "}, "must be", id="blank-reason"),
        pytest.param({"usage": ""}, "must be", id="empty"),
        pytest.param({"usage": "Required"}, "must be", id="capital"),
    ],
)
def test_an_entry_that_says_nothing_clear_is_an_error(entry, text):
    with pytest.raises(UsageError, match=text):
        check_table(required() | entry, "p.toml")
    with pytest.raises(UsageError):
        examine(evidence(), required() | entry)


def test_a_rule_that_is_not_applicable_is_listed_with_its_reason_and_not_applied():
    table = required() | {"graph-replay": "not_applicable: no graphs on a CPU"}

    findings = examine(replace(evidence(), windows=None), table)

    assert {"graph-replay": "no graphs on a CPU"} == not_applicable(findings)
    assert "graph-replay-unknown" not in level_codes(findings)


def test_not_applicable_hides_no_other_rule():
    table = required() | {"graph-replay": "not_applicable: no graphs on a CPU"}

    assert not is_valid(examine(replace(evidence(), is_profiler_on=True), table))


def test_profiles_have_complete_tables():
    from acceptance.profile import parse_profile

    folder = ROOT / "acceptance/profiles"
    problems = {}
    for path in sorted(folder.glob("*.toml")):
        profile = parse_profile(path.read_text(encoding="utf-8"), str(path))
        if found := table_problems(profile.rules):
            problems[path.name] = found

    assert {} == problems


# What the findings forbid.


def _findings(**changes):
    return examine(replace(evidence(), **changes), required())


@pytest.mark.rule("P4.1")
def test_what_is_invalid_or_unknown_is_an_obstacle_with_rule_round_and_level():
    found = obstacles(_findings(is_profiler_on=True, kv_tokens=None), "B2", "C4")

    assert [
        ("P2.3", "C4", "B2 kv-capacity unknown: the KV capacity of each rank was not read"),
        ("P2.5", "C4", "B2 profiler-off invalid: a profiler was on"),
    ] == [(one.rule, one.level, one.reason) for one in found]


def test_codes_that_raw_files_are_enough_for_are_told_apart():
    findings = _findings(is_profiler_on=True, edge_reads=None)

    assert ("metrics-missing", "profiler-off") == level_codes(findings)
    assert ("metrics-missing",) == level_codes(findings, recomputable_only=True)


@pytest.mark.rule("P7.3")
def test_a_path_that_did_not_run_is_no_fault_of_the_level():
    findings = _findings(path_calls={"row_mask": {"a": 0, "b": 0}})

    assert is_valid(findings)
    assert () == obstacles(findings, "B1", "C4")


RAN = _findings()
NEVER = _findings(path_calls={"row_mask": {"a": 0, "b": 0}})
UNSHOWN = _findings(path_calls=None)


@pytest.mark.rule("P7.3")
@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        pytest.param([RAN, RAN], True, id="ran-in-all"),
        pytest.param([RAN, UNSHOWN], None, id="not-shown-in-one"),
        pytest.param([UNSHOWN, NEVER], False, id="never-in-one"),
        pytest.param([], None, id="no-attempt"),
    ],
)
def test_the_path_ran_when_it_is_shown_in_every_attempt(attempts, expected):
    assert expected is path_ran(attempts)


@pytest.mark.rule("P7.3")
def test_a_path_that_is_not_applicable_is_not_shown():
    table = required() | {"candidate-path": "not_applicable: no counters here"}

    assert path_ran([examine(evidence(), table)]) is None


def test_findings_are_records_that_survive_the_disk():
    findings = _findings(is_profiler_on=True)

    assert findings == msgspec.json.decode(msgspec.json.encode(findings), type=tuple[Finding, ...])


def test_evidence_has_no_default_and_no_unknown_key():
    whole = msgspec.to_builtins(evidence())
    assert evidence() == msgspec.convert(whole, LevelEvidence)
    for name in FIELDS:
        with pytest.raises(msgspec.ValidationError, match="missing required field"):
            msgspec.convert({k: v for k, v in whole.items() if k != name}, LevelEvidence)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert(whole | {"extra": 1}, LevelEvidence)


@pytest.mark.parametrize(
    ("invalid", "unknown", "outcome", "codes"),
    [
        pytest.param([], [], "valid", (), id="nothing"),
        pytest.param([], ["u"], "unknown", ("cu",), id="unknown"),
        pytest.param(["i"], ["u"], "invalid", ("ci",), id="invalid-wins"),
    ],
)
def test_invalid_wins_over_unknown_and_unknown_over_valid(invalid, unknown, outcome, codes):
    checked = settle(invalid, unknown, "fine", ("ci",), unknown_codes=("cu",))

    assert (outcome, codes) == (checked.outcome.value, checked.codes)


def test_the_registry_is_reported_in_one_order():
    assert [rule.id for rule in validity.RULES] == [f.id for f in _findings()]
