"""Seeded weights: the spread that keeps every layer alive, and drafts that are often right."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dsv41.model.config import ModelConfig
from dsv41.model.names import TensorSpec
from dsv41.model.params import flat_tensors


def init_weights(config: ModelConfig, seed: int, *, bigram: bool = False) -> dict[str, Tensor]:
    """The flat dictionary in float32, the same for the same seed.

    With `bigram` the layers are weak beside the embedding and the draft's Markov head repeats
    the target's bigram, so that drafts are accepted without any training.
    """
    # numpy's stream does not depend on the processor's vector width; torch's does.
    generator = np.random.default_rng(seed)
    weights = {spec.name: _draw(spec, generator) for spec in flat_tensors(config)}
    if bigram and config.num_nextn_predict_layers:
        _align_drafts(weights, config)
    return weights


def _draw(spec: TensorSpec, generator: np.random.Generator) -> Tensor:
    def normal(scale: float) -> Tensor:
        values = generator.standard_normal(spec.shape, dtype=np.float32)
        return torch.from_numpy(values) * scale

    name = spec.name
    last = name.rpartition(".")[2] if not name.endswith(".weight") else name.split(".")[-2]
    if last.startswith("hc_"):
        if last.endswith("scale"):
            return torch.from_numpy(generator.random(spec.shape, dtype=np.float32))
        return normal(0.3) if last.endswith("base") else normal(spec.shape[-1] ** -0.5)
    if last in ("attn_norm", "ffn_norm", "q_weight", "k_weight"):
        return 1.0 + normal(0.1)
    if "norm" in last:
        return torch.ones(spec.shape)
    if last in ("bias", "bias_vl"):
        return normal(0.1)
    if last in ("embed", "attn_sink"):
        return normal(1.0)
    return normal(spec.shape[-1] ** -0.5)


def _align_drafts(weights: dict[str, Tensor], config: ModelConfig) -> None:
    last = f"mtp.{config.num_nextn_predict_layers - 1}."
    rank, embed = config.dspark_markov_rank, weights["embed.weight"]
    if rank != config.hidden_size:
        raise ValueError("bigram drafts need dspark_markov_rank = hidden_size")
    weights[last + "markov_head.embed.weight"] = embed * embed.square().mean(-1, True).rsqrt()
    weights[last + "markov_head.head.weight"] = weights["head.weight"].clone()
    weights[last + "norm.weight"] = torch.full((config.hidden_size,), 0.1)
    for name in weights:
        if name.endswith(("wo_b.weight", ".w2.weight", "engram.wkv.weight")):
            weights[name] = weights[name] * 0.1
