"""Files that AISBench really wrote: read, counted, and written again alike (P5.5)."""

import json
from pathlib import Path

import pytest

from acceptance import gsm8k
from acceptance.accuracy import aisbench
from acceptance.accuracy.chat import body_bytes, chat_body
from acceptance.outcomes import not_run

pytestmark = pytest.mark.accuracy

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def samples():
    """A folder with AISBench's own files, or NOT_RUN."""
    for place in (ROOT.parent, ROOT.parent.parent):
        if (place / "shared/data/aisbench/results__gsm8k.json").is_file():
            return place / "shared/data/aisbench"
    not_run(
        "no shared/data/aisbench beside the repository: keep the files of an AISBench run there"
    )


def test_its_results_are_read_and_counted(samples):
    details = aisbench.read_results(samples / "results__gsm8k.json")

    assert (300, 297) == (len(details), sum(item.correct for item in details))
    assert "99.00" == aisbench.read_summary(samples / "summary.csv")


def test_our_scorer_counts_its_predictions_as_it_did(samples):
    details = aisbench.read_results(samples / "results__gsm8k.json")
    predictions = aisbench.read_predictions(samples / "predictions__gsm8k.jsonl")

    for item in details:
        text = predictions.get(item.id, "")
        found = gsm8k.score(text, f"#### {item.reference}", stage="chat_pipeline")

        assert (item.pred, item.correct) == (found.extracted_pred, found.correct)


def test_its_request_body_is_ours(samples):
    theirs = json.loads((samples / "request_stream.json").read_text())["body"]
    kwargs = {name: theirs[name] for name in ("chat_template_kwargs", "seed", "temperature")}

    ours = chat_body(
        model="fake-model",
        prompt=theirs["messages"][0]["content"],
        max_tokens=4096,
        generation_kwargs=kwargs,
    )

    # Same keys in the same order, so the same bytes.
    assert json.dumps(theirs).encode() == body_bytes(ours)


def test_our_files_have_its_shape(samples, tmp_path):
    theirs = json.loads((samples / "results__gsm8k.json").read_text())
    rows = {
        row["id"]: row
        for line in (samples / "predictions__gsm8k.jsonl").read_text().split("\n")
        if line
        for row in [json.loads(line)]
    }
    made = [
        aisbench.Prediction(
            id=number,
            origin_prompt=rows[number]["origin_prompt"][0]["prompt"] if number in rows else "",
            prediction=rows[number]["prediction"] if number in rows else "",
            gold=rows[number]["gold"] if number in rows else f"#### {detail['references'][0]}",
            error=None if number in rows else "Internal Server Error",
        )
        for number, detail in ((int(key), item) for key, item in theirs["details"].items())
    ]

    root = aisbench.write_run(tmp_path, made, stamp="20261201_014342", run_id="r")

    ours = json.loads((root / "results/vllm-api-stream-chat/gsm8k.json").read_text())
    assert theirs["accuracy"] == ours["accuracy"]
    assert theirs["details"] == ours["details"]
