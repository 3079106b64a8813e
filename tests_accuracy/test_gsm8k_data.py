"""The real GSM8K: data, subset and wire prompts to the byte (P5.2)."""

import pytest

from acceptance import gsm8k
from acceptance.accuracy import dataset
from acceptance.accuracy.plan import check_profile, freeze
from acceptance.accuracy.records import AccuracyProfile
from acceptance.canonical import sha256
from acceptance.errors import UsageError
from acceptance.outcomes import not_run

pytestmark = pytest.mark.accuracy


@pytest.fixture(scope="module")
def questions():
    """The frozen 300, or NOT_RUN with how to get them."""
    try:
        return dataset.load_gsm8k()
    except UsageError as error:
        not_run(str(error))


def profile():
    return AccuracyProfile(
        questions="gsm8k",
        questions_sha256=gsm8k.SUBSET_SHA256,
        count=300,
        threshold=292,
        concurrency=32,
        max_tokens=4096,
        timeout_s=1800,
        template=gsm8k.TEMPLATE,
        evaluator="released",
        needs_reasoning=True,
        generation_kwargs={
            "chat_template_kwargs": {
                "thinking_mode": "thinking",
                "enable_thinking": True,
                "reasoning_effort": "low",
            },
            "temperature": 0,
            "top_p": 1,
            "seed": 0,
        },
    )


@pytest.mark.rule("P5.2")
def test_the_subset_is_the_frozen_one(questions):
    assert gsm8k.SUBSET_SHA256 == sha256(questions.lines)
    assert gsm8k.select(1319, 300) == questions.indices()
    assert 300 == len({item.question for item in questions.questions})


@pytest.mark.rule("P5.2")
def test_the_prompts_are_the_frozen_ones(questions):
    prompts = questions.prompts(gsm8k.TEMPLATE)

    assert gsm8k.PROMPTS_SHA256 == gsm8k.prompts_sha256(prompts)
    assert 16 == sum(not item.question.isascii() for item in questions.questions)


@pytest.mark.rule("P5.2")
def test_33_golds_can_be_lost_to_a_comma(questions):
    golds = [int(gsm8k.extract_gold(item.answer)) for item in questions.questions]
    with_comma = [
        gsm8k.score(f"answer:{gold:,}", f"#### {gold}").correct for gold in golds if gold >= 1000
    ]

    assert [False] * 33 == with_comma


@pytest.mark.rule("P5.2")
def test_gold_answers_score_300_of_300(questions):
    assert 300 == sum(
        bool(gsm8k.score(f"answer:{gsm8k.extract_gold(q.answer)}", q.answer).correct)
        for q in questions.questions
    )


@pytest.mark.rule("P5.3")
def test_wire_bodies_are_frozen_and_in_order(questions):
    check_profile(profile(), "test")
    plan = freeze(profile(), questions, model="dsv41-0day", encoding=())

    assert 300 == len(set(plan.wire))
    assert plan.wire[0].startswith(
        b'{"stream": true, "messages": [{"content": "Answer the following question.The last line'
    )
    assert plan.wire[0].endswith(
        b'"chat_template_kwargs": {"thinking_mode": "thinking", "enable_thinking": true, '
        b'"reasoning_effort": "low"}, "temperature": 0, "top_p": 1, "seed": 0, '
        b'"max_tokens": 4096, "model": "dsv41-0day"}'
    )


@pytest.mark.rule("P5.2")
def test_one_changed_byte_of_the_split_is_refused(questions):
    edited = questions.lines.replace(b"robe", b"rope", 1)

    with pytest.raises(UsageError, match=f"frozen is {gsm8k.TEST_SHA256}"):
        dataset.subset(edited, "edited")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("threshold", 291, id="threshold"),
        pytest.param("template", "Q: {question}", id="template"),
        pytest.param("questions_sha256", "0" * 64, id="questions"),
    ],
)
@pytest.mark.rule("P5.4")
def test_a_profile_cannot_move_what_is_frozen(name, value):
    import msgspec

    with pytest.raises(UsageError, match=f"{name} is frozen for gsm8k"):
        check_profile(msgspec.structs.replace(profile(), **{name: value}), "test")
