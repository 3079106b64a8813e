"""What stands beside the verdict: causes, luck, pairs, tokens, notes; and the files of a run."""

import json
from pathlib import Path

import msgspec
import pytest

from acceptance import gsm8k
from acceptance.accuracy import dataset
from acceptance.accuracy.plan import freeze
from acceptance.accuracy.records import AccuracyFigures, AccuracyProfile, ServiceEdge
from acceptance.accuracy.report import read_reference
from acceptance.accuracy.stage import Address, Binding, run
from acceptance.accuracy.store import judge_and_store
from acceptance.errors import UsageError
from acceptance.testing.answers import Reply, ScriptedClient

OWN = Path(__file__).parent / "data/gsm8k/questions.jsonl"
GOLDS = ["7", "1500", "7", "-5", "36", "210", "0", "512", "4", "12000", "45", "18"]
SAID = {
    0: Reply(content="answer:8"),
    1: Reply(content="answer:1,500"),
    3: Reply(content="answer:minus five"),
    5: Reply(content="", reasoning="30 pages"),
    7: Reply(content="", reasoning="it is 512", finish_reason="length", tokens=64),
    10: Reply(content="", reasoning="50 less 8", finish_reason="length", tokens=64),
}
# Lost: 0 (arithmetic), 1 (comma), 3 (extraction), 5 (empty), 10 (truncation). 7 is right by luck.


def stored(directory, said=SAID, reference=None, **binding):
    profile = AccuracyProfile(
        questions="q",
        questions_sha256="",
        count=12,
        threshold=7,
        concurrency=4,
        max_tokens=64,
        timeout_s=30,
        template="Q: {question}",
        evaluator="released",
        needs_reasoning=True,
        generation_kwargs={},
    )
    questions = dataset.load_questions(OWN, dataset.sha256(OWN.read_bytes()), 12)
    plan = freeze(profile, questions, model="m", encoding=())
    edge = ServiceEdge(
        identity="i", identity_sha256="same", metrics="m", running=0, waiting=0
    )  # fmt: skip
    fields = {
        "accuracy_id": "accuracy-1",
        "runspec_sha256": "r",
        "service_id": "B2",
        "measured_identity_sha256": "same",
        "performance_sha256": "p",
    }
    run(
        plan,
        Binding(**fields | binding),
        Address(host="127.0.0.1", port=1, data_parallel_size=1, barrier_timeout_ns=1),
        edge=lambda name: edge,
        send_wave=ScriptedClient(reply=lambda n: said.get(n, Reply(content=f"is {GOLDS[n]}"))),
        directory=directory,
    )
    return judge_and_store(plan, directory, reference)


@pytest.mark.rule("P5.5")
def test_causes_add_up_to_the_errors(tmp_path):
    figures, report = stored(tmp_path / "a")

    assert ("PASS", 7) == (figures.verdict.verdict, figures.correct)
    assert {
        "truncation": [10],
        "empty": [5],
        "comma": [1],
        "extraction": [3],
        "arithmetic": [0],
    } == {name: [item.question for item in items] for name, items in report.causes.items()}


@pytest.mark.rule("P5.5")
def test_luck_and_the_other_counts_stand_beside(tmp_path):
    _, report = stored(tmp_path / "a")

    assert [(7, "truncated, reasoning-only")] == [(i.question, i.why) for i in report.lucky]
    # On content alone 7 is lost as well; the second scorer reads only `answer:` lines: 1 alone.
    assert (6, 1) == (report.content_correct, report.anchored_correct)
    assert 1 in [item.question for item in report.disagreements]
    assert (64, 2) == (report.tokens.max, report.tokens.at_limit)


@pytest.mark.rule("P5.5")
def test_a_reference_gives_the_paired_table_and_every_flip(tmp_path):
    stored(tmp_path / "old", {2: Reply(content="is 6"), 1: Reply(content="is 1")})
    reference = read_reference(tmp_path / "old/figures.json", 12)

    _, report = stored(tmp_path / "new", reference=reference)

    # Old: 1 and 2 wrong. New: 0, 1, 3, 5, 10 wrong. Lost 0, 3, 5, 10; gained 2; both wrong 1.
    table = report.paired
    assert (10, 6, 4, 1, 1) == (
        table.reference_correct,
        table.both_right,
        table.lost,
        table.gained,
        table.both_wrong,
    )
    # Lost 4 of 5: (5 + 1)/32 one-sided.
    assert ("3/8", "3/16") == (table.p_two_sided, table.p_regression)
    assert [0, 2, 3, 5, 10] == [flip.question for flip in table.flips]
    assert ("6", "7", False) == (
        table.flips[1].reference_pred,
        table.flips[1].pred,
        table.flips[1].was_correct,
    )


def test_a_reference_of_aisbench_is_read_as_well(tmp_path):
    stored(tmp_path / "old")
    (results,) = (tmp_path / "old/aisbench").glob("*/results/*/gsm8k.json")

    ours = read_reference(tmp_path / "old/figures.json", 12)
    theirs = read_reference(results, 12)

    assert (ours.correct, ours.preds) == (theirs.correct, theirs.preds)


def test_a_reference_with_other_questions_is_refused(tmp_path):
    stored(tmp_path / "old")

    with pytest.raises(UsageError, match=r"12 items, expected the questions 0\.\.299"):
        read_reference(tmp_path / "old/figures.json", 300)


def test_files_are_records_and_are_written_once(tmp_path):
    figures, _ = stored(tmp_path / "a")
    data = (tmp_path / "a/figures.json").read_bytes()

    assert figures == msgspec.json.decode(data, type=AccuracyFigures)
    text = (tmp_path / "a/report.md").read_text()
    assert text.startswith("# Accuracy\n\n**PASS** by P5.4: 7/12 (threshold 7)\n")
    assert "not GSM8K" in text


@pytest.mark.parametrize(
    ("binding", "says"),
    [
        pytest.param({}, "the very service that was measured", id="reuse"),
        pytest.param({"measured_identity_sha256": None}, "accuracy alone", id="alone"),
        pytest.param({"reuse_lost": "died"}, "not the service that was measured: died", id="lost"),
    ],
)
def test_the_report_says_which_service_it_was(tmp_path, binding, says):
    _, report = stored(tmp_path / "a", **binding)

    assert any(says in note for note in report.notes)


def test_an_invalid_run_is_reported_as_such(tmp_path):
    figures, report = stored(tmp_path / "a", {4: b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"})

    assert "INCONCLUSIVE" == figures.verdict.verdict
    assert (tmp_path / "a/report.md").read_text().startswith("# Accuracy\n\n**INCONCLUSIVE**")
    (failed,) = (tmp_path / "a/aisbench").glob("*/predictions/*/gsm8k_failed.jsonl")
    assert 4 == json.loads(failed.read_text())["id"]
    assert not any(i.question == 4 for items in report.causes.values() for i in items)


def test_disputed_questions_are_those_of_the_frozen_split_only(tmp_path):
    _, report = stored(tmp_path / "a")

    assert () == report.disputed
    assert 119 in gsm8k.select(1319, 300)
    assert 454 not in gsm8k.select(1319, 300)
