"""Hypothesis: random small configs that keep the constraints of 8.2, with seeded weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests_ops.oracle import engram, tiny
from tests_ops.oracle.config import Config


@dataclass(frozen=True, kw_only=True)
class Case:
    """A text_config, a weight seed and a token sequence."""

    text: dict[str, Any]
    seed: int
    tokens: list[int]

    def tensors(self) -> dict[str, Tensor]:
        """float32 weights of the case."""
        return tiny.random_tensors(self.text, self.seed)


@st.composite
def layer_plan(draw: st.DrawFn) -> dict[str, Any]:
    """Ratios, sources, Engram and capture layers: sections of R=2 sources, then one R=1 source."""
    window_only = draw(st.integers(0, 2))
    ratios, kv, index = [0] * window_only, [], []
    for _ in range(draw(st.integers(0, 2))):
        kv.append(len(ratios))
        ratios += [2] * draw(st.integers(1, 2))
    index += kv
    cut = len(ratios)
    kv.append(cut)
    index.append(cut)
    for _ in range(draw(st.integers(1, 2))):
        if len(ratios) > cut:
            index.append(len(ratios))
        ratios += [1] * draw(st.integers(1, 2))
    layers = len(ratios)
    engrams = draw(st.sets(st.integers(0, cut - 1), max_size=2)) if cut else set()
    targets = draw(st.sets(st.integers(cut, layers - 1), min_size=1, max_size=3))
    return {
        "num_hidden_layers": layers,
        "compress_ratios": [*ratios, 0, 0, 0],
        "kv_source_layer_ids": kv,
        "index_source_layer_ids": index,
        "candidate_source_layer_id": cut,
        "engram_layer_ids": sorted(engrams),
        "dspark_target_layer_ids": sorted(targets),
    }


@st.composite
def text_configs(draw: st.DrawFn) -> dict[str, Any]:
    """A legal text_config; sizes divide as the storage blocks and groups need."""
    groups = draw(st.sampled_from([1, 2]))
    head_dim = draw(st.sampled_from([32, 64]))
    blocks, size = draw(st.integers(2, 3)), draw(st.sampled_from([2, 4]))
    experts, draft_experts = draw(st.integers(3, 6)), draw(st.integers(2, 4))
    text = tiny.TINY | draw(layer_plan())
    text |= {
        "vocab_size": draw(st.sampled_from([64, 96])),
        "hidden_size": draw(st.sampled_from([32, 64])),
        "moe_intermediate_size": 32,
        "num_attention_heads": groups * draw(st.integers(1, 2)),
        "o_groups": groups,
        "head_dim": head_dim,
        "qk_rope_head_dim": draw(st.sampled_from([8, 16])),
        "q_lora_rank": 32,
        "o_lora_rank": 32,
        "n_routed_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, 3)),
        "dspark_n_routed_experts": draft_experts,
        "dspark_num_experts_per_tok": draw(st.integers(1, 2)),
        "norm_topk_prob": draw(st.booleans()),
        "routed_scaling_factor": draw(st.sampled_from([1.0, 1.5, 2.5])),
        "swiglu_limit": draw(st.sampled_from([0.0, 0.5, 1.0, 10.0])),
        "sliding_window": draw(st.integers(2, 9)),
        "index_n_heads": draw(st.sampled_from([8, 16])),
        "index_topk": draw(st.integers(1, (blocks - 1) * size + 1)),
        "candidate_topk_blocks": blocks,
        "candidate_block_size": size,
        "hc_mult": draw(st.sampled_from([2, 4])),
        "hc_sinkhorn_iters": draw(st.sampled_from([1, 3, 20])),
        "engram_max_ngram_size": draw(st.integers(2, 4)),
        "engram_n_heads": draw(st.integers(1, 2)),
        "engram_vocab_size": draw(st.sampled_from([16, 64])),
        "engram_compressed_vocab_size": 50,
        "dspark_block_size": draw(st.integers(1, 5)),
        "dspark_markov_rank": 32,
    }
    text["engram_num_embeddings"] = engram_rows(text)
    return text


def engram_rows(text: dict[str, Any]) -> list[int]:
    """engram_num_embeddings of a config: the prime sums, layer by layer."""
    tables = engram.primes(Config.from_text_config(text))
    return [sum(map(sum, tables[layer])) for layer in text["engram_layer_ids"]]


@st.composite
def cases(draw: st.DrawFn, longest: int = 40) -> Case:
    """A config with weights and 1 .. longest tokens."""
    text = draw(text_configs())
    seed = draw(st.integers(0, 2**20))
    length = draw(st.integers(1, longest))
    source = torch.Generator().manual_seed(seed)
    tokens = torch.randint(text["vocab_size"], (length,), generator=source).tolist()
    return Case(text=text, seed=seed, tokens=tokens)
