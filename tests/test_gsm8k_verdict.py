"""Selection, prompt bytes, and the verdict from integers (P5.2, P5.4)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance import gsm8k
from acceptance.canonical import sha256
from acceptance.gsm8k import Answer


def answers(correct, count=300):
    return [Answer(question=n, failed=(), correct=n < correct) for n in range(count)]


def judged(given_answers, threshold=292, count=300):
    return gsm8k.judge(given_answers, count=count, threshold=threshold)


@pytest.mark.rule("P5.2")
def test_the_selection_is_the_frozen_one():
    indices = gsm8k.select(1319, 300)

    assert (1, 4, 6, 13, 14, 19, 23, 30, 39, 43) == indices[:10]
    assert (1285, 1287, 1292, 1300, 1301, 1308, 1309, 1310, 1312, 1316) == indices[-10:]
    assert 192559 == sum(indices)
    compact = json.dumps(indices, separators=(",", ":")).encode()
    assert gsm8k.INDICES_SHA256 == sha256(compact)


def test_another_seed_selects_others():
    assert gsm8k.select(1319, 300) != gsm8k.select(1319, 300, seed=300)


def test_a_whole_set_is_selected_in_its_own_order():
    assert tuple(range(12)) == gsm8k.select(12, 12)


@pytest.mark.rule("P5.2")
def test_the_template_is_the_frozen_one_to_the_byte():
    assert gsm8k.TEMPLATE_SHA256 == sha256(gsm8k.TEMPLATE.encode())


def test_a_prompt_keeps_braces_and_non_ascii_of_its_question():
    prompt = gsm8k.render("Q: {question}", "{0} costs 2 \u20ac, {question}")

    assert "Q: {0} costs 2 \u20ac, {question}" == prompt


def test_prompts_are_hashed_apart():
    # "ab"+"c" and "a"+"bc" are other prompts: the NUL after each keeps them apart.
    assert gsm8k.prompts_sha256(["ab", "c"]) != gsm8k.prompts_sha256(["a", "bc"])
    assert sha256(b"ab\0c\0") == gsm8k.prompts_sha256(["ab", "c"])


@pytest.mark.rule("P5.4")
@pytest.mark.parametrize(
    ("correct", "verdict"),
    [
        pytest.param(0, "FAIL", id="none"),
        pytest.param(291, "FAIL", id="one-less"),
        pytest.param(292, "PASS", id="exactly"),
        pytest.param(293, "PASS", id="one-more"),
        pytest.param(300, "PASS", id="all"),
    ],
)
def test_292_of_300_pass(correct, verdict):
    found = judged(answers(correct))

    assert (verdict, "P5.4", f"{correct}/300 (threshold 292)") == (
        found.verdict,
        found.rule,
        found.reason,
    )


@pytest.mark.rule("P5.4")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda a: a[:-1], "1 of 300 questions missing: 299", id="missing"),
        pytest.param(lambda a: [*a, a[7]], "asked more than once: 7", id="doubled"),
        pytest.param(lambda a: [*a[:9], a[8], *a[10:]], "missing: 9; 1 questions", id="replaced"),
        pytest.param(lambda a: [a[1], a[0], *a[2:]], "not in the frozen order", id="swapped"),
        pytest.param(lambda a: a[::-1], "not in the frozen order", id="reversed"),
        pytest.param(
            lambda a: [*a, Answer(question=300, failed=(), correct=True)],
            "not in the set: 300",
            id="foreign",
        ),
        pytest.param(
            lambda a: [Answer(question=0, failed=("no-done",), correct=False), *a[1:]],
            "1 of 300 requests failed: 0 (no-done)",
            id="failed-request",
        ),
        pytest.param(lambda a: [], "300 of 300 questions missing", id="empty"),
    ],
)
def test_an_invalid_run_is_inconclusive_however_many_are_right(change, says):
    found = judged(change(answers(300)))

    assert ("INCONCLUSIVE", "P5.4") == (found.verdict, found.rule)
    assert says in found.reason


@given(
    numbers=st.lists(st.integers(-2, 14), max_size=16),
    failed=st.sets(st.integers(0, 15)),
)
def test_only_the_whole_set_in_order_without_failures_is_judged(numbers, failed):
    made = [
        Answer(question=n, failed=("early-eof",) if i in failed else (), correct=True)
        for i, n in enumerate(numbers)
    ]
    is_valid = numbers == list(range(12)) and not failed & set(range(12))

    found = gsm8k.judge(made, count=12, threshold=12)

    assert ("PASS" if is_valid else "INCONCLUSIVE") == found.verdict


@given(marks=st.lists(st.booleans(), min_size=20, max_size=20), threshold=st.integers(1, 20))
def test_one_more_right_answer_never_makes_it_worse(marks, threshold):
    def verdict(which):
        made = [Answer(question=n, failed=(), correct=c) for n, c in enumerate(which)]
        return judged(made, threshold=threshold, count=20).verdict

    better = [True, *marks[1:]]

    assert not (verdict(marks) == "PASS" and verdict(better) == "FAIL")
    assert ("PASS" if sum(marks) >= threshold else "FAIL") == verdict(marks)
