"""The model package by itself: gradients, seeds, files, refusals and path counters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsv41 import paths
from dsv41.model import ConfigError, ModelConfig, forward_full, moe
from dsv41.model.files import INDEX, read_tensors
from dsv41.model.init import init_weights
from dsv41.model.loader import CheckpointError, load_official
from dsv41.model.make_checkpoint import main as make_checkpoint
from dsv41.model.make_checkpoint import small_raw_config
from dsv41.model.params import bind
from dsv41.model.quant import EXACT, dequantise_fp4, quantise_fp4

pytestmark = pytest.mark.ops
TOKENS = torch.randint(20, 250, (2, 24), generator=torch.Generator().manual_seed(3))


def small_config(**changes: object) -> ModelConfig:
    raw = small_raw_config()
    return ModelConfig.from_dict({"text_config": raw["text_config"] | changes})


def loss(weights: dict[str, torch.Tensor], config: ModelConfig) -> torch.Tensor:
    logits = forward_full(weights, config, TOKENS)
    targets = TOKENS[:, 1:].flatten()
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets)


@pytest.fixture(scope="module")
def gradients() -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    # Every row within reach and every expert is chosen, so that no choice can flip.
    config = small_config(index_topk=24, candidate_topk_blocks=8, num_experts_per_tok=8)
    weights = init_weights(config, 0)
    weights = {name: tensor.requires_grad_() for name, tensor in weights.items()}
    loss(weights, config).backward()
    return config, weights


def test_gradients_reach_every_backbone_weight_but_discrete_choices(gradients) -> None:
    _, weights = gradients
    without = {n for n, w in weights.items() if w.grad is None and not n.startswith("mtp.")}

    assert all("indexer" in n or "gate.bias" in n for n in without), sorted(without)
    assert any(n.endswith("embed.weight") and w.grad.abs().sum() > 0 for n, w in weights.items())


@pytest.mark.parametrize(
    "name",
    ["layers.0.hc_attn_fn", "layers.2.attn.compressor.wgate.weight", "layers.1.engram.wkv.weight"],
    ids=["mix", "compressor-gate", "engram"],
)
def test_a_gradient_is_the_slope_of_the_loss(gradients, name: str) -> None:
    config, weights = gradients
    step = 5e-4 * weights[name].grad / weights[name].grad.norm()
    moved = {n: w.detach() for n, w in weights.items()}
    with torch.no_grad():
        up = loss(moved | {name: moved[name] + step}, config)
        down = loss(moved | {name: moved[name] - step}, config)

    assert float(up - down) / 2 == pytest.approx(5e-4 * float(weights[name].grad.norm()), rel=0.1)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        assert make_checkpoint(["--out", str(tmp_path / name), "--seed", seed]) == 0
    first, again, other = (
        (tmp_path / n / "model.safetensors").read_bytes() for n in ("a", "b", "c")
    )

    assert first == again
    assert first != other


def test_an_existing_directory_is_not_overwritten(tmp_path: Path, capsys) -> None:
    (tmp_path / "there").mkdir()

    assert make_checkpoint(["--out", str(tmp_path / "there")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list((tmp_path / "there").iterdir()) == []


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sharded") / "model"
    arguments = ["--out", str(directory), "--format", "released", "--shards", "3"]
    assert make_checkpoint(arguments) == 0
    return directory


def test_released_formats_in_shards_load_as_rounded_weights(sharded: Path) -> None:
    config = ModelConfig.from_file(sharded / "config.json")

    flat, names = load_official(read_tensors(sharded), config, torch.float32)

    exact = init_weights(config, 0, bigram=True)
    weight = exact["layers.0.ffn.experts.w1.weight"][3]
    assert torch.equal(
        flat["layers.0.ffn.experts.w1.weight"][3], dequantise_fp4(*quantise_fp4(weight))
    )
    for name in flat:
        scale = exact[name].abs().max()
        assert (flat[name] - exact[name]).abs().max() <= 0.2 * scale, name  # FP4: half of 4..6
    assert len(names) == len(json.loads((sharded / INDEX).read_text())["weight_map"])


def test_a_missing_shard_is_named_with_what_it_held(sharded: Path, tmp_path: Path) -> None:
    for file in sharded.iterdir():
        if not file.name.startswith("model-00002"):
            (tmp_path / file.name).write_bytes(file.read_bytes())

    with pytest.raises(CheckpointError, match=r"model-00002-of-00003.*missing shard with \d+ ten"):
        list(read_tensors(tmp_path))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"compress_ratios": [0, 0]}, "compress_ratios has 2 entries for 9 layers"),
        ({"kv_source_layer_ids": [4, 5]}, r"layers \[2, 3\] have a ratio but no kv source"),
        ({"index_source_layer_ids": [2, 4, 7]}, "every kv source must be an index source"),
        ({"o_groups": 3}, "o_groups must divide num_attention_heads"),
        ({"engram_num_embeddings": [290]}, "engram_num_embeddings must have one entry"),
        ({"hidden_size": None}, "text_config lacks hidden_size"),
        ({"hidden_size": "128"}, "hidden_size is '128', expected int"),
        ({"compress_ratios": 2}, "compress_ratios is 2, expected tuple"),
    ],
    ids=["ratios", "no-source", "index-source", "groups", "engram", "missing", "text", "no-list"],
)
def test_a_config_that_cannot_be_is_refused_in_one_line(changes: dict, line: str) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        small_config(**changes)

    assert "\n" not in str(caught.value)


def test_every_layout_of_the_experts_gives_the_same_sum(monkeypatch) -> None:
    monkeypatch.setattr(paths, "_counters", paths._Counters())
    config = small_config(n_routed_experts=12, num_experts_per_tok=3)
    stacked = bind(init_weights(config, 2), config).layers[3].moe
    plain = replace(stacked, every_w13=None, every_w2=None)
    x = torch.randn(2, 128, generator=torch.Generator().manual_seed(1))

    every, fetched = moe.moe(x, stacked, config, EXACT), moe.moe(x, plain, config, EXACT)
    grouped = moe.moe(x.repeat(20, 1), plain, config, EXACT)

    assert (every - fetched).abs().max() < 1e-5
    assert (every.repeat(20, 1) - grouped).abs().max() < 1e-5
    taken = ["experts/every", "experts/fetched", "experts/grouped"]
    assert sorted(paths.snapshot()["paths"]) == taken


def test_paths_are_counted_and_written_at_most_once_a_second(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("DSV41_PATHS_DIR", str(tmp_path))
    monkeypatch.setattr(paths.atexit, "register", lambda *_: None)
    monkeypatch.setattr(paths, "_counters", paths._Counters())
    paths.count("experts", "grouped", rows=7)
    paths.publish(now_ns=5_000_000_000)
    paths.count("experts", "grouped", rows=2)
    paths.add("confidence", 0.5)
    paths.publish(now_ns=5_900_000_000)
    (file,) = tmp_path.glob("*.json")
    early = json.loads(file.read_text())["paths"]
    paths.publish(now_ns=6_000_000_000)
    late = json.loads(file.read_text())

    assert early == {"experts/grouped": {"calls": 1, "rows": 7}}
    assert late["paths"] == {"experts/grouped": {"calls": 2, "rows": 9}}
    assert late["sums"] == {"confidence": 0.5}
