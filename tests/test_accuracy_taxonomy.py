"""Why an answer was lost, or lucky: one cause for each wrong answer (P5.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance import gsm8k
from acceptance.accuracy import taxonomy
from acceptance.accuracy.taxonomy import Reply


def reply(content, gold="18", reasoning="so", is_truncated=False):
    stored = gsm8k.stored_prediction(reasoning, content)
    scored = gsm8k.score(stored, f"#### {gold}", stage="chat_pipeline")
    return Reply(
        reasoning=reasoning,
        content=content,
        gold=gold,
        correct=bool(scored.correct),
        is_truncated=is_truncated,
    )


@pytest.mark.rule("P5.5")
@pytest.mark.parametrize(
    ("made", "cause"),
    [
        pytest.param(reply("answer:18"), None, id="right"),
        pytest.param(reply("answer:17"), "arithmetic", id="wrong-number"),
        pytest.param(reply("", reasoning="5", is_truncated=True), "truncation", id="truncated"),
        pytest.param(reply("answer:1,430", "1430", is_truncated=True), "truncation", id="first"),
        pytest.param(reply(" \n", reasoning="5"), "empty", id="no-content"),
        pytest.param(reply("answer:1,430", "1430"), "comma", id="comma"),
        pytest.param(reply(r"\boxed{9{,}500}", "9500"), "comma", id="latex-comma"),
        pytest.param(reply("answer:1 450 000", "1450000"), "comma", id="spaces"),
        pytest.param(reply("answer:1,431", "1430"), "arithmetic", id="comma-and-wrong"),
        pytest.param(reply("answer:eighteen"), "extraction", id="no-number"),
        pytest.param(reply("answer:18 (in 2 hours)"), "extraction", id="another-number-taken"),
        pytest.param(reply("Question: 5?\nanswer:18"), "extraction", id="cut-off"),
        pytest.param(reply("answer:17 in 2 hours"), "arithmetic", id="wrong-on-its-line"),
    ],
)
def test_a_wrong_answer_has_one_cause(made, cause):
    assert cause == taxonomy.cause(made)


@pytest.mark.rule("P5.5")
@pytest.mark.parametrize(
    ("made", "lucks"),
    [
        pytest.param(reply("answer:18"), (), id="honest"),
        pytest.param(reply("answer:17"), (), id="wrong-is-not-lucky"),
        pytest.param(
            reply("", reasoning="2*9=18", is_truncated=True),
            ("truncated", "reasoning-only"),
            id="truncated-thought",
        ),
        pytest.param(reply("so it is 18", is_truncated=True), ("truncated",), id="cut-content"),
        pytest.param(reply("answer:5,018"), ("comma",), id="comma-made-it-right"),
        pytest.param(reply("4,000 less 3,982 is 18"), (), id="commas-elsewhere"),
    ],
)
def test_a_right_answer_may_be_lucky(made, lucks):
    assert lucks == taxonomy.lucks(made)


@pytest.mark.parametrize(
    ("content", "read"),
    [
        pytest.param("answer:18 in 2 hours", "18", id="first-on-its-line"),
        pytest.param("answer:5\nno: Answer: 1,430 eggs\n7 left", "1430", id="last-line"),
        pytest.param("it is 18", None, id="no-line"),
        pytest.param("answer: many", None, id="no-number"),
    ],
)
def test_the_second_scorer_is_anchored(content, read):
    assert read == taxonomy.anchored(content)


def test_content_alone_may_score_otherwise():
    assert reply("", reasoning="18").correct
    assert not taxonomy.content_is_correct("", "18")


@given(
    content=st.text(alphabet="answer:Q 0123456789.,\n\ud800") | st.text(),
    reasoning=st.text(max_size=5),
    gold=st.integers(-5, 20000).map(str),
    is_truncated=st.booleans(),
)
def test_causes_are_total_and_add_up_to_the_errors(content, reasoning, gold, is_truncated):
    made = reply(content, gold, reasoning, is_truncated)

    assert (taxonomy.cause(made) is None) is made.correct
    assert made.correct or taxonomy.cause(made) in taxonomy.CAUSES
    assert made.correct or taxonomy.lucks(made) == ()
