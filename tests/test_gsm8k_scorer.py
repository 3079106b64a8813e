"""The native score, by hand-worked answers: AISBench's rules with all their faults (P5.2)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acceptance import gsm8k
from acceptance.gsm8k import Evaluator

SOLUTION = "2 cups a day for 9 days: <<2*9=18>>18.\n#### "

# (id, prediction, gold, extracted by the released version, right?, by PR360, right?)
NATIVE = [
    ("requested-format", "answer:18", "18", "18", True, "18", True),
    ("full-stop", "Answer: 18.", "18", "18", True, "18", True),
    ("last-number-wins", "answer:18 in 2 steps", "18", "2", False, "2", False),
    ("wrong-chain-right-end", "7 8 9 and so 18", "18", "18", True, "18", True),
    ("thousands-comma", "answer:1,430", "1430", "430", False, "1430", True),
    ("comma-in-gold", "answer:1430", "1,430", "1430", True, "1430", True),
    ("comma-lucky", "answer:5,018", "18", "018", True, "5018", False),
    ("comma-list", "3,18", "18", "18", True, "318", False),
    ("latex-comma", r"\boxed{9{,}500}", "9500", "500", False, "500", False),
    ("spaces", "answer:1 450", "1450", "450", False, "450", False),
    ("cents", "answer:$18.00.", "18", "18.00", True, "18.00", True),
    ("no-rounding", "answer:17.6", "18", "17.6", False, "17.6", False),
    ("just-inside", "18.0000009", "18", "18.0000009", True, "18.0000009", True),
    ("just-outside", "18.000001", "18", "18.000001", False, "18.000001", False),
    ("no-leading-digit", "answer:.18", "18", "18", True, "18", True),
    ("scientific", "answer:1e3", "1000", "3", False, "3", False),
    ("negative", "answer:-10", "-10", "-10", True, "-10", True),
    ("minus-apart", "answer:- 10", "-10", "10", False, "10", False),
    ("minus-sign", "answer:\u221210", "-10", "10", False, "10", False),
    ("difference", "it is 30-18", "18", "-18", False, "-18", False),
    ("minus-zero", "answer:-0", "0", "-0", True, "-0", True),
    ("percent", "answer:18%", "18", "18", True, "18", True),
    ("fraction", "answer:36/2", "18", "2", False, "2", False),
    ("boxed", r"\boxed{18}", "18", "18", True, "18", True),
    ("superscript", "answer:18 m\u00b2", "18", "18", True, "18", True),
    ("full-width", "answer:\uff11\uff18", "18", "\uff11\uff18", True, "\uff11\uff18", True),
    ("words", "answer:eighteen", "18", "NULL", False, "NULL", False),
    ("nothing", "", "18", "NULL", False, "NULL", False),
    ("cut-at-question", "answer:18 Question: 5?", "18", "18", True, "18", True),
    ("restated-question", "Question: 5 eggs? answer:18", "18", "NULL", False, "NULL", False),
    ("lower-case-question", "question: 5 eggs? answer:18", "18", "18", True, "18", True),
    ("cut-comes-first", "Quest,ion: answer:18", "18", "18", True, "18", True),
    ("decimal-gold-same", "answer:18.5", "18.5", "18.5", True, "18.5", True),
    ("decimal-gold-else", "answer:18.50", "18.5", "18.50", False, "18.50", False),
    ("gold-with-space", "answer:18", " 18 ", "18", True, "18", True),
    ("gold-not-a-number", "answer:18", "many", "18", False, "18", False),
]


@pytest.mark.rule("P5.2")
@pytest.mark.parametrize(
    ("prediction", "gold", "pred", "correct", "pred_pr360", "correct_pr360"),
    [pytest.param(*case[1:], id=case[0]) for case in NATIVE],
)
def test_the_native_score(prediction, gold, pred, correct, pred_pr360, correct_pr360):
    released = gsm8k.score(prediction, SOLUTION + gold)
    pr360 = gsm8k.score(prediction, SOLUTION + gold, evaluator=Evaluator.PR360)

    assert (pred, correct, None) == (released.extracted_pred, released.correct, released.error)
    assert (pred_pr360, correct_pr360) == (pr360.extracted_pred, pr360.correct)


@pytest.mark.parametrize(
    ("prediction", "scored"),
    [
        pytest.param("5</think>answer:18", "answer:18", id="closing-tag-only"),
        pytest.param("a</think>5</think> x ", "x", id="last-closing-tag"),
        pytest.param("<think>5</think>\nanswer:18", "answer:18", id="pair"),
        pytest.param("<think>a</think>18</think>7", "18</think>7", id="pair-then-closing-tag"),
        pytest.param("18<think>9", "18<think>9", id="unclosed-stays"),
        pytest.param("1<think>a\nb</think>2<think>c</think>3", "123", id="pairs-across-lines"),
        pytest.param("  18  ", "18", id="no-tag-is-stripped-too"),
        pytest.param("5</think>", "", id="nothing-after"),
    ],
)
def test_reasoning_is_removed_before_the_chat_score(prediction, scored):
    assert scored == gsm8k.strip_reasoning(prediction)


@pytest.mark.parametrize(
    ("reasoning", "content", "stored"),
    [
        pytest.param("so 5", "answer:18", "so 5</think>answer:18", id="both"),
        pytest.param("so 5", "", "so 5", id="bare-reasoning-without-a-tag"),
        pytest.param("", "answer:18", "answer:18", id="content-only"),
        pytest.param("", "", "", id="neither"),
    ],
)
def test_what_is_stored_of_a_reply(reasoning, content, stored):
    assert stored == gsm8k.stored_prediction(reasoning, content)


def test_a_truncated_thought_is_scored_by_its_last_number():
    stored = gsm8k.stored_prediction("2*9 is 18", "")

    assert gsm8k.score(stored, SOLUTION + "18", stage="chat_pipeline").correct is True


@pytest.mark.parametrize(
    ("gold_raw", "error"),
    [
        pytest.param("18", "IndexError", id="no-marker"),
        pytest.param("####18", "IndexError", id="no-space"),
        pytest.param("#### " + "9" * 400, "OverflowError", id="no-float-holds-it"),
    ],
)
def test_where_the_evaluator_raises_the_score_says_so(gold_raw, error):
    scored = gsm8k.score("answer:18", gold_raw)

    assert ("18", None, error) == (scored.extracted_pred, scored.correct, scored.error)


def test_gold_ends_at_a_second_marker():
    assert "18" == gsm8k.extract_gold("#### 18#### 19")


def test_a_gold_too_long_for_an_integer_is_wrong_but_no_crash():
    assert gsm8k.score("answer:18", "#### " + "9" * 5000).correct is False


@given(prediction=st.text(), gold=st.text(), stage=st.sampled_from(["native", "chat_pipeline"]))
@example(prediction="9" * 5000, gold="#### 1_0", stage="native")
@example(prediction="\ud800 5", gold="#### \u0665", stage="native")
def test_the_score_is_total(prediction, gold, stage):
    for evaluator in Evaluator:
        scored = gsm8k.score(prediction, gold, stage=stage, evaluator=evaluator)

        assert (scored.correct is None) is (scored.error is not None)


@given(value=st.integers(-(10**9), 10**9), before=st.text(alphabet="abc 12.\n"))
def test_a_plain_integer_on_the_last_line_is_always_read(value, before):
    scored = gsm8k.score(f"{before}\nanswer:{value}", f"#### {value:,}")

    assert (str(value), True) == (scored.extracted_pred, scored.correct)


@given(value=st.integers(0, 10**9), off=st.integers(1, 1000))
def test_another_integer_is_always_wrong(value, off):
    assert gsm8k.score(f"answer:{value + off}", f"#### {value}").correct is False


@given(text=st.text(alphabet="Question: 0123456789.-,x"))
def test_the_versions_differ_only_by_commas(text):
    without = text.replace(",", "")

    assert gsm8k.extract_prediction(without) == gsm8k.extract_prediction(without, Evaluator.PR360)


@pytest.mark.parametrize(
    ("name", "evaluator"),
    [
        pytest.param("released", Evaluator.RELEASED, id="name"),
        pytest.param("PR360", Evaluator.PR360, id="upper-case"),
        pytest.param("1e44190dfd", Evaluator.RELEASED, id="short-blob"),
        pytest.param(Evaluator.PR360.value, Evaluator.PR360, id="blob"),
    ],
)
def test_an_evaluator_is_named_by_name_or_blob(name, evaluator):
    assert evaluator is gsm8k.find_evaluator(name)


@pytest.mark.parametrize("name", ["", "1e4419", "638c905", "latest"])
def test_an_unknown_evaluator_is_refused(name):
    with pytest.raises(KeyError):
        gsm8k.find_evaluator(name)
