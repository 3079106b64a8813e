"""The training pass against the model's own, and a training that stops and goes on."""

import json
import random
from dataclasses import replace

import pytest
import torch

from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.full import draft_full, forward_full, forward_hidden
from dsv41.model.init import init_weights
from dsv41.model.params import bind
from dsv41.model.vocabulary import modulo_map
from dsv41.tiny import checkpoint, data, dense, dense_draft, train
from dsv41.tiny.optimise import orthogonal
from dsv41.tiny.tokenizer import build_tokenizer, ngram_map

pytestmark = pytest.mark.accuracy

CONFIG = ModelConfig.from_file(checkpoint.CONFIG)
MAP = modulo_map(CONFIG)


@pytest.fixture(params=[True, False], ids=["c-kernels", "tensor-operations"])
def kernels(request, monkeypatch):
    if request.param and not dense.USE_FUSED:
        pytest.skip("no C compiler: install gcc to test the kernels")
    monkeypatch.setattr(dense, "USE_FUSED", request.param)
    return request.param


def _ids(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(4, CONFIG.vocab_size, (3, length), generator=generator)


def test_the_configuration_has_every_layer_kind():
    plans = CONFIG.layer_plans()
    assert {p.ratio for p in plans} == {0, 1, 2}
    assert any(p.ratio == 2 and not p.owns_compressor for p in plans)
    assert any(p.is_candidate_reader for p in plans)
    assert any(p.ratio == 1 and not p.owns_indexer for p in plans)
    assert any(p.has_engram for p in plans)
    assert CONFIG.sliding_window >= 32
    assert CONFIG.index_topk >= 16
    assert CONFIG.max_position_embeddings >= 10240
    assert CONFIG.num_nextn_predict_layers == 3


@pytest.mark.parametrize("length", [7, 64, 75])
def test_the_training_pass_is_the_model(kernels, length):
    params, ids = bind(init_weights(CONFIG, 1), CONFIG), _ids(length)
    wanted = forward_full(params, CONFIG, ids, MAP)
    rows, made = dense.memory_rows(ids, MAP, CONFIG), dense.tables(CONFIG, length)
    out = dense.run(params, CONFIG, ids, rows, made)
    found = dense.head(out.hidden, params, CONFIG)
    assert (found - wanted).abs().max() < 1e-4
    captured = forward_hidden(params, CONFIG, ids, MAP).captured
    assert (out.captured.flatten(0, 1) - captured).abs().max() < 1e-4


def test_gradients_of_the_kernels_are_those_of_the_tensor_operations(monkeypatch):
    if not dense.USE_FUSED:
        pytest.skip("no C compiler: install gcc to test the kernels")
    weights = init_weights(CONFIG, 2)
    monkeypatch.setattr(dense, "USE_FUSED", True)
    mine = _gradients(weights)
    monkeypatch.setattr(dense, "USE_FUSED", False)
    theirs = _gradients(weights)
    # The n-gram gate takes a root near 0, whose slope has no bound: there the last bit of a weight
    # moves the gradient by more than 2e-4, whoever computes it. What that bit does is measured.
    random_ = torch.Generator().manual_seed(5)
    ulp = torch.finfo(torch.float32).eps
    moved = _gradients(
        {n: w * (1 + ulp * torch.randn(w.shape, generator=random_)) for n, w in weights.items()}
    )
    for name, wanted in theirs.items():
        last_bit = (moved[name] - wanted).norm()
        allowed = max(2e-4 * wanted.norm(), 4 * last_bit) + 1e-9
        assert (mine[name] - wanted).norm() <= allowed, name
        assert last_bit < 2e-3 * wanted.norm(), name  # else nothing would be compared


def _gradients(weights):
    leaves = {n: w.detach().requires_grad_() for n, w in weights.items()}
    ids = _ids(40)
    rows, made = dense.memory_rows(ids, MAP, CONFIG), dense.tables(CONFIG, 40)
    trained = [n for n in leaves if "mtp" not in n and "indexer" not in n and "bias" not in n]
    params = bind(leaves, CONFIG)
    out = dense.run(params, CONFIG, ids, rows, made)
    scored = dense.head(out.hidden, params, CONFIG).log_softmax(-1)
    loss = scored[:, :-1].gather(-1, ids[:, 1:, None]).mean()
    found = torch.autograd.grad(loss, [leaves[n] for n in trained])
    return dict(zip(trained, found, strict=True))


def test_the_draft_pass_is_the_model(kernels):
    params, ids = bind(init_weights(CONFIG, 3), CONFIG), _ids(60)
    captured = forward_hidden(params, CONFIG, ids, MAP).captured
    anchors = torch.tensor([3, 20, 40, 54])
    wanted, sure = draft_full(params, CONFIG, ids, captured, anchors)
    block = ids[:, anchors.unsqueeze(1) + torch.arange(CONFIG.dspark_block_size)]
    out = dense_draft.run(params, CONFIG, captured.view(3, 60, -1), anchors.expand(3, -1), block)
    assert (out.scored - wanted).abs().max() < 1e-4
    assert (out.confidence - sure).abs().max() < 1e-4


def test_a_wrong_count_of_ngram_ids_is_refused():
    wrong = replace(CONFIG, engram_compressed_vocab_size=440)
    with pytest.raises(ConfigError, match="is 440, but the tokenizer compresses to 446 ids"):
        ngram_map(build_tokenizer(), wrong)


def test_a_length_that_needs_a_choice_is_refused():
    with pytest.raises(ValueError, match="only the first 96 see every row"):
        dense.tables(CONFIG, 97)


def test_orthogonal_updates_have_singular_values_near_one():
    values = torch.linalg.svdvals(orthogonal(torch.randn(3, 128, 64)))
    assert values.min() > 0.5
    assert values.max() < 1.4


def test_batches_depend_on_seed_step_and_process_alone():
    tokenizer = build_tokenizer()
    first, again = (data.train_batch(tokenizer, 0, 5, 1, 4) for _ in range(2))
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    for other in ((1, 5, 1), (0, 6, 1), (0, 5, 0)):
        assert not data.train_batch(tokenizer, *other, 4).ids.equal(first.ids)


def test_only_answers_are_trained():
    example = data.held_out(random.Random(0), build_tokenizer())
    batch = data.collate([example], data.LENGTH)
    real = int(batch.weight.sum())
    assert tuple(batch.wanted[0, :real].tolist()) == example.answer
    assert int(batch.where[0, 0]) == len(example.prompt) - 1


def test_a_training_that_stops_and_goes_on_ends_as_one_that_did_not(tmp_path):
    def trained(out, *stops: int) -> dict[str, torch.Tensor]:
        for _ in stops:
            train.main([
                "--out", str(out), "--steps", "3", "--processes", "1", "--batch", "2",
                "--minutes", "0",
            ])  # fmt: skip
        state = torch.load(out / "state.pt", weights_only=True)
        assert state["step"] == len(stops)
        return state["weights"]

    whole = tmp_path / "whole"
    train.main(["--out", str(whole), "--steps", "3", "--processes", "1", "--batch", "2"])
    parts = trained(tmp_path / "parts", 1, 2, 3)
    for name, weight in torch.load(whole / "state.pt", weights_only=True)["weights"].items():
        assert weight.equal(parts[name]), name
    rows = [json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 3
