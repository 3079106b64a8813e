"""Bounded replay: decoder layers run on each chunk's last window, an approximation by choice."""

from __future__ import annotations

import pytest
import torch

from dsv41.model import ConfigError, ModelConfig
from dsv41.model.draft import write_context
from dsv41.model.forward import Forward, logits, replay_cut, run_layers
from dsv41.model.init import init_weights
from dsv41.model.make_checkpoint import small_raw_config
from dsv41.model.paged import Batch, PagedState, RecordLayout
from dsv41.model.params import ModelParams, bind
from dsv41.model.vocabulary import modulo_map

pytestmark = pytest.mark.ops
CONFIG = ModelConfig.from_dict(small_raw_config())
WINDOW = CONFIG.sliding_window
BLOCK, BLOCKS = 8, 40
TOKENS = torch.randint(20, 250, (80,), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def params() -> ModelParams:
    return bind(init_weights(CONFIG, 1), CONFIG)


class Cache:
    """Pages of two requests, holding `stale` everywhere at first."""

    def __init__(self, stale: float = 0.0) -> None:
        self.layout = RecordLayout(CONFIG, CONFIG.num_nextn_predict_layers)
        self.records = torch.full((BLOCKS * BLOCK, self.layout.width), stale)
        order = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(4))
        self.table = order.view(2, -1)

    def run(self, params: ModelParams, *chunks: tuple[int, int], replay: bool) -> torch.Tensor:
        """Process tokens `[start, end)` of each request; logits of each one's last token."""
        lengths = torch.tensor([0] + [end - start for start, end in chunks])
        ends = torch.tensor([end for _, end in chunks])
        batch = Batch(lengths.cumsum(0), ends, self.table[: len(chunks)], BLOCK)
        state = PagedState(self.records, self.layout, batch, WINDOW)
        run = Forward(CONFIG, state, replay=replay)
        ids = torch.cat([TOKENS[start:end] for start, end in chunks])
        with torch.inference_mode():
            hidden = run_layers(params, run, ids, modulo_map(CONFIG))
            write_context(hidden.captured, params.draft, run)
            rows = lengths.clamp(max=WINDOW) if run.kept is not None else lengths
            return logits(hidden.folded[rows.cumsum(0)[1:] - 1], params, CONFIG)


@pytest.mark.parametrize("chunks", [[(0, 16)], [(0, 7), (7, 23)], [(0, 1), (1, 2)]])
def test_chunks_of_a_window_are_exact(params, chunks) -> None:
    exact, replayed = Cache(), Cache()
    for chunk in chunks:
        expected = exact.run(params, chunk, replay=False)
        found = replayed.run(params, chunk, replay=True)

        assert torch.equal(expected, found)


def test_a_longer_chunk_deviates_a_little_and_only_above_the_cut(params) -> None:
    exact, replayed = Cache(), Cache()
    expected = exact.run(params, (0, 80), replay=False)
    found = replayed.run(params, (0, 80), replay=True)

    difference = (expected - found).abs()
    assert 1e-4 < float(difference.max())
    assert float(difference.mean()) < 0.5 * float(expected.std())
    below = exact.layout.columns[("key", replay_cut(CONFIG))].stop
    slots = Batch(torch.tensor([0, 80]), torch.tensor([80]), exact.table[:1], BLOCK).slots(
        torch.zeros(80, dtype=torch.int64), torch.arange(80)
    )
    window = exact.layout.columns[("window", replay_cut(CONFIG))]
    same = (exact.records[slots] - replayed.records[slots])[:, :below].abs() < 1e-5
    same[:, window] = True
    assert same.all()


def test_rows_that_were_not_written_are_not_read(params) -> None:
    """Stale pages full of 1e3 would show in any logit."""
    steps = [((0, 40), (0, 9)), ((40, 41), (9, 60)), ((41, 47), (60, 61)), ((47, 80), (61, 80))]
    clean, stale = Cache(), Cache(stale=1e3)
    for chunks in steps:
        expected = clean.run(params, *chunks, replay=True)
        found = stale.run(params, *chunks, replay=True)

        assert (expected - found).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"engram_layer_ids": [1, 6]}, "an engram layer is not below layer 5"),
        ({"dspark_target_layer_ids": [4, 7, 8]}, "a draft target layer is below layer 5"),
    ],
    ids=["engram", "target"],
)
def test_a_model_that_needs_the_other_rows_is_refused(changes: dict, line: str) -> None:
    config = ModelConfig.from_dict({"text_config": small_raw_config()["text_config"] | changes})

    with pytest.raises(ConfigError, match=line):
        replay_cut(config)
