"""The product's model equals the oracle: layer by layer, end to end, chunked and speculating."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dsv41.model import draft_full
from tests_ops.oracle import Trace, dspark, forward
from tests_ops.oracle.generate import generate, generate_with_drafts
from tests_ops.oracle.strategies import Case, cases
from tests_ops.oracle.tiny import TINY, random_tensors, with_useful_drafts
from tests_ops.product import harness
from tests_ops.product.harness import CLEAR_MARGIN, TOLERANCE, Pair

pytestmark = pytest.mark.ops
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
TOKENS = torch.randint(4, 512, (64,), generator=torch.Generator().manual_seed(1)).tolist()
USEFUL = TINY | {"dspark_markov_rank": 128}


@pytest.fixture(scope="module")
def tiny() -> Pair:
    return harness.pair(TINY, random_tensors(TINY, 0))


@pytest.fixture(scope="module")
def useful() -> Pair:
    return harness.pair(USEFUL, with_useful_drafts(random_tensors(USEFUL, 0)))


def clear_trace(pair: Pair, tokens: Sequence[int]) -> Trace:
    """The oracle's trace; the example is dropped where a choice is too close to compare."""
    with harness.margins() as gaps:
        trace = forward(pair.oracle, tokens)
    assume(min(gaps, default=1.0) > CLEAR_MARGIN)
    return trace


def assert_layers_agree(pair: Pair, tokens: Sequence[int], trace: Trace) -> None:
    run = harness.whole(pair, tokens)
    for layer, (stream, mix) in enumerate(zip(run.streams, run.mixes, strict=True)):
        scale = max(1.0, float(trace.streams[layer].abs().max()))
        worst = float((stream - trace.streams[layer]).abs().max())
        assert worst < TOLERANCE * scale, f"layer {layer}: stream differs by {worst}"
        assert (mix - trace.mixes[layer]).abs().max() < TOLERANCE, f"layer {layer}: mix"
    assert_logits_agree(run.logits, trace)
    assert (run.captured - trace.main_hidden).abs().max() < TOLERANCE * scale


def assert_logits_agree(logits: torch.Tensor, trace: Trace) -> None:
    assert logits.shape == trace.logits.shape
    assert (logits - trace.logits).abs().max() < TOLERANCE
    top = trace.logits.topk(2).values
    clear = top[:, 0] - top[:, 1] > 2 * TOLERANCE
    assert torch.equal(logits.argmax(-1)[clear], trace.logits.argmax(-1)[clear])


def random_ends(length: int, seed: int) -> list[int]:
    """Ascending chunk ends, from single tokens to one piece."""
    source = random.Random(seed)
    inner = source.sample(range(1, length), source.randint(0, length - 1)) if length > 1 else []
    return [*sorted(inner), length]


def test_every_layer_of_the_tiny_model_agrees(tiny: Pair) -> None:
    assert_layers_agree(tiny, TOKENS, forward(tiny.oracle, TOKENS))


def test_a_swiglu_limit_of_0_clips_nothing() -> None:
    text = TINY | {"swiglu_limit": 0.0}
    pair = harness.pair(text, random_tensors(text, 0))

    assert_layers_agree(pair, TOKENS, forward(pair.oracle, TOKENS))


def test_odd_chunks_over_pages_agree(tiny: Pair) -> None:
    """Edges inside a compression group, inside an n-gram and inside a window."""
    logits = harness.chunked(tiny, TOKENS[:40], [5, 6, 13, 14, 29, 40], block_size=8)

    assert_logits_agree(logits, forward(tiny.oracle, TOKENS[:40]))


@QUICK
@given(case=cases())
def test_every_layer_of_random_models_agrees(case: Case) -> None:
    pair = harness.pair(case.text, case.tensors())

    assert_layers_agree(pair, case.tokens, clear_trace(pair, case.tokens))


@QUICK
@given(case=cases(), block=st.sampled_from([2, 4, 8, 32]), seed=st.integers(0, 999))
def test_random_chunks_over_pages_agree(case: Case, block: int, seed: int) -> None:
    pair = harness.pair(case.text, case.tensors())
    trace = clear_trace(pair, case.tokens)

    logits = harness.chunked(pair, case.tokens, random_ends(len(case.tokens), seed), block, seed)

    assert_logits_agree(logits, trace)


@pytest.mark.deep
@settings(QUICK, max_examples=400)
@given(
    case=cases(longest=100),
    block=st.sampled_from([2, 4, 8, 32, 128]),
    seed=st.integers(0, 10**6),
)
def test_many_random_models_agree_whole_and_in_chunks(case: Case, block: int, seed: int) -> None:
    pair = harness.pair(case.text, case.tensors())
    trace = clear_trace(pair, case.tokens)

    assert_layers_agree(pair, case.tokens, trace)
    ends = random_ends(len(case.tokens), seed)
    assert_logits_agree(harness.chunked(pair, case.tokens, ends, block, seed), trace)


