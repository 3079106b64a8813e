"""AISBench's files: written in its shape, read item by item, never from a rounded figure."""

import json

import pytest

from acceptance.accuracy import aisbench
from acceptance.accuracy.aisbench import Prediction
from acceptance.errors import UsageError


def predictions(*texts, error_at=None):
    return [
        Prediction(
            id=number,
            origin_prompt=f"Question: {number} caf\u00e9?",
            prediction=text,
            gold=f"so\n#### {number}",
            error="outcome-reset" if number == error_at else None,
        )
        for number, text in enumerate(texts)
    ]


def write(folder, items):
    return aisbench.write_run(folder, items, stamp="20261201_000000", run_id="r")


def test_a_run_is_written_in_its_shape(tmp_path):
    root = write(tmp_path, predictions("0", "so 7</think>answer:1", "3"))

    model = "vllm-api-stream-chat"
    row = json.loads((root / f"predictions/{model}/gsm8k.jsonl").read_text().splitlines()[1])
    assert row["uuid"] == row["uuid"].lower()
    assert (32, 1, True) == (len(row.pop("uuid")), row.pop("id"), row.pop("success"))
    assert {
        "data_abbr": "gsm8k",
        "origin_prompt": [{"role": "HUMAN", "prompt": "Question: 1 caf\u00e9?"}],
        "prediction": "so 7</think>answer:1",
        "gold": "so\n#### 1",
    } == row
    results = json.loads((root / f"results/{model}/gsm8k.json").read_text())
    assert 200 / 3 == results["accuracy"]
    assert {
        "prompt": [{"role": "HUMAN", "prompt": "Question: 2 caf\u00e9?"}],
        "origin_prediction": "3",
        "predictions": ["3"],
        "references": ["2"],
        "correct": [False],
    } == results["details"]["2"]
    assert (
        "dataset,version,metric,mode,vllm-api-stream-chat\ngsm8k,50861a,accuracy,gen,66.67\n"
        == (root / "summary/summary_20261201_000000.csv").read_text()
    )


def test_a_failed_request_is_written_as_a_mock_and_stays_counted(tmp_path):
    root = write(tmp_path, predictions("0", "1", error_at=1))

    (failed,) = root.glob("predictions/*/gsm8k_failed.jsonl")
    assert "outcome-reset" == json.loads(failed.read_text())["error_info"]
    (results,) = root.glob("results/*/gsm8k.json")
    detail = json.loads(results.read_text())["details"]["1"]
    assert ([], "", ["NULL"], [False]) == (
        detail["prompt"],
        detail["origin_prediction"],
        detail["predictions"],
        detail["correct"],
    )
    assert [True, False] == [item.correct for item in aisbench.read_results(results)]


def test_what_was_written_is_read_back(tmp_path):
    root = write(tmp_path, predictions("0", "5", "2\u2028"))

    (lines,) = root.glob("predictions/*/gsm8k.jsonl")
    (results,) = root.glob("results/*/gsm8k.json")
    assert {0: "0", 1: "5", 2: "2\u2028"} == aisbench.read_predictions(lines)
    assert [("0", "0", True), ("5", "1", False), ("2", "2", True)] == [
        (item.pred, item.reference, item.correct) for item in aisbench.read_results(results)
    ]
    (summary,) = root.glob("summary/*.csv")
    assert "66.67" == aisbench.read_summary(summary)


def test_the_first_of_several_lines_with_one_id_counts(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": 1, "prediction": "a"}\n\n{"id": 1, "prediction": "b"}\n')

    assert {1: "a"} == aisbench.read_predictions(path)


def test_details_as_a_list_are_read_too(tmp_path):
    path = tmp_path / "r.json"
    rows = [{"example_abbr": "gsm8k_0", "pred": "1", "answer": "1", "correct": True}]
    path.write_text(json.dumps({"accuracy": 100.0, "details": rows}))

    assert [True] == [item.correct for item in aisbench.read_results(path)]


DETAIL = '{"0": {"predictions": ["1"], "references": ["1"], "correct": [%s]}}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param('{"accuracy": 97.33}', "--dump-eval-details", id="rounded-figure-only"),
        pytest.param("[]", "--dump-eval-details", id="a-list"),
        pytest.param("{", "not JSON", id="cut"),
        pytest.param(
            '{"accuracy": 0.0, "details": %s}' % (DETAIL % "true"), "1 of 1", id="do-not-add-up"
        ),
        pytest.param('{"details": %s}' % (DETAIL % "true"), "KeyError", id="no-accuracy"),
        pytest.param(
            '{"accuracy": 100.0, "details": %s}' % (DETAIL % "1"), "not a boolean", id="not-a-truth"
        ),
        pytest.param('{"accuracy": 1, "details": {"x": {}}}', "ValueError", id="no-number-key"),
    ],
)
def test_a_results_file_that_says_nothing_is_refused(tmp_path, text, says):
    path = tmp_path / "gsm8k.json"
    path.write_text(text)

    with pytest.raises(UsageError, match=says) as caught:
        aisbench.read_results(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"{}", "p.jsonl:1: no `id`", id="no-id"),
        pytest.param(b'{"id": true, "prediction": ""}', "must be an integer", id="truth-as-id"),
        pytest.param(b'{"id": 1, "prediction": null}', "a string", id="no-text"),
        pytest.param(b'\n{"id"', "p.jsonl:2: not JSON", id="cut"),
        pytest.param(b"\xff", "p.jsonl:1: not JSON", id="not-utf8"),
    ],
)
def test_a_predictions_line_that_says_nothing_is_named(tmp_path, data, says):
    path = tmp_path / "p.jsonl"
    path.write_bytes(data)

    with pytest.raises(UsageError, match=says):
        aisbench.read_predictions(path)


def test_missing_files_and_summaries_are_one_line(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        aisbench.read_predictions(tmp_path / "no")
    (tmp_path / "s.csv").write_text("dataset,version,metric,mode,m\nother,1,accuracy,gen,9\n")
    with pytest.raises(UsageError, match="no accuracy row"):
        aisbench.read_summary(tmp_path / "s.csv")


def test_nothing_is_overwritten(tmp_path):
    write(tmp_path, predictions("0"))

    with pytest.raises(FileExistsError):
        write(tmp_path, predictions("0"))


def test_the_data_directory_has_both_splits(tmp_path):
    lines = b'{"question": "a", "answer": "#### 1"}\n{"question": "b", "answer": "#### 2"}\n'
    folder = aisbench.write_data(tmp_path / "gsm8k", lines)

    assert lines == (folder / "test.jsonl").read_bytes()
    assert 1 == (folder / "train.jsonl").read_bytes().count(b"\n")
