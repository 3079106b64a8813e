"""Each classic bug, planted in the oracle, is visible: the tiny config can catch it (8.6)."""

from __future__ import annotations

import pytest
import torch

from tests_ops.oracle import Model, build_model, dspark, forward
from tests_ops.oracle.mutants import DRAFT, MUTANTS, planted
from tests_ops.oracle.mutants_backbone import BACKBONE
from tests_ops.oracle.tiny import TINY, random_tensors

pytestmark = pytest.mark.ops  # minimum list 8.8.13
TOKENS = torch.randint(4, 512, (64,), generator=torch.Generator().manual_seed(1)).tolist()
VISIBLE = 1e-4


@pytest.fixture(scope="module")
def tiny() -> Model:
    return build_model(TINY, random_tensors(TINY, 0))


@pytest.fixture(scope="module")
def good(tiny: Model) -> torch.Tensor:
    return forward(tiny, TOKENS).logits


@pytest.mark.parametrize("name", [m.name for m in BACKBONE])
def test_a_planted_backbone_bug_moves_the_logits(
    tiny: Model, good: torch.Tensor, name: str
) -> None:
    mutant = MUTANTS[name]
    with planted(name):
        bad = forward(tiny, TOKENS).logits

    delta = (bad - good).abs().amax(-1)
    first = int((delta > VISIBLE).nonzero()[0])
    assert float(delta.max()) > mutant.least
    assert first == mutant.earliest if mutant.exact else first >= mutant.earliest


@pytest.mark.parametrize("name", [m.name for m in DRAFT])
def test_a_planted_draft_bug_moves_drafts_or_confidence(tiny: Model, name: str) -> None:
    trace = forward(tiny, TOKENS)
    right = dspark.draft(tiny, trace.main_hidden, trace.positions, 7)
    with planted(name):
        wrong = dspark.draft(tiny, trace.main_hidden, trace.positions, 7)

    moved = (right.logits - wrong.logits).abs().max()
    shifted = (right.confidence - wrong.confidence).abs().max()
    assert max(float(moved), float(shifted)) > 1e-2


def test_the_oracle_is_whole_again_after_every_mutant(tiny: Model, good: torch.Tensor) -> None:
    for name in MUTANTS:
        with planted(name):
            pass

    assert torch.equal(good, forward(tiny, TOKENS).logits)
