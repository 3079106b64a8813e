"""Properties the whole backbone must have whatever the weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests_ops.oracle import Model, Replay, build_model, forward
from tests_ops.oracle.strategies import Case, cases
from tests_ops.oracle.tiny import TINY, random_tensors

pytestmark = pytest.mark.ops
SMALL = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def random_tokens(length: int, seed: int = 1) -> list[int]:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(4, 512, (length,), generator=source).tolist()


@pytest.fixture(scope="module")
def tiny() -> Model:
    return build_model(TINY, random_tensors(TINY, 0))


@pytest.fixture(scope="module")
def tiny64() -> Model:
    return build_model(TINY, random_tensors(TINY, 0), dtype=torch.float64)


def test_logits_have_unit_spread_and_no_nan(tiny: Model) -> None:
    logits = forward(tiny, random_tokens(64)).logits

    assert torch.isfinite(logits).all()
    assert 0.7 < float(logits.std()) < 1.4


# Minimum list 8.8.1.
@pytest.mark.parametrize("rounding", [False, True], ids=["rounding-off", "rounding-on"])
def test_every_prefix_gives_the_logits_of_the_whole_in_float64(
    tiny64: Model, rounding: bool
) -> None:
    model, tokens = replace(tiny64, rounding=rounding), random_tokens(26)
    whole = forward(model, tokens).logits

    worst = max(
        float((forward(model, tokens[:n]).logits - whole[:n]).abs().max()) for n in range(1, 26)
    )

    assert worst < 1e-12


# Minimum list 8.8.1.
def test_every_prefix_gives_the_logits_of_the_whole_in_float32(tiny: Model) -> None:
    tokens = random_tokens(64)
    whole = forward(tiny, tokens).logits

    for n in (1, 2, 5, 8, 9, 21, 33, 40, 63):
        prefix = forward(tiny, tokens[:n]).logits
        assert (prefix - whole[:n]).abs().max() < 1e-4
        assert torch.equal(prefix.argmax(-1), whole[:n].argmax(-1))


# Minimum list 8.8.1.
@SMALL
@given(case=cases())
def test_random_models_are_prefix_consistent_in_float64(case: Case) -> None:
    model = build_model(case.text, case.tensors(), dtype=torch.float64)
    whole = forward(model, case.tokens).logits
    n = (len(case.tokens) + 1) // 2

    assert torch.isfinite(whole).all()
    assert (forward(model, case.tokens[:n]).logits - whole[:n]).abs().max() < 1e-11


# Minimum list 8.8.12.
def test_an_even_position_beyond_index_topk_decodes_as_it_prefills(tiny64: Model) -> None:
    # Position 20 only half-fills group 10, and reach 10 > index_topk 4: selection bites.
    tokens = random_tokens(40)
    trace = forward(tiny64, tokens)
    step = forward(tiny64, tokens[:21])

    for source in (2, 4, 5, 7):
        chosen = trace.shared.selection[source][20, : step.shared.selection[source].shape[1]]
        assert torch.equal(step.shared.selection[source][20], chosen)
        assert int(chosen.sum()) == 4
    assert (step.logits[20] - trace.logits[20]).abs().max() < 1e-12


# Minimum list 8.8.7.
@pytest.mark.parametrize("q", [0, 1, 7, 20, 39], ids=["q0", "q1", "q7", "q20", "q39"])
def test_a_changed_token_changes_no_earlier_logits(tiny64: Model, q: int) -> None:
    tokens = random_tokens(40)
    changed = [*tokens[:q], (tokens[q] + 1) % 512, *tokens[q + 1 :]]

    delta = (forward(tiny64, tokens).logits - forward(tiny64, changed).logits).abs().amax(-1)

    assert (delta[:q] < 1e-12).all()
    assert (delta[q:] > 1e-6).all()


# Minimum list 8.8.7.
def test_engram_looks_back_as_far_as_its_ngram_size() -> None:
    from tests_ops.oracle import engram
    from tests_ops.oracle.config import Config
    from tests_ops.oracle.tiny import RELEASED

    cfg = Config.from_text_config(RELEASED)
    ids = torch.arange(100, 112)
    before = engram.hash_rows(cfg, 1, ids, pad=2)
    ids[5] = 7
    changed = (engram.hash_rows(cfg, 1, ids, pad=2) != before).any(-1)

    assert changed.nonzero().squeeze(-1).tolist() == [5, 6, 7, 8]


def test_float32_agrees_with_float64(tiny: Model, tiny64: Model) -> None:
    tokens = random_tokens(64)

    assert (forward(tiny, tokens).logits - forward(tiny64, tokens).logits).abs().max() < 1e-4


def test_rounding_changes_the_logits(tiny64: Model) -> None:
    tokens = random_tokens(32)
    rounded = forward(replace(tiny64, rounding=True), tokens).logits

    assert (rounded - forward(tiny64, tokens).logits).abs().max() > 0.1


def test_selection_never_exceeds_topk_reach_or_candidates(tiny64: Model) -> None:
    shared = forward(tiny64, random_tokens(64)).shared

    assert shared.candidates is not None
    assert not (shared.selection[7] & ~shared.candidates).any()
    assert (shared.selection[5] & ~shared.candidates).any()
    for layer, ratio in ((2, 2), (4, 2), (5, 1), (7, 1)):
        counts = shared.selection[layer].sum(-1).tolist()
        assert counts == [min(4, (p + 1) // ratio) for p in range(64)]


@pytest.mark.parametrize("full", [False, True], ids=["cut-trimmed", "cut-in-full"])
def test_replay_is_exact_when_every_chunk_fits_the_window(tiny64: Model, full: bool) -> None:
    tokens = random_tokens(20)
    replay = Replay(chunk_ends=(8, 13, 20), source_runs_in_full=full)

    trace = forward(tiny64, tokens, replay)

    assert trace.positions.tolist() == list(range(20))
    assert (trace.logits - forward(tiny64, tokens).logits).abs().max() < 1e-12


@pytest.mark.parametrize("full", [False, True], ids=["cut-trimmed", "cut-in-full"])
def test_replay_of_a_longer_chunk_is_an_approximation(tiny64: Model, full: bool) -> None:
    tokens = random_tokens(64)
    replay = Replay(chunk_ends=(64,), source_runs_in_full=full)

    trace = forward(tiny64, tokens, replay)

    delta = (trace.logits[-1] - forward(tiny64, tokens).logits[-1]).abs()
    assert trace.positions.tolist() == list(range(56, 64))
    assert 1e-3 < float(delta.max()) < 2.0


def test_the_two_published_replay_cuts_differ(tiny64: Model) -> None:
    tokens = random_tokens(64)
    trimmed = forward(tiny64, tokens, Replay(chunk_ends=(64,))).logits[-1]

    full = forward(tiny64, tokens, Replay(chunk_ends=(64,), source_runs_in_full=True)).logits[-1]

    assert (trimmed - full).abs().max() > 1e-3


def test_replay_refuses_an_engram_layer_behind_the_cut() -> None:
    text = TINY | {"engram_layer_ids": [1, 6]}
    model = build_model(text, random_tensors(text, 0))

    with pytest.raises(ValueError, match="every Engram layer below 5"):
        forward(model, [5, 6, 7], Replay(chunk_ends=(3,)))
