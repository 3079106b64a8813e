"""The stored goldens of the seeded small checkpoint still describe it, and the model meets them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsv41.model import make_checkpoint, params, vocabulary
from dsv41.model.config import ModelConfig
from dsv41.model.loader import load_official
from tests_ops.oracle import checkpoint, goldens, make_goldens
from tests_ops.oracle.generate import generate
from tests_ops.product import harness

pytestmark = pytest.mark.ops
FILE = Path(__file__).parent / "goldens" / "small-bigram-seed0.json"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "model"
    assert make_checkpoint.main(["--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def pair(directory: Path) -> harness.Pair:
    config = ModelConfig.from_file(directory / "config.json")
    flat, _ = load_official(checkpoint.read_tensors(directory).items(), config, torch.float32)
    return harness.Pair(
        config=config,
        bound=params.bind(flat, config),
        map=vocabulary.token_map(config, directory),
        oracle=checkpoint.load(directory, dtype=torch.float64),
    )


def served(pair: harness.Pair, chosen: list[goldens.Golden]) -> dict[str, list[int]]:
    return {g.id: harness.greedy(pair, g.prompt, len(g.tokens), block_size=16) for g in chosen}


def test_the_goldens_were_made_from_this_checkpoint(directory: Path) -> None:
    """If this fails, make_checkpoint or its config changed: remake the goldens with the script."""
    assert goldens.checkpoint_files(FILE) == make_goldens.file_hashes(directory)


def test_the_goldens_are_50_prompts_of_mixed_length() -> None:
    stored = goldens.read(FILE)

    lengths = [len(g.prompt) for g in stored]
    assert len(stored) == 50
    assert min(lengths) == 1
    assert max(lengths) > 100
    assert len(set(lengths)) >= 20
    assert all(len(g.tokens) == len(g.gaps) == 24 for g in stored)


def test_goldens_are_what_the_oracle_generates(pair: harness.Pair) -> None:
    for golden in goldens.read(FILE)[:3]:
        assert golden.tokens[:6] == generate(pair.oracle, golden.prompt, 6).tokens


def test_the_model_over_pages_meets_the_goldens(pair: harness.Pair) -> None:
    chosen = goldens.read(FILE)[::12]

    assert goldens.faults(chosen, served(pair, chosen)) == []


@pytest.mark.deep
def test_the_model_over_pages_meets_every_golden(pair: harness.Pair) -> None:
    stored = goldens.read(FILE)

    assert goldens.faults(stored, served(pair, stored)) == []


def test_speculation_over_pages_meets_the_goldens(pair: harness.Pair) -> None:
    chosen = goldens.read(FILE)[5::15]
    outputs = {g.id: harness.speculate(pair, g.prompt, len(g.tokens)) for g in chosen}

    tokens = {name: out.tokens for name, out in outputs.items()}
    accepted = [n for out in outputs.values() for n in out.accepted]
    assert goldens.faults(chosen, tokens) == []
    assert 1 + sum(accepted) / len(accepted) > 1.5
