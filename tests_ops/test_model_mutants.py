"""Each classic bug, planted in the product, makes the named comparison with the oracle fail."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests_ops import test_model_vs_oracle as comparison
from tests_ops.oracle.tiny import TINY, random_tensors, with_useful_drafts
from tests_ops.product import harness
from tests_ops.product.harness import Pair
from tests_ops.product.mutants import MUTANTS, planted

pytestmark = pytest.mark.ops
# What the parametrised tests among the catchers are called with.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "test_one_token_decode_equals_prefill": {"at": 40},
    "test_drafts_and_confidence_are_the_oracles": {"length": 21},
}


@pytest.fixture(scope="module")
def pairs() -> dict[str, Pair]:
    return {
        "tiny": harness.pair(TINY, random_tensors(TINY, 0)),
        "useful": harness.pair(
            comparison.USEFUL, with_useful_drafts(random_tensors(comparison.USEFUL, 0))
        ),
    }


def run_named(test: str, pairs: dict[str, Pair]) -> None:
    function = getattr(comparison, test)
    wanted = inspect.signature(function).parameters
    fixtures = {name: pair for name, pair in pairs.items() if name in wanted}
    function(**fixtures, **ARGUMENTS.get(test, {}))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_fails_its_named_test(pairs: dict[str, Pair], name: str) -> None:
    with planted(name), pytest.raises(AssertionError) as caught:
        run_named(MUTANTS[name].caught_by, pairs)

    # The comparison says so, not some check inside the model.
    assert str(caught.traceback[-1].path) == comparison.__file__


@pytest.mark.parametrize("test", sorted({m.caught_by for m in MUTANTS.values()}))
def test_the_named_test_passes_without_a_bug(pairs: dict[str, Pair], test: str) -> None:
    run_named(test, pairs)
