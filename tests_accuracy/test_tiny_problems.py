"""The small model's questions: frozen bytes, right arithmetic, nothing shared with training."""

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from acceptance import gsm8k
from dsv41.tiny import data, problems, questions
from dsv41.tiny.tokenizer import CHAT_TEMPLATE, PHRASES, VOCAB_SIZE, build_tokenizer

pytestmark = pytest.mark.accuracy


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer()


@pytest.fixture(scope="module")
def trained_on() -> list[problems.Problem]:
    """What training draws, a sample of it."""
    random_ = random.Random("sample")
    drills = [problems.make_drill(random_) for _ in range(2000)]
    return [problems.make(random_, "train") for _ in range(6000)] + drills


def test_the_frozen_file_is_what_the_generator_makes():
    assert hashlib.sha256(questions.build()).hexdigest() == questions.SHA256
    assert len({q.question for q in questions.load()}) == questions.COUNT == 300


def test_a_changed_byte_of_the_frozen_file_is_refused(tmp_path):
    copy = tmp_path / "test300.jsonl"
    copy.write_bytes(questions.PATH.read_bytes().replace(b"apples", b"Apples", 1))
    with pytest.raises(ValueError, match="frozen is"):
        questions.load(copy)


def test_every_frozen_answer_is_worked_correctly():
    for question in questions.load():
        *work, last = question.answer.split("\n")
        results = [_result(step) for step in work]
        assert results[-1] == question.gold
        assert last == f"#### {question.gold}"
        scored = gsm8k.score(question.answer.replace("#### ", "answer:"), question.answer)
        assert scored.correct is True


def test_no_training_step_uses_a_number_pair_of_the_test(trained_on):
    pairs = {frozenset((a, b)) for problem in trained_on for a, _, b, _ in problem.steps}
    for question in questions.load():
        a, b, _ = _numbers(question.answer.split("\n")[0])
        assert frozenset((a, b)) not in pairs
    assert len(pairs) > 2500  # the sample is large enough to have met most pairs


def test_no_training_problem_has_a_phrasing_of_the_test(trained_on):
    phrasings = {problem.phrasing for problem in trained_on}
    tested = {problems.make(random.Random(i), "test").phrasing for i in range(300)}
    assert len(tested) > 50
    assert not tested & phrasings


def test_a_problem_of_the_other_split_does_not_belong():
    for i in range(50):
        problem = problems.make(random.Random(i), "test")
        assert not problems.belongs(problem, "train")


@given(st.integers(0, 10**6), st.sampled_from(["train", "test"]))
def test_every_step_of_every_problem_is_right(seed, split):
    problem = problems.make(random.Random(seed), split)
    assert all(_result(line) is not None for line in problem.work.split("\n"))
    assert all(1 <= number <= 99 for a, _, b, c in problem.steps for number in (a, b, c))


@given(st.text())
def test_any_text_encodes_and_comes_back(text):
    tokenizer = build_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_digits_are_single_tokens_and_words_whole_ones(tokenizer):
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    assert tokenizer.encode("12345").tokens == list("12345")
    known = [w for q in questions.load() for w in tokenizer.encode(" " + q.question).tokens]
    assert all(len(t) > 1 or not t.isalpha() for t in known if t != "Ġ")


def test_the_prompt_form_of_the_questions_is_the_frozen_one():
    assert gsm8k.render(gsm8k.TEMPLATE, "Q?") == PHRASES[0] + "Q?"


@pytest.mark.parametrize(
    ("options", "effort"),
    [
        pytest.param({}, None, id="thinking-off-by-default"),
        pytest.param({"thinking": True}, 75, id="thinking-on"),
        pytest.param({"enable_thinking": True, "reasoning_effort": "low"}, 50, id="effort-low"),
        pytest.param({"thinking": True, "reasoning_effort": "max"}, 100, id="effort-max"),
        pytest.param({"thinking": True, "reasoning_effort": 33}, 33, id="effort-number"),
        pytest.param({"thinking": True, "reasoning_effort": "none"}, None, id="effort-none"),
        pytest.param({"reasoning_effort": "max"}, None, id="effort-alone-changes-nothing"),
    ],
)
def test_thinking_and_effort_change_the_prompt_as_training_saw_it(options, effort):
    jinja2 = pytest.importorskip("jinja2", reason="the chat template needs jinja2")
    template = jinja2.Environment(autoescape=False).from_string(CHAT_TEMPLATE)
    made = template.render(
        messages=[{"role": "user", "content": PHRASES[0] + "Q?"}],
        add_generation_prompt=True,
        bos_token="<｜begin▁of▁sentence｜>",
        eos_token="<｜end▁of▁sentence｜>",
        **options,
    )
    assert made == data.prompt_text("Q?", effort)


def test_answers_are_short(tokenizer, trained_on):
    lengths = [len(data.encode(tokenizer, p).answer) for p in trained_on]
    assert max(lengths) <= data.ANSWER_TOKENS


def _numbers(step: str) -> tuple[int, int, int]:
    left, _, result = step.partition("=")
    a, b = (int(part) for part in left.replace("+", "-").split("-"))
    return a, b, int(result)


def _result(step: str) -> int | None:
    a, b, result = _numbers(step)
    return result if result == (a + b if "+" in step else a - b) else None
