"""`score`: one line out for each line in; a mistake is one line and status 2."""

import json

import pytest

from acceptance.accuracy import score_cli


def run(tmp_path, capsys, data, *options):
    path = tmp_path / "in.jsonl"
    path.write_bytes(data)
    status = score_cli.main([str(path), *options])
    out, err = capsys.readouterr()
    return status, [json.loads(line) for line in out.splitlines()], err


def rows(*items):
    return "".join(json.dumps(item) + "\n" for item in items).encode()


def test_each_line_is_scored(tmp_path, capsys):
    status, out, err = run(
        tmp_path,
        capsys,
        rows(
            {"prediction": "answer:18", "gold_raw": "#### 18"},
            {"prediction": "5</think>x", "gold_raw": "#### 5", "stage": "native"},
            {"prediction": "5</think>x", "gold_raw": "#### 5", "stage": "chat_pipeline", "id": 3},
            {"prediction": "answer:18", "gold_raw": "18"},
        ),
    )

    assert (0, "") == (status, err)
    assert [
        {"extracted_pred": "18", "extracted_gold": "18", "correct": True},
        {"extracted_pred": "5", "extracted_gold": "5", "correct": True},
        {"extracted_pred": "NULL", "extracted_gold": "5", "correct": False},
        {"extracted_pred": "18", "extracted_gold": None, "correct": None, "error": "IndexError"},
    ] == out


@pytest.mark.parametrize(
    ("evaluator", "correct"),
    [
        pytest.param("released", False, id="released"),
        pytest.param("1e44190d", False, id="released-blob"),
        pytest.param("pr360", True, id="pr360"),
    ],
)
def test_the_version_is_selectable(tmp_path, capsys, evaluator, correct):
    line = rows({"prediction": "1,430", "gold_raw": "#### 1430"})

    _, out, _ = run(tmp_path, capsys, line, "--evaluator", evaluator)

    assert correct is out[0]["correct"]


def test_text_that_is_hard_to_print_is_scored(tmp_path, capsys):
    data = b'{"prediction": "\\ud800 7\\u2028", "gold_raw": "#### 7"}'

    status, out, _ = run(tmp_path, capsys, data)

    assert (0, True) == (status, out[0]["correct"])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b'{"prediction"', ":1: not JSON", id="cut"),
        pytest.param(b"\xff\n", ":1: not JSON", id="not-utf8"),
        pytest.param(b"[]\n", ":1: not a JSON object", id="a-list"),
        pytest.param(b'{"prediction": ""}', "`gold_raw` must be there", id="no-gold"),
        pytest.param(b'{"prediction": null, "gold_raw": ""}', "`prediction` must", id="null"),
        pytest.param(
            b'{"prediction": "", "gold_raw": "", "stage": []}',
            "native or chat_pipeline",
            id="stage",
        ),
        pytest.param(
            b'{"prediction": "1", "gold_raw": "#### 1"}\n\n{}', ":2: not JSON", id="blank-line"
        ),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_printed(tmp_path, capsys, data, says):
    status, out, err = run(tmp_path, capsys, data)

    assert (2, [], 1) == (status, out, err.count("\n"))
    assert says in err


def test_a_missing_file_and_an_unknown_version_are_one_line(tmp_path, capsys):
    assert 2 == score_cli.main([str(tmp_path / "no.jsonl")])
    assert "no.jsonl: No such file or directory\n" in capsys.readouterr().err
    (tmp_path / "e.jsonl").touch()
    assert 2 == score_cli.main([str(tmp_path / "e.jsonl"), "--evaluator", "x"])
    assert "there are released (1e44190d), pr360 (cc84932e)\n" in capsys.readouterr().err


def test_an_empty_file_gives_nothing(tmp_path, capsys):
    assert (0, [], "") == run(tmp_path, capsys, b"")
