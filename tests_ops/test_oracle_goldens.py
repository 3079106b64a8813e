"""Golden files: how they are made, and what makes a served output differ from one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests_ops.oracle import checkpoint, goldens, make_goldens
from tests_ops.oracle.generate import generate
from tests_ops.oracle.goldens import Golden
from tests_ops.oracle.tiny import TINY, random_tensors

pytestmark = pytest.mark.ops


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("goldens") / "model"
    checkpoint.write(path, TINY, checkpoint.pack(TINY, random_tensors(TINY, 0)))
    return path


def one(tokens: list[int], gaps: list[float], name: str = "p000") -> Golden:
    return Golden(id=name, prompt=[5], tokens=tokens, gaps=gaps)


def many(count: int) -> list[Golden]:
    return [one([1, 2], [0.5, 5e-5], f"p{i:03d}") for i in range(count)]


def test_the_script_stores_what_the_oracle_generates(directory: Path, tmp_path: Path) -> None:
    out = tmp_path / "g.json"
    arguments = ["--prompts", "3", "--longest", "6", "--max-tokens", "4", "--dtype", "float32"]

    status = make_goldens.main([str(directory), "--out", str(out), *arguments])

    stored = goldens.read(out)
    model = checkpoint.load(directory)
    assert status == 0
    assert [len(g.prompt) for g in stored] == [1, 2, 3]
    assert all(generate(model, g.prompt, 4).tokens == g.tokens for g in stored)
    assert set(goldens.checkpoint_files(out)) == {
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


def test_the_script_does_not_overwrite(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "g.json"
    out.write_text("kept")

    assert make_goldens.main([str(directory), "--out", str(out)]) == 2
    assert out.read_text() == "kept"
    assert "goldens are not overwritten" in capsys.readouterr().err


def test_the_script_names_a_checkpoint_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = make_goldens.main([str(tmp_path / "none"), "--out", str(tmp_path / "g.json")])

    assert status == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_prompt_lengths_hold_the_edges_of_groups_windows_and_blocks() -> None:
    import random

    lengths = make_goldens.prompt_lengths(50, 8, 160, random.Random(0))

    assert len(lengths) == 50
    assert {1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129} <= set(lengths)
    assert max(lengths) <= 160


def test_equal_outputs_have_no_fault() -> None:
    assert goldens.faults(many(3), {f"p{i:03d}": [1, 2] for i in range(3)}) == []


def test_a_clear_divergence_is_a_fault() -> None:
    found = goldens.faults([one([1, 2], [0.5, 0.3])], {"p000": [1, 3]})

    assert found == ["p000: step 1 expected 2, served 3, oracle gap 0.3"]


def test_one_near_tie_in_200_is_excused_and_two_are_not() -> None:
    served = {g.id: [1, 2] for g in many(200)}
    served["p007"] = [1, 9]
    assert goldens.faults(many(200), served) == []

    served["p008"] = [1, 9]
    assert len(goldens.faults(many(200), served)) == 2


def test_a_gap_of_exactly_the_limit_is_a_fault() -> None:
    served = {g.id: [1, 2] for g in many(199)} | {"x": [1, 9]}

    assert len(goldens.faults([*many(199), one([1, 2], [0.5, 1e-4], "x")], served)) == 1


@pytest.mark.parametrize("served", [[1], [1, 2, 3], []], ids=["one-short", "one-long", "empty"])
def test_an_output_of_another_length_is_a_fault(served: list[int]) -> None:
    assert len(goldens.faults(many(1), {"p000": served})) == 1


def test_an_output_that_was_not_served_is_a_fault() -> None:
    assert goldens.faults(many(1), {}) == ["p000: not served"]