def test_greedy_tokens_are_the_oracles(tiny: Pair) -> None:
    assert generate(tiny.oracle, TOKENS[:21], 10).tokens == harness.greedy(tiny, TOKENS[:21], 10)


@settings(QUICK, max_examples=8)
@given(case=cases(longest=12))
def test_greedy_tokens_of_random_models_are_the_oracles(case: Case) -> None:
    pair = harness.pair(case.text, case.tensors())
    with harness.margins() as gaps:
        truth = generate(pair.oracle, case.tokens, 6)
    assume(min([*gaps, *truth.gaps]) > CLEAR_MARGIN)

    assert truth.tokens == harness.greedy(pair, case.tokens, 6)


# Minimum list 8.8.12: group 10 is half-filled at position 20, and 10 groups exceed index_topk 4.
@pytest.mark.parametrize("at", [20, 21, 40, 41], ids=["even-20", "odd-21", "even-40", "odd-41"])
def test_one_token_decode_equals_prefill(tiny: Pair, at: int) -> None:
    logits = harness.chunked(tiny, TOKENS[: at + 1], [at, at + 1], block_size=8)

    assert_logits_agree(logits, forward(tiny.oracle, TOKENS[: at + 1]))


# Minimum list 8.8.10.
@pytest.mark.parametrize("at", [16, 32], ids=["prefix-16", "prefix-32"])
def test_a_request_on_anothers_blocks_equals_a_cold_run(tiny: Pair, at: int) -> None:
    pages = harness.Pages(tiny, 2, 64, block_size=8, seed=3)
    pages.step({0: (0, TOKENS[:at])})
    pages.table[1, : at // 8] = pages.table[0, : at // 8]

    tail = [*TOKENS[at:50], 7, 9]
    logits = pages.step({1: (at, tail)}).logits

    expected = forward(tiny.oracle, TOKENS[:at] + tail).logits[at:]
    assert (logits - expected).abs().max() < TOLERANCE


# Minimum list 8.8.8 and T-27: rejected drafts leave nothing behind, at even and odd lengths.
@pytest.mark.parametrize("kept", range(6), ids=[f"kept-{n}" for n in range(6)])
@pytest.mark.parametrize("at", [20, 21], ids=["even", "odd"])
def test_rejected_tokens_are_forgotten(tiny: Pair, at: int, kept: int) -> None:
    pages = harness.Pages(tiny, 1, 64, block_size=4, seed=5)
    pages.step({0: (0, TOKENS[:at])})
    wrong = [*TOKENS[at : at + kept], *((t + 1) % 512 for t in TOKENS[at + kept : at + 6])]
    pages.step({0: (at, wrong)})

    logits = pages.step({0: (at + kept, TOKENS[at + kept : 40])}).logits

    expected = forward(tiny.oracle, TOKENS[:40]).logits[at + kept :]
    assert (logits - expected).abs().max() < TOLERANCE


@settings(QUICK, max_examples=6)
@given(seed=st.integers(0, 10**6), block=st.sampled_from([2, 8, 16]))
def test_a_mixed_batch_gives_each_request_its_own_logits(seed: int, block: int) -> None:
    pair = _cached_tiny()
    source = random.Random(seed)
    sequences = [
        [source.randrange(4, 512) for _ in range(source.choice([1, 2, 9, 17, 40]))]
        for _ in range(4)
    ]
    pages = harness.Pages(pair, 4, 64, block, seed)
    parts: dict[int, list[torch.Tensor]] = {r: [] for r in range(4)}
    done = dict.fromkeys(range(4), 0)
    while any(done[r] < len(sequences[r]) for r in done):
        waiting = [r for r in done if done[r] < len(sequences[r])]
        running = source.sample(waiting, source.randint(1, len(waiting)))
        chunks = {}
        for r in running:
            size = min(source.choice([1, 1, 3, 10, 40]), len(sequences[r]) - done[r])
            chunks[r] = (done[r], sequences[r][done[r] : done[r] + size])
        rows = pages.step(chunks).logits.split([len(new) for _, new in chunks.values()])
        for r, logits in zip(running, rows, strict=True):
            parts[r].append(logits)
            done[r] += len(logits)

    for r, sequence in enumerate(sequences):
        expected = clear_trace(pair, sequence).logits
        assert (torch.cat(parts[r]) - expected).abs().max() < TOLERANCE


def test_a_rectangle_as_large_as_the_step_is_not_the_step(tiny: Pair) -> None:
    """New tokens 1, 6, 10, 1: the rectangle of the short ones is 3 x 6, as many as all tokens."""
    sequences = {r: TOKENS[5 * r : 5 * r + 20] for r in range(4)}
    sizes = {1: (1, 1), 3: (3, 6), 2: (1, 10), 0: (1, 1)}
    pages = harness.Pages(tiny, 4, 64, block_size=8, seed=3)
    for r, (done, _) in sizes.items():
        pages.step({r: (0, sequences[r][:done])})

    run = pages.step({r: (done, sequences[r][done : done + n]) for r, (done, n) in sizes.items()})

    parts = run.logits.split([n for _, n in sizes.values()])
    for (r, (done, n)), logits in zip(sizes.items(), parts, strict=True):
        expected = forward(tiny.oracle, sequences[r][: done + n]).logits[done:]
        assert (logits - expected).abs().max() < TOLERANCE


_TINY: list[Pair] = []


def _cached_tiny() -> Pair:
    if not _TINY:
        _TINY.append(harness.pair(TINY, random_tensors(TINY, 0)))
    return _TINY[0]


def assert_drafts_agree(pair: Pair, tokens: Sequence[int], anchor: int) -> None:
    trace = forward(pair.oracle, tokens)
    expected = dspark.draft(pair.oracle, trace.main_hidden, trace.positions, anchor)
    pages = harness.Pages(pair, 1, len(tokens) + 8, 4, 0)
    pages.step({0: (0, tokens)})

    drafts = pages.draft([0], [len(tokens) - 1], [anchor])

    top = expected.logits.topk(2).values
    assert float((top[:, 0] - top[:, 1]).min()) > 1e-3, "the input decides too narrowly"
    assert expected.tokens == drafts.tokens[0].tolist()
    assert (drafts.confidence[0] - expected.confidence).abs().max() < 3 * TOLERANCE


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 21, 39], ids=lambda n: f"after-{n}")
def test_drafts_and_confidence_are_the_oracles(tiny: Pair, length: int) -> None:
    assert_drafts_agree(tiny, TOKENS[:length], anchor=7)


