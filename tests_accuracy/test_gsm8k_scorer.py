"""The scorer against vectors made by running AISBench's own functions (P5.2)."""

import json
from pathlib import Path

import pytest

from acceptance import gsm8k
from acceptance.outcomes import not_run

pytestmark = pytest.mark.accuracy

ROOT = Path(__file__).resolve().parent.parent
PLACES = tuple(
    place / "shared/data/gsm8k/evaluator_vectors.jsonl"
    for place in (ROOT.parent, *ROOT.parents[1:2])
)


@pytest.fixture(scope="module")
def vectors():
    """The recorded vectors, or NOT_RUN with how to get them."""
    for path in PLACES:
        if path.is_file():
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    not_run(
        f"{PLACES[0]} is not there: record it with bench/aisbench_differential.py, which needs "
        "ais_bench_benchmark in an environment of its own"
    )


@pytest.mark.rule("P5.2")
def test_the_released_evaluator_is_reproduced_on_every_vector(vectors):
    wrong = []
    for vector in vectors:
        found = gsm8k.score(vector["prediction"], vector["gold_raw"], stage=vector["stage"])
        wanted = (
            vector["extracted_pred"],
            vector["extracted_gold"],
            vector["correct"],
            vector.get("error"),
        )
        if wanted != (found.extracted_pred, found.extracted_gold, found.correct, found.error):
            wrong.append((vector["id"], wanted, found))

    assert [] == wrong
    assert 105 == len(vectors)


@pytest.mark.rule("P5.2")
def test_the_unmerged_variant_is_reproduced_on_every_vector(vectors):
    wrong = []
    for vector in vectors:
        found = gsm8k.score(
            vector["prediction"],
            vector["gold_raw"],
            stage=vector["stage"],
            evaluator=gsm8k.Evaluator.PR360,
        )
        wanted = (vector.get("extracted_pred_pr360"), vector.get("correct_pr360"))
        if vector.get("error") is None and wanted != (found.extracted_pred, found.correct):
            wrong.append((vector["id"], wanted, found))

    assert [] == wrong


def test_a_planted_fault_in_a_vector_would_be_seen(vectors):
    # Without this a comparison of nothing with nothing could pass: the vectors do distinguish.
    differ = [v["id"] for v in vectors if v.get("correct") != v.get("correct_pr360")]

    assert {True, False, None} == {vector["correct"] for vector in vectors}
    assert differ
