"""Random schedules over pages: mixed batches, wrong drafts, preemption, shared prefixes."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests_ops.oracle import dspark, forward
from tests_ops.oracle.strategies import Case, cases
from tests_ops.product import harness
from tests_ops.product.harness import CLEAR_MARGIN, TOLERANCE, Pair

pytestmark = pytest.mark.ops
BLOCK, LONGEST = 4, 36


class Schedule:
    """Requests over one paged cache; what each true token's logits were."""

    def __init__(self, pair: Pair, source: random.Random) -> None:
        self.pair, self.source = pair, source
        vocab = pair.config.vocab_size
        common = [source.randrange(vocab) for _ in range(LONGEST)]
        self.sequences = []
        for _ in range(source.randint(2, 6)):
            kept = source.choice([0, 0, BLOCK, 3 * BLOCK])
            fresh = [source.randrange(vocab) for _ in range(source.randint(1, LONGEST - kept))]
            self.sequences.append(common[:kept] + fresh)
        count = len(self.sequences)
        # A preempted request comes back on blocks of its own second row.
        self.pages = harness.Pages(pair, 2 * count, LONGEST + 8, BLOCK, source.randrange(999))
        self.row = list(range(count))
        self.done = [0] * count
        self.logits: list[dict[int, torch.Tensor]] = [{} for _ in self.sequences]
        self.preempted = 0

    def finish(self) -> None:
        """Steps until every request has run."""
        while waiting := [r for r, s in enumerate(self.sequences) if self.done[r] < len(s)]:
            self.step(self.source.sample(waiting, self.source.randint(1, len(waiting))))
            if not self.preempted and self.source.random() < 0.2:
                self.preempt(self.source.choice(waiting))
            if self.source.random() < 0.3:
                self.share()

    def step(self, running: list[int]) -> None:
        chunks, true = {}, {}
        for r in running:
            sequence, done = self.sequences[r], self.done[r]
            size = min(self.source.choice([1, 1, 2, 3, 6, 10, 30]), len(sequence) - done)
            tokens = sequence[done : done + size]
            true[r] = size
            if size <= 2 and self.source.random() < 0.5:
                # Wrong drafts behind the true tokens; the next step writes over them.
                tokens = tokens + [self.source.randrange(8) for _ in range(5)]
            chunks[self.row[r]] = (done, tokens)
        rows = self.pages.step(chunks).logits.split([len(new) for _, new in chunks.values()])
        for r, logits in zip(running, rows, strict=True):
            for i in range(true[r]):
                self.logits[r][self.done[r] + i] = logits[i]
            self.done[r] += true[r]

    def preempt(self, r: int) -> None:
        self.preempted += 1
        self.row[r], self.done[r] = self.row[r] + len(self.sequences), 0

    def share(self) -> None:
        """A request that has not started takes over whole blocks of an equal prefix."""
        fresh = [r for r, done in enumerate(self.done) if done == 0]
        for r in fresh:
            for other, done in enumerate(self.done):
                whole = self._common(r, other, done) // BLOCK
                if whole and other != r:
                    blocks = self.pages.table[self.row[other], :whole]
                    self.pages.table[self.row[r], :whole] = blocks
                    self.done[r] = whole * BLOCK
                    return

    def _common(self, r: int, other: int, done: int) -> int:
        mine, theirs = self.sequences[r], self.sequences[other][:done]
        # At least one token is left to run, as engines do.
        limit = min(len(mine) - 1, len(theirs))
        return next((i for i in range(limit) if mine[i] != theirs[i]), max(limit, 0))


def check(case: Case, seed: int) -> None:
    pair = harness.pair(case.text, case.tensors())
    schedule = Schedule(pair, random.Random(seed))
    schedule.finish()
    with harness.margins() as gaps:
        expected = [forward(pair.oracle, s).logits for s in schedule.sequences]
    assume(min(gaps, default=1.0) > CLEAR_MARGIN)

    for truth, found in zip(expected, schedule.logits, strict=True):
        for position, logits in found.items():
            assert (logits - truth[position]).abs().max() < TOLERANCE


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(longest=1), seed=st.integers(0, 10**6))
def test_random_schedules_give_the_oracles_logits(case: Case, seed: int) -> None:
    check(case, seed)


@pytest.mark.deep
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(longest=1), seed=st.integers(0, 10**6))
def test_many_random_schedules_give_the_oracles_logits(case: Case, seed: int) -> None:
    check(case, seed)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(longest=1), seed=st.integers(0, 10**6))
def test_drafts_of_a_batch_are_the_oracles(case: Case, seed: int) -> None:
    pair = harness.pair(case.text, case.tensors())
    source = random.Random(seed)
    vocab = pair.config.vocab_size
    sequences = [[source.randrange(vocab) for _ in range(source.randint(1, 24))] for _ in range(3)]
    pages = harness.Pages(pair, 3, 32, BLOCK, seed)
    pages.step({r: (0, sequence) for r, sequence in enumerate(sequences)})
    last, anchors = [len(s) - 1 for s in sequences], [source.randrange(vocab) for _ in sequences]
    with harness.margins() as gaps:
        expected = []
        for sequence, anchor in zip(sequences, anchors, strict=True):
            trace = forward(pair.oracle, sequence)
            drafts = dspark.draft(pair.oracle, trace.main_hidden, trace.positions, anchor)
            expected.append(drafts)
            top = drafts.logits.topk(2).values
            gaps.extend((top[:, 0] - top[:, 1]).tolist())
    assume(min(gaps) > CLEAR_MARGIN)

    found = pages.draft([0, 1, 2], last, anchors)

    assert [e.tokens for e in expected] == found.tokens.tolist()
    for e, confidence in zip(expected, found.confidence, strict=True):
        assert (confidence - e.confidence).abs().max() < 3 * TOLERANCE