def test_drafts_after_chunks_are_those_after_one_piece(tiny: Pair) -> None:
    pages = harness.Pages(tiny, 1, 40, 4, 0)
    for start, end in ((0, 13), (13, 14), (14, 21)):
        pages.step({0: (start, TOKENS[start:end])})
    trace = forward(tiny.oracle, TOKENS[:21])

    drafts = pages.draft([0], [20], [7])

    expected = dspark.draft(tiny.oracle, trace.main_hidden, trace.positions, 7)
    assert expected.tokens == drafts.tokens[0].tolist()
    assert (drafts.confidence[0] - expected.confidence).abs().max() < 3 * TOLERANCE


def test_teacher_forced_draft_logits_are_the_oracles(tiny: Pair) -> None:
    """The training form: the Markov predecessors are the true tokens, not the drafted ones."""
    run = harness.whole(tiny, TOKENS[:30])
    anchors = torch.tensor([1, 9, 24])
    with torch.no_grad():
        scored, confidence = draft_full(
            tiny.bound, tiny.config, torch.tensor([TOKENS[:30]]), run.captured, anchors
        )

    last = "mtp.2"
    embed = tiny.oracle.w[f"{last}.markov_head.embed.weight"]
    head = tiny.oracle.w[f"{last}.markov_head.head.weight"]
    for row, anchor in enumerate(anchors.tolist()):
        trace = forward(tiny.oracle, TOKENS[:anchor])
        out = dspark.draft(tiny.oracle, trace.main_hidden, trace.positions, TOKENS[anchor])
        markov = embed[torch.tensor(TOKENS[anchor : anchor + 5])] @ head.T
        assert (scored[0, row] - out.base_logits - markov).abs().max() < 3 * TOLERANCE
        assert abs(float(confidence[0, row, 0] - out.confidence[0])) < 3 * TOLERANCE


def test_speculation_gives_the_oracles_tokens_and_accept_counts(useful: Pair) -> None:
    truth = generate_with_drafts(useful.oracle, TOKENS[:21], 24)

    out = harness.speculate(useful, TOKENS[:21], 24)

    assert truth.tokens == out.tokens
    # The last verify step may run past the wanted length on one side only.
    assert truth.accepted[:-1] == out.accepted[: len(truth.accepted) - 1]
    assert 1 + sum(out.accepted) / len(out.accepted) > 2.0


@settings(QUICK, max_examples=6)
@given(case=cases(longest=12))
def test_speculation_on_random_models_loses_nothing(case: Case) -> None:
    pair = harness.pair(case.text, case.tensors())
    with harness.margins() as gaps:
        truth = generate(pair.oracle, case.tokens, 6)
    assume(min([*gaps, *truth.gaps]) > CLEAR_MARGIN)

    assert truth.tokens == harness.speculate(pair, case.tokens, 6, block_size=8).tokens


def test_a_noise_drafter_loses_speed_and_no_token(useful: Pair) -> None:
    source = random.Random(0)

    def noise(step: int, anchor: int) -> list[int]:
        return [source.randrange(512) for _ in range(5)]

    out = harness.speculate(useful, TOKENS[:21], 14, noise)

    assert generate(useful.oracle, TOKENS[:21], 14).tokens == out.tokens
    assert 1 + sum(out.accepted) / len(out.accepted) < 1.1
