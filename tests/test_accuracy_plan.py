"""The `[accuracy]` table of a profile, and the plan that is frozen from it (P5.2)."""

from pathlib import Path

import msgspec
import pytest

from acceptance import gsm8k
from acceptance.accuracy import dataset
from acceptance.accuracy.plan import check_profile, freeze, load, read_plan, write_plan
from acceptance.accuracy.records import AccuracyProfile
from acceptance.errors import UsageError

GOOD = AccuracyProfile(
    questions="q.jsonl",
    questions_sha256="0" * 64,
    count=300,
    threshold=292,
    concurrency=32,
    max_tokens=256,
    timeout_s=60,
    template="{question}",
    evaluator="released",
    needs_reasoning=True,
    generation_kwargs={"temperature": 0, "chat_template_kwargs": {"enable_thinking": True}},
)


def test_a_good_table_is_taken():
    check_profile(GOOD, "p.toml")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"threshold": 301}, "threshold 301: must be between 1 and", id="too-high"),
        pytest.param({"threshold": 0}, "threshold 0", id="threshold-0"),
        pytest.param({"concurrency": 0}, "concurrency must be at least 1", id="concurrency"),
        pytest.param({"max_tokens": 0}, "max_tokens must be at least 1", id="tokens"),
        pytest.param({"template": "no place"}, "hold {question} once", id="template"),
        pytest.param({"generation_kwargs": {"stop": ["Question"]}}, "stop can't be set", id="stop"),
        pytest.param({"generation_kwargs": {"top_p": 1.0}}, "write 1, not 1.0", id="float"),
        pytest.param({"generation_kwargs": {"a": [{"b": 0.5}]}}, "no floats", id="deep-float"),
        pytest.param({"evaluator": "5a63d936"}, "not a name or git blob known", id="evaluator"),
        pytest.param({"questions": "gsm8k"}, "questions_sha256 is frozen", id="gsm8k-hash"),
        pytest.param(
            {"questions": "gsm8k", "questions_sha256": gsm8k.SUBSET_SHA256, "threshold": 291},
            "threshold is frozen for gsm8k",
            id="gsm8k-threshold",
        ),
    ],
)
def test_a_table_that_cannot_be_judged_is_refused(changes, says):
    with pytest.raises(UsageError) as caught:
        check_profile(msgspec.structs.replace(GOOD, **changes), "p.toml")

    assert str(caught.value).startswith("p.toml: accuracy.")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_question_file_is_found_from_the_root(tmp_path):
    with pytest.raises(UsageError, match=f"{tmp_path}/q.jsonl: No such file"):
        load(GOOD, tmp_path)


def a_plan():
    own = Path(__file__).parent / "data/gsm8k/questions.jsonl"
    questions = dataset.load_questions(own, dataset.sha256(own.read_bytes()), 12)
    profile = msgspec.structs.replace(
        GOOD,
        count=12,
        threshold=11,
        template="Q: {question}",
        generation_kwargs={"temperature": 0, "seed": 0},
    )
    return freeze(profile, questions, model="m", encoding=())


def test_a_plan_is_read_back_whole(tmp_path):
    plan = a_plan()
    hashes = write_plan(tmp_path, plan)

    assert plan == read_plan(tmp_path)
    for file in hashes:
        assert file.sha256 == dataset.sha256((tmp_path / file.path).read_bytes())


@pytest.mark.rule("P5.2")
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(b'\\"seed\\": 0', b'\\"seed\\": 1', "bodies: SHA-256", id="body"),
        pytest.param(b"Q: {question}", b"R: {question}", "template: SHA-256", id="template"),
        pytest.param(b'"schema":1', b'"schema":2', "schema 2 is not known", id="schema"),
        pytest.param(b'"count":12', b'"count":13', "count 13, but 12 indices", id="count"),
        pytest.param(b'"stage"', b'"stages"', "unknown field `stages`", id="key"),
    ],
)
def test_an_edited_spec_is_refused(tmp_path, old, new, says):
    write_plan(tmp_path, a_plan())
    path = tmp_path / "plan/accuracy/spec.json"
    path.write_bytes(path.read_bytes().replace(old, new, 1))

    with pytest.raises(UsageError, match=says):
        read_plan(tmp_path)
