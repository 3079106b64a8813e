"""Every reason code: a planted fault gives exactly its codes, and the two judges agree on it."""

import msgspec
import pytest

import validator
from acceptance import judge
from acceptance.canonical import canonical, sha256
from acceptance.freeze import load_runspec
from tests.strategies import runs
from tests.strategies.faults import FAULTS, PLACE
from tests.strategies.places import fast_directory


@pytest.fixture
def place():
    with fast_directory() as path:
        yield path


def live_figures(run_dir):
    """What `acceptance` makes of the same files."""
    runspec = load_runspec(run_dir)
    digest = sha256((run_dir / "plan/runspec.json").read_bytes())
    levels = judge.newest(judge.judge_run(run_dir, runspec))
    return msgspec.json.decode(canonical(judge.figures(runspec, digest, levels, [])))


def without_reasons(figures):
    """The wording of a scope's reason is the one thing that may differ."""
    scopes = [{**scope, "reason": ""} for scope in figures["scopes"]]
    return {**figures, "scopes": scopes}


def test_a_run_without_faults_is_valid_and_passes(place):
    run_dir = runs.write(runs.run_draft(levels=("C1", "C4", "C16")), place)

    figures = validator.recompute(run_dir)

    assert [[]] * 6 == [level["invalid"] for level in figures["levels"]]
    assert {"C1": "1000/1", "C4": "1000/1", "C16": "1000/1"} == figures["tpot_ns"]
    assert "PASS" == figures["verdict"]
    assert without_reasons(live_figures(run_dir)) == without_reasons(figures)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_gives_its_codes_and_no_other(place, fault):
    draft = runs.run_draft(levels=("C1", "C4"))
    fault.spoil(draft, draft.attempt(*PLACE))
    run_dir = runs.write(draft, place)

    figures = validator.recompute(run_dir)

    codes = {(one["round"], one["level"]): set(one["invalid"]) for one in figures["levels"]}
    assert {
        ("B1", "C1"): set(),
        PLACE: set(fault.codes),
        ("B2", "C1"): set(),
        ("B2", "C4"): set(),
    } == codes
    assert "INCONCLUSIVE" == figures["verdict"]
    assert without_reasons(live_figures(run_dir)) == without_reasons(figures)


def test_the_faults_show_every_code_of_the_run_directory_page():
    page = (runs.ROOT / "docs/run-directory.md").read_text()
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {word.strip("`, ") for cell in cells for word in cell.split("`, `")}

    shown = set().union(*(fault.codes for fault in FAULTS))

    assert len(documented) > 30
    assert set() == documented - {"outcome-<x>"} - shown


def test_a_level_may_be_repeated_after_an_invalid_attempt_and_the_newest_counts(place):
    draft = runs.run_draft(levels=("C1",), repeated=(("B1", "C1"),))
    run_dir = runs.write(draft, place)

    figures = validator.recompute(run_dir)

    assert [("B1", 2, []), ("B2", 1, [])] == [
        (one["round"], one["attempt"], one["invalid"]) for one in figures["levels"]
    ]
    assert without_reasons(live_figures(run_dir)) == without_reasons(figures)


def test_a_valid_attempt_may_not_be_repeated(place):
    draft = runs.run_draft(levels=("C1",), repeated=(("B1", "C1"),))
    draft.attempt("B1", "C1").waves[-1].record["aborted"] = None
    run_dir = runs.write(draft, place)

    figures = validator.recompute(run_dir)

    assert ["attempt"] == figures["levels"][0]["invalid"]
    assert without_reasons(live_figures(run_dir)) == without_reasons(figures)


@pytest.mark.parametrize("name", ["previous", "reason"])
def test_a_second_attempt_without_link_or_reason_is_invalid(place, name):
    draft = runs.run_draft(levels=("C1",), repeated=(("B1", "C1"),))
    draft.attempt("B1", "C1", 2).record[name] = None
    run_dir = runs.write(draft, place)

    figures = validator.recompute(run_dir)

    assert ["attempt"] == figures["levels"][0]["invalid"]


def test_two_rounds_on_one_service_have_no_second_warmup(place):
    run_dir = runs.write(runs.run_draft(levels=("C1", "C4"), rounds="same-service"), place)

    figures = validator.recompute(run_dir)

    assert [[]] * 4 == [level["invalid"] for level in figures["levels"]]
    assert "PASS" == figures["verdict"]


def test_one_service_for_two_rounds_that_were_to_have_two_is_found(place):
    draft = runs.run_draft(levels=("C1",))
    for round_name in ("B1", "B2"):
        draft.attempt(round_name, "C1").record["service_id"] = "aa" * 8
    draft.commands["B2"]["service_id"] = "aa" * 8
    for proof in draft.attempt("B2", "C1").proofs:
        proof["service_id"] = proof["identity"]["service_id"] = "aa" * 8

    figures = validator.recompute(runs.write(draft, place))

    assert [[], ["service-changed"]] == [level["invalid"] for level in figures["levels"]]


def test_a_round_that_began_before_the_one_before_it_was_over_is_found(place):
    draft = runs.run_draft(levels=("C1",))
    first, second = (draft.attempt(name, "C1").waves for name in ("B1", "B2"))
    second[0].record["origin_ns"] = first[1].record["origin_ns"]

    figures = validator.recompute(runs.write(draft, place))

    assert [[], ["wave-order"]] == [level["invalid"] for level in figures["levels"]]


def test_ranks_are_routed_by_slot_and_counted_by_engine(place):
    run_dir = runs.write(runs.run_draft(levels=("C4",), ranks=4), place)

    figures = validator.recompute(run_dir)

    assert [[], []] == [level["invalid"] for level in figures["levels"]]
    assert without_reasons(live_figures(run_dir)) == without_reasons(figures)


def test_requests_that_went_to_another_rank_are_found(place):
    draft = runs.run_draft(levels=("C4",), ranks=4)
    for counters in draft.attempt("B1", "C4").metrics[1:]:
        counters[0]["requests"] += 1
        counters[1]["requests"] -= 1

    figures = validator.recompute(runs.write(draft, place))

    assert [["rank-routing"], []] == [level["invalid"] for level in figures["levels"]]


def test_an_excused_rule_gives_no_code_but_the_bytes_are_never_excused(place):
    draft = runs.run_draft(levels=("C1",))
    rules = draft.runspec["profile"]["rules"]
    rules["preemptions"] = rules["cached-tokens"] = "not_applicable: made up"
    attempt = draft.attempt("B1", "C1")
    attempt.metrics[-1][0]["preemptions"] = 3
    one = attempt.wave("measured").requests[0]
    one.raw = one.raw.replace(b'"cached_tokens":0', b'"cached_tokens":1')

    figures = validator.recompute(runs.write(draft, place))

    assert {"cached-tokens"} == set(figures["levels"][0]["invalid"]) & {
        "cached-tokens",
        "preemptions",
    }


def test_a_rule_that_the_table_leaves_out_applies(place):
    draft = runs.run_draft(levels=("C1",))
    del draft.runspec["profile"]["rules"]["preemptions"]
    draft.attempt("B1", "C1").metrics[-1][0]["preemptions"] = 3

    figures = validator.recompute(runs.write(draft, place))

    assert ["preemptions"] == figures["levels"][0]["invalid"]
