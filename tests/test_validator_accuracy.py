"""Accuracy from raw bytes: the native count, each planted fault in its own code, and agreement
with the live side, which shares no code with it (P5)."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import validator
from acceptance import gsm8k
from acceptance.accuracy.chat import parse_reply
from acceptance.testing import answers
from acceptance.testing.answers import Reply
from tests.strategies import questions, runs, streams
from tests.strategies.places import fast_directory
from validator.chat import read_reply
from validator.recomputation import recompute_all
from validator.scorer import EVALUATORS, score

SHARED = Path(__file__).resolve().parent.parent.parent / "shared/data/gsm8k"


@pytest.fixture
def place():
    with fast_directory() as path:
        yield path


def scope_of(figures):
    return next(one for one in figures["scopes"] if one["scope"] == "accuracy")


def live_of(run_dir):
    return json.loads((run_dir / "results/accuracy/figures.json").read_bytes())


def without_reason(figures):
    return {**figures, "verdict": {**figures["verdict"], "reason": ""}}


@pytest.mark.parametrize(
    ("wrong", "verdict", "correct"),
    [((), "PASS", 12), ((3,), "PASS", 11), ((3, 9), "FAIL", 10)],
    ids=["all-right", "at-the-threshold", "one-below"],
)
def test_the_count_decides_and_is_the_live_one(place, wrong, verdict, correct):
    run_dir = questions.run_with_answers(place, questions.wrong_at(*wrong))

    found = recompute_all(run_dir)

    assert (verdict, "P5.4", correct) == (
        scope_of(found.figures)["verdict"],
        scope_of(found.figures)["rule"],
        found.accuracy["correct"],
    )
    assert verdict == found.figures["verdict"]
    assert without_reason(live_of(run_dir)) == without_reason(found.accuracy)


def test_an_archive_with_answers_verifies_and_a_changed_answer_is_found(place):
    run_dir = runs.seal(questions.run_with_answers(place))
    before = validator.verify(run_dir)
    raw = run_dir / "results/accuracy/question-03.raw"
    raw.write_bytes(raw.read_bytes().replace(b"answer:", b"answer;"))
    runs.reseal(run_dir)

    after = validator.verify(run_dir)

    assert 0 == before.status, before.lines
    assert 1 == after.status
    assert "results/accuracy/figures.json: items[3].prediction_sha256" in after.lines[0]


def events(*values):
    return answers.response(f"data: {one}\n\n".encode() for one in values)


GOOD = [*map(json.dumps, answers.frames(Reply(content="answer:210"), "chatcmpl-5")), "[DONE]"]


def spoil(at, **changes):
    values = [json.loads(one) if one != "[DONE]" else one for one in GOOD]
    values[at] = {**values[at], **changes}
    return events(*(one if one == "[DONE]" else json.dumps(one) for one in values))


BYTES = {
    "http-503": (b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n", {
        "http-status", "no-done", "response-id", "finish-reason", "usage-missing"}),
    "cut": (events(*GOOD)[:-5], {"early-eof"}),
    "no-done": (events(*GOOD[:-1]), {"no-done"}),
    "after-done": (events(*GOOD, "{}"), {"after-done"}),
    "not-json": (events("{", *GOOD), {"sse-malformed"}),
    "error": (events(GOOD[0], '{"error":{"message":"x"}}', "[DONE]"), {
        "error-frame", "finish-reason", "usage-missing"}),
    "two-ids": (spoil(1, id="chatcmpl-x"), {"response-id"}),
    "no-usage": (events(*GOOD[:-2], "[DONE]"), {"usage-missing"}),
    "usage-over-the-cap": (spoil(-2, usage={
        "prompt_tokens": 9, "completion_tokens": 65, "total_tokens": 74}), {"usage-mismatch"}),
    "usage-that-does-not-add-up": (spoil(-2, usage={
        "prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 22}), {"usage-mismatch"}),
    "two-choices": (spoil(1, choices=[{"index": 0, "delta": {}}] * 2), {"choice"}),
    "no-choices": (spoil(1, choices=None), {"sse-malformed"}),
    "text-after-the-end": (events(*GOOD[:-2], GOOD[2], *GOOD[-2:]), {"finish-reason"}),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "codes"), BYTES.values(), ids=BYTES)
def test_one_bad_reply_makes_the_run_inconclusive_with_its_code(place, raw, codes):
    run_dir = questions.run_with_answers(place, lambda n: raw if n == 5 else questions.right(n))

    found = recompute_all(run_dir)

    assert codes == set(found.accuracy["items"][5]["failed"])
    assert ("INCONCLUSIVE", "P5.4") == (
        scope_of(found.figures)["verdict"],
        scope_of(found.figures)["rule"],
    )
    assert without_reason(live_of(run_dir)) == without_reason(found.accuracy)


def replaced(at, **changes):
    def change(records):
        records[at] = msgspec.structs.replace(records[at], **changes)
        return records

    return change


CHANGED = {
    "missing": lambda records: records[:5] + records[6:],
    "doubled": lambda records: [*records, records[5]],
    "swapped": lambda records: [*records[:4], records[5], records[4], *records[6:]],
    "another-questions-answer": replaced(5, raw="question-04.raw", reads="question-04.reads"),
    "another-prompt": replaced(5, prompt_sha256="0" * 64),
    "renumbered": replaced(5, prompt_index=4, slot=4),
    "timed-out": replaced(5, outcome="timeout"),
    "no-file": replaced(5, raw="other.raw"),
    "another-rank": replaced(5, rank=1),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_change_of_what_was_asked_is_found(place, change):
    run_dir = questions.run_with_answers(place, change=change)

    found = recompute_all(run_dir)

    assert "INCONCLUSIVE" == scope_of(found.figures)["verdict"]


def test_two_questions_share_neither_a_file_nor_a_response(place):
    change = replaced(5, raw="question-04.raw", reads="question-04.reads")
    run_dir = questions.run_with_answers(place, change=change)

    items = recompute_all(run_dir).accuracy["items"]

    assert [["file-shared", "response-id"]] * 2 == [items[n]["failed"] for n in (4, 5)]
    assert without_reason(live_of(run_dir)) == without_reason(recompute_all(run_dir).accuracy)


DRAINED = b"vllm:num_requests_running 1.0\nvllm:num_requests_waiting 0.0\n"
EDGES = {
    "changed-service": ({"edges": {"after": {"identity_sha256": "1" * 64}}}, "P5.6"),
    "in-flight-after": ({"edges": {"after": {"running": 1}}}, "P5.6"),
    "in-flight-by-its-own-counters": ({"metrics": DRAINED}, "P5.6"),
    "counters-that-do-not-tell": ({"metrics": b""}, "P5.6"),
    "asked-too-early": ({"origin_ns": "1000"}, "P5.6"),
    "another-service": ({"binding": {"service_id": "cc" * 8}}, "P5.1"),
    "broken-off": ({"aborted": "made up"}, "P5.4"),
    "silent": ({"reply": lambda n: Reply(reasoning="", content="answer:7")}, "P5.3"),
}


@pytest.mark.parametrize(("options", "rule"), EDGES.values(), ids=EDGES)
def test_what_was_not_proved_of_the_service_makes_it_inconclusive(place, options, rule):
    run_dir = questions.run_with_answers(place, **options)

    scope = scope_of(validator.recompute(run_dir))

    assert ("INCONCLUSIVE", rule) == (scope["verdict"], scope["rule"])


def test_another_performance_record_is_found(place):
    run_dir = questions.run_with_answers(place, binding={"performance_sha256": "0" * 64})
    (run_dir / "results/performance.json").write_bytes(b"{}")

    scope = scope_of(validator.recompute(run_dir))

    assert ("INCONCLUSIVE", "P5.6") == (scope["verdict"], scope["rule"])


def test_answers_do_not_count_without_a_performance_pass(place):
    run_dir = questions.run_with_answers(place)
    path = run_dir / "results/B2/C1/attempt-1/metrics-2.txt"
    text = path.read_text()
    path.write_text(re.sub(r"(preemptions_total\S+) 0", r"\1 1", text))

    figures = validator.recompute(run_dir)

    assert ("NOT_RUN", "P4.3") == (scope_of(figures)["verdict"], scope_of(figures)["rule"])


def test_questions_that_were_planned_and_not_asked_are_not_run(place):
    draft = runs.run_draft(levels=("C1",))
    draft.runspec["profile"]["scopes"]["accuracy"] = "planned"

    figures = validator.recompute(runs.write(draft, place))

    assert ("NOT_RUN", "NOT_RUN") == (scope_of(figures)["verdict"], figures["verdict"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("threshold", 10), ("count", 11), ("model", "other"), ("template", "{question}"),
     ("generation_kwargs_json", '{"temperature": 1}'), ("evaluator", "0" * 40), ("schema", 2)],
)  # fmt: skip
def test_a_spec_that_does_not_fit_its_hashes_is_refused_or_counts_as_another(place, key, value):
    run_dir = questions.run_with_answers(place)
    path = run_dir / "plan/accuracy/spec.json"
    path.write_bytes(runs.canonical({**json.loads(path.read_bytes()), key: value}))

    try:
        scope = scope_of(validator.recompute(run_dir))
    except validator.Refused as error:
        scope = {"verdict": "INCONCLUSIVE", "rule": "P5.2", "reason": str(error)}

    assert ("INCONCLUSIVE", "P5.2") == (scope["verdict"], scope["rule"])


def test_gsm8k_can_not_be_asked_with_another_threshold(place):
    run_dir = questions.run_with_answers(place)
    path = run_dir / "plan/accuracy/spec.json"
    source = "openai/grade-school-math@3101c7d5072418e28b9008a6636bde82a006892c test"
    path.write_bytes(runs.canonical({**json.loads(path.read_bytes()), "source": source}))

    with pytest.raises(validator.Refused, match="not the frozen questions"):
        validator.recompute(run_dir)


PIECES = [
    *"0123456789.,-# \n",
    "Question:",
    "<think>",
    "</think>",
    "#### ",
    "answer:",
    "e5",
    "½",
    "٣",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, gold=TEXTS, is_chat=st.booleans(), which=st.integers(0, 1), marked=st.booleans())
def test_two_scorers_say_the_same(text, gold, is_chat, which, marked):
    answer = f"so #### {gold}" if marked else gold

    mine = score(text, answer, EVALUATORS[which], is_chat=is_chat)
    live = gsm8k.score(
        text,
        answer,
        stage="chat_pipeline" if is_chat else "native",
        evaluator=gsm8k.find_evaluator(EVALUATORS[which]),
    )

    assert (live.extracted_pred, live.extracted_gold, bool(live.correct), live.error) == (
        mine.pred,
        mine.gold,
        mine.correct,
        mine.error,
    )


SCORES = {
    "thousands-are-lost": ("answer:1,430", "1430", False, "430"),
    "and-sometimes-found": ("answer:5,018", "18", True, "018"),
    "trailing-dot": ("answer:18.", "18", True, "18"),
    "decimals": ("answer:18.00", "18", True, "18.00"),
    "minus-glued": ("30-18", "18", False, "-18"),
    "units-win": ("18 m2", "18", False, "2"),
    "no-number": ("eighteen", "18", False, "NULL"),
    "restated-question": ("18 Question: 5", "18", True, "18"),
    "within-a-millionth": ("18.0000009", "18", True, "18.0000009"),
    "at-a-millionth": ("18.000001", "18", False, "18.000001"),
    "thought-only": ("<think>18</think>", "18", False, "NULL"),
    "open-thought": ("<think>18", "18", True, "18"),
    "last-closing-tag": ("5</think>6</think>7", "7", True, "7"),
}


@pytest.mark.parametrize(("text", "gold", "correct", "pred"), SCORES.values(), ids=SCORES)
def test_the_native_count_with_its_faults(text, gold, correct, pred):
    found = score(text, f"worked #### {gold}", EVALUATORS[0], is_chat=True)

    assert (correct, pred) == (found.correct, found.pred)


def test_the_vectors_of_the_evaluator_itself():
    path = SHARED / "evaluator_vectors.jsonl"
    if not path.is_file():
        pytest.skip("no evaluator_vectors.jsonl beside the repository: make it with AISBench")
    for line in path.read_text().splitlines():
        vector = json.loads(line)
        for evaluator, name in zip(EVALUATORS, ("", "_pr360"), strict=True):
            found = score(
                vector["prediction"],
                vector["gold_raw"],
                evaluator,
                is_chat=vector["stage"] == "chat_pipeline",
            )

            if f"extracted_pred{name}" not in vector:
                continue
            assert vector[f"extracted_pred{name}"] == found.pred, vector["id"]
            if vector.get("error") is None:
                assert vector[f"correct{name}"] == found.correct, vector["id"]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_two_readers_say_the_same_of_a_spoiled_reply(data):
    reply = Reply(
        reasoning=data.draw(st.text(max_size=9)),
        content=data.draw(st.text(max_size=9)),
        finish_reason=data.draw(st.sampled_from(["stop", "length", "tool"])),
        tokens=data.draw(st.integers(0, 9)),
    )
    try:
        raw = answers.stream(reply, "chatcmpl-1")
    except UnicodeEncodeError:
        return
    if data.draw(st.booleans()):
        raw = data.draw(streams.spoiled(raw))
    outcome = data.draw(st.sampled_from(["fin", "fin", "timeout"]))

    mine = read_reply(raw, outcome, 8)
    live = parse_reply(raw, outcome=outcome, max_tokens=8)

    assert (live.failed, live.id, live.reasoning, live.content) == (
        tuple(sorted(mine.faults)),
        mine.name,
        mine.reasoning,
        mine.content,
    )
    assert live.finish_reason == (mine.endings[0] if mine.endings else None)
    assert (live.prompt_tokens, live.completion_tokens) == (
        mine.count("prompt"),
        mine.count("completion"),
    )
