"""Bounded replay (2.16) of the product against the oracle's, and how far it is from exact."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dsv41.model.config import ConfigError
from tests_ops.oracle import Replay, dspark, forward
from tests_ops.oracle.strategies import Case, cases
from tests_ops.oracle.tiny import TINY, random_tensors
from tests_ops.product import harness
from tests_ops.product.harness import CLEAR_MARGIN, TOLERANCE, Pair
from tests_ops.test_model_vs_oracle import TOKENS, random_ends

pytestmark = pytest.mark.ops


@pytest.fixture(scope="module")
def tiny() -> Pair:
    return harness.pair(TINY, random_tensors(TINY, 0))


@pytest.mark.parametrize(
    "ends",
    [[64], [40, 64], [5, 6, 30, 31, 64], [8, 16, 20]],
    ids=["one-piece", "two", "five", "all-fit"],
)
def test_replayed_chunks_are_the_oracles(tiny: Pair, ends: list[int]) -> None:
    tokens = TOKENS[: ends[-1]]
    trace = forward(tiny.oracle, tokens, Replay(chunk_ends=tuple(ends)))

    logits = harness.chunked(tiny, tokens, ends, block_size=8, replay=True)

    assert logits.shape == trace.logits.shape
    assert (logits - trace.logits).abs().max() < TOLERANCE


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), seed=st.integers(0, 10**6))
def test_replay_of_random_models_is_the_oracles(case: Case, seed: int) -> None:
    pair = harness.pair(case.text, case.tensors())
    ends = random_ends(len(case.tokens), seed)
    with harness.margins() as gaps:
        trace = forward(pair.oracle, case.tokens, Replay(chunk_ends=tuple(ends)))
    assume(min(gaps, default=1.0) > CLEAR_MARGIN)

    logits = harness.chunked(pair, case.tokens, ends, 4, seed, replay=True)

    assert (logits - trace.logits).abs().max() < TOLERANCE


def test_a_replayed_batch_gives_each_request_its_own_rows(tiny: Pair) -> None:
    source = random.Random(0)
    lengths = [30, 3, 9, 1]
    sequences = [[source.randrange(4, 512) for _ in range(n)] for n in lengths]
    pages = harness.Pages(tiny, 4, 64, 8, 0)

    run = pages.step({r: (0, s) for r, s in enumerate(sequences)}, replay=True)

    parts = run.logits.split([min(n, 8) for n in lengths])
    for sequence, logits in zip(sequences, parts, strict=True):
        expected = forward(tiny.oracle, sequence, Replay(chunk_ends=(len(sequence),)))
        assert (logits - expected.logits).abs().max() < TOLERANCE


def test_drafts_after_a_replayed_prompt_are_the_oracles(tiny: Pair) -> None:
    pages = harness.Pages(tiny, 1, 64, 8, 0)
    pages.step({0: (0, TOKENS[:40])}, replay=True)
    trace = forward(tiny.oracle, TOKENS[:40], Replay(chunk_ends=(40,)))
    expected = dspark.draft(tiny.oracle, trace.main_hidden, trace.positions, 7)

    drafts = pages.draft([0], [39], [7])

    assert expected.tokens == drafts.tokens[0].tolist()
    assert (drafts.confidence[0] - expected.confidence).abs().max() < 3 * TOLERANCE


def test_replay_differs_from_the_exact_model_beyond_the_window(tiny: Pair) -> None:
    """Else the tests above would prove nothing: the option must do something."""
    exact = forward(tiny.oracle, TOKENS).logits[-1]

    replayed = harness.chunked(tiny, TOKENS, [64], block_size=8, replay=True)[-1]

    assert 1e-3 < float((replayed - exact).abs().max()) < 2.0


def test_an_engram_layer_behind_the_cut_is_refused() -> None:
    text = TINY | {"engram_layer_ids": [1, 6]}
    pair = harness.pair(text, random_tensors(text, 0))

    with pytest.raises(ConfigError, match="engram layer is not below layer 5"):
        harness.chunked(pair, TOKENS[:8], [8], block_size=8, replay=True)


def test_pages_that_were_trimmed_hold_no_rows_that_replay_reads(tiny: Pair) -> None:
    """Stale rows below the first kept one change nothing, whatever they hold."""
    results = []
    for seed in (1, 2):
        pages = harness.Pages(tiny, 1, 64, 8, seed)
        pages.step({0: (0, TOKENS[:40])}, replay=True)
        results.append(pages.step({0: (40, TOKENS[40:43])}, replay=True).logits)

    assert torch.equal(*results)
