"""`python -m acceptance score`: one line of JSON for each line of the file."""

import json
import subprocess
import sys


def _score(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "acceptance", "score", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_each_line_is_scored_in_order(tmp_path):
    path = tmp_path / "answers.jsonl"
    lines = [
        {"prediction": "so 3+4=7. answer:7", "gold_raw": "3+4=7\n#### 7"},
        {"prediction": "answer:8", "gold_raw": "3+4=7\n#### 7"},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = _score(str(path))

    assert 0 == done.returncode, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [("7", "7", True), ("8", "7", False)] == [
        (one["extracted_pred"], one["extracted_gold"], one["correct"]) for one in found
    ]


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    done = _score(str(tmp_path / "none.jsonl"))

    assert (2, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))
