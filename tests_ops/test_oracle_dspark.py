"""The draft module and greedy speculation of the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests_ops.oracle import (
    Model,
    Trace,
    build_model,
    draft,
    dspark,
    forward,
    generate,
    generate_with_drafts,
)
from tests_ops.oracle.mutants import noise_drafter
from tests_ops.oracle.strategies import Case, cases
from tests_ops.oracle.tiny import TINY, random_tensors, with_useful_drafts

pytestmark = pytest.mark.ops
USEFUL = TINY | {"dspark_markov_rank": 128}
PROMPT = torch.randint(4, 512, (21,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.fixture(scope="module")
def tiny() -> Model:
    return build_model(TINY, random_tensors(TINY, 0))


@pytest.fixture(scope="module")
def useful() -> Model:
    return build_model(USEFUL, with_useful_drafts(random_tensors(USEFUL, 0)))


_TRUTH: dict[int, list[int]] = {}


def greedy_truth(model: Model, start: int) -> list[int]:
    """15 greedy tokens after the first `start` prompt tokens, made once."""
    if start not in _TRUTH:
        _TRUTH[start] = generate(model, PROMPT[:start], 15).tokens
    return _TRUTH[start]


def right_up_to(truth: Sequence[int], prompt_length: int, correct: int):
    """A drafter that knows the answer and errs from draft `correct` on."""

    def drafter(model: Model, trace: Trace, anchor: int) -> list[int]:
        at = len(trace.positions) + 1 - prompt_length
        drafts = list(truth[at : at + 5])
        return [t if i < correct else (t + 1) % 512 for i, t in enumerate(drafts)]

    return drafter


# Minimum list 8.8.8.
@pytest.mark.parametrize("start", [20, 21], ids=["even-prompt", "odd-prompt"])
@pytest.mark.parametrize("correct", range(6), ids=[f"accept-{n}" for n in range(6)])
def test_forced_accept_counts_lose_nothing(tiny: Model, correct: int, start: int) -> None:
    truth = greedy_truth(tiny, start)

    out = generate_with_drafts(tiny, PROMPT[:start], 9, right_up_to(truth, start, correct))

    assert out.tokens == truth[:9]
    assert set(out.accepted[:-1]) == {correct}


# Minimum list 8.8.8.
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(longest=12), seed=st.integers(0, 99))
def test_own_and_noise_drafts_lose_nothing_on_random_models(case: Case, seed: int) -> None:
    model = build_model(case.text, case.tensors(), dtype=torch.float64)
    plain = generate(model, case.tokens, 6).tokens

    assert generate_with_drafts(model, case.tokens, 6).tokens == plain
    assert generate_with_drafts(model, case.tokens, 6, noise_drafter(seed)).tokens == plain


def test_useful_drafts_are_accepted_and_lose_nothing(useful: Model) -> None:
    out = generate_with_drafts(useful, PROMPT, 24)

    assert out.tokens == generate(useful, PROMPT, 24).tokens
    assert out.acceptance_length is not None
    assert out.acceptance_length > 2.0


def test_a_dead_drafter_shows_in_the_acceptance_length(useful: Model) -> None:
    out = generate_with_drafts(useful, PROMPT, 14, noise_drafter(0))

    assert out.acceptance_length is not None
    assert out.acceptance_length < 1.1


def test_generation_stops_at_the_stop_token(tiny: Model) -> None:
    truth = generate(tiny, PROMPT, 6).tokens
    stop = frozenset({truth[3]})
    expected = truth[: truth.index(truth[3]) + 1]

    assert generate(tiny, PROMPT, 6, stop).tokens == expected
    assert generate_with_drafts(tiny, PROMPT, 6, stop=stop).tokens == expected


# Minimum list 8.8.9.
def test_the_last_block_row_changes_the_first_draft_logits(tiny: Model) -> None:
    trace = forward(tiny, PROMPT)
    plain = draft(tiny, trace.main_hidden, trace.positions, 7)
    other = torch.tensor([7, 3, 3, 3, 99])

    with mock.patch.object(dspark, "block_ids", return_value=other):
        changed = draft(tiny, trace.main_hidden, trace.positions, 7)

    assert (plain.base_logits[0] - changed.base_logits[0]).abs().max() > 1e-3


def test_drafts_read_the_window_of_captures_and_no_more(tiny: Model) -> None:
    trace = forward(tiny, PROMPT)
    plain = draft(tiny, trace.main_hidden, trace.positions, 7)

    def with_changed_row(position: int) -> float:
        hidden = trace.main_hidden.clone()
        hidden[position] = -hidden[position]
        changed = draft(tiny, hidden, trace.positions, 7)
        return float((changed.base_logits - plain.base_logits).abs().max())

    assert with_changed_row(12) == 0.0
    assert with_changed_row(13) > 1e-3
    assert with_changed_row(20) > 1e-3


def test_captures_are_the_streams_entering_the_target_layers(tiny: Model) -> None:
    trace = forward(tiny, PROMPT)

    entering = [trace.streams[layer - 1].mean(1) for layer in (6, 7, 8)]
    assert torch.equal(torch.cat(entering, -1), trace.main_hidden)


def test_draft_logits_are_base_plus_markov_of_the_previous_token(tiny: Model) -> None:
    trace = forward(tiny, PROMPT)
    out = draft(tiny, trace.main_hidden, trace.positions, 7)
    embed = tiny.w["mtp.2.markov_head.embed.weight"]
    head = tiny.w["mtp.2.markov_head.head.weight"]

    previous = torch.tensor([7, *out.tokens[:-1]])
    assert torch.allclose(out.logits, out.base_logits + embed[previous] @ head.T, atol=1e-4)
    assert out.tokens == out.logits.argmax(-1).tolist()
