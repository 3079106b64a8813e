"""Phases as they begin and end, on disk at once (P6.5)."""

import json

import pytest

from acceptance.ledger import Category
from acceptance.timekeeper import LEDGER, Timekeeper

pytestmark = pytest.mark.rule("P6.5")


@pytest.fixture
def keeper(tmp_path):
    (tmp_path / "plan").mkdir()
    (tmp_path / "results").mkdir()
    return Timekeeper(tmp_path, "run-1")


def _lines(keeper):
    text = (keeper.run_dir / LEDGER).read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_phase_is_on_disk_when_it_begins_and_again_when_it_ends(keeper):
    with keeper.phase(Category.ACCURACY, "ask", round_name="B2"):
        (begun,) = _lines(keeper)
    _, ended = _lines(keeper)

    assert ("open", None, None) == (begun["status"], begun["end_utc"], begun["duration_ns"])
    assert ("done", begun["id"]) == (ended["status"], ended["id"])
    assert ended["duration_ns"] >= 0


def test_a_phase_inside_another_is_its_part(keeper):
    with (
        keeper.phase(Category.PERFORMANCE_MEASURED, "level"),
        keeper.phase(Category.PERFORMANCE_WARMUP, "wave"),
    ):
        pass

    outer, inner = _lines(keeper)[:2]
    assert (None, outer["id"]) == (outer["parent"], inner["parent"])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        pytest.param(ValueError, "failed", id="exception"),
        pytest.param(KeyboardInterrupt, "aborted", id="ctrl-c"),
    ],
)
def test_a_phase_that_does_not_end_well_says_so(keeper, error, status):
    with pytest.raises(error), keeper.phase(Category.ACCURACY, "ask"):
        raise error

    assert status == _lines(keeper)[-1]["status"]


def test_the_summary_is_made_from_the_file_and_written_once(keeper):
    with keeper.phase(Category.ACCURACY, "ask"):
        pass
    keeper.summary()

    summary = json.loads((keeper.run_dir / "results/time-summary.json").read_text())
    assert [] == summary["problems"]
    assert {"done": 1} == {k: v for k, v in summary["statuses"].items() if v}
    with pytest.raises(FileExistsError):
        keeper.summary()
