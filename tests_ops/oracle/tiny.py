"""The released and the tiny text_config, and a seeded initialisation. 1.2, 8.1, 8.3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests_ops.oracle import tensors

RELEASED: dict[str, Any] = {
    "model_type": "deepseek_v41_text",
    "vocab_size": 129280,
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "moe_intermediate_size": 2304,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1280,
    "o_lora_rank": 1024,
    "o_groups": 8,
    "hidden_act": "silu",
    "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-20,
    "attention_bias": False,
    "attention_dropout": 0,
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "use_cache": True,
    "max_position_embeddings": 1048576,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 16,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 65536,
    },
    "compress_rope_theta": 160000,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "sliding_window": 128,
    "compress_ratios": [0, 0] + [2] * 18 + [1] * 20 + [0, 0, 0],
    "kv_source_layer_ids": [2, 8, 14, 20],
    "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 512,
    "candidate_source_layer_id": 20,
    "candidate_topk_blocks": 2048,
    "candidate_block_size": 8,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "engram_layer_ids": [1, 14],
    "engram_num_embeddings": [384006168, 384016682],
    "engram_max_ngram_size": 4,
    "engram_vocab_size": 16000000,
    "engram_n_heads": 8,
    "engram_head_dim": 256,
    "engram_pad_token_id": 2,
    "engram_compressed_vocab_size": 99092,
    "num_nextn_predict_layers": 3,
    "dspark_block_size": 5,
    "dspark_noise_token_id": 128799,
    "dspark_target_layer_ids": [37, 38, 39],
    "dspark_markov_rank": 256,
    "dspark_n_routed_experts": 128,
    "dspark_num_experts_per_tok": 3,
}
VISION: dict[str, Any] = {
    "num_hidden_layers": 32,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "patch_size": 14,
    "downsample_ratio": 3,
}
TINY: dict[str, Any] = RELEASED | {
    "vocab_size": 512,
    "hidden_size": 128,
    "num_hidden_layers": 9,
    "moe_intermediate_size": 64,
    "num_attention_heads": 4,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 64,
    "o_groups": 2,
    "o_lora_rank": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "swiglu_limit": 1.0,
    "sliding_window": 8,
    "compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0],
    "kv_source_layer_ids": [2, 4, 5],
    "index_source_layer_ids": [2, 4, 5, 7],
    "index_n_heads": 16,
    "index_head_dim": 32,
    "index_topk": 4,
    "candidate_source_layer_id": 5,
    "candidate_topk_blocks": 2,
    "candidate_block_size": 4,
    "rope_scaling": RELEASED["rope_scaling"] | {"original_max_position_embeddings": 64},
    "engram_layer_ids": [1, 4],
    "engram_max_ngram_size": 3,
    "engram_n_heads": 2,
    "engram_head_dim": 32,
    "engram_vocab_size": 64,
    "engram_num_embeddings": [290, 370],
    "engram_compressed_vocab_size": 400,
    "dspark_target_layer_ids": [6, 7, 8],
    "dspark_noise_token_id": 3,
    "dspark_markov_rank": 32,
    "dspark_n_routed_experts": 4,
    "dspark_num_experts_per_tok": 2,
    "max_position_embeddings": 4096,
}


def random_tensors(text: Mapping[str, Any], seed: int) -> dict[str, Tensor]:
    """float32 tensors of every text weight, initialised as 8.3 says."""
    # numpy's stream is the same on every processor; torch's depends on its vector width.
    source = np.random.default_rng(seed)
    return {
        entry.name: _initial(entry.name, entry.shape, source)
        for entry in tensors.text_entries(text)
    }


def _initial(name: str, shape: tuple[int, ...], source: np.random.Generator) -> Tensor:
    noise = torch.from_numpy(source.standard_normal(shape, dtype=np.float32))
    if name.endswith(("norm.weight", "q_weight", "k_weight")):
        # 8.3 has noise on the block norms only; on every norm a forgotten weight shows too.
        return 1 + 0.1 * noise
    if name.endswith(("gate.bias", "gate.bias_vl")):
        return 0.1 * noise
    if name.endswith("_base"):
        return 0.3 * noise
    if name.endswith("_scale"):
        return torch.from_numpy(source.random(shape, dtype=np.float32))
    if name.endswith(("embed.weight", "attn_sink")):
        return noise
    return noise * shape[-1] ** -0.5


def with_useful_drafts(plain: Mapping[str, Tensor], scale: float = 0.1) -> dict[str, Tensor]:
    """8.3: a nearly bigram target whose draft is that bigram; needs markov rank == hidden."""
    out = dict(plain)
    small = (".attn.wo_b.weight", ".w2.weight", ".engram.wkv.weight")
    for name in out:
        if name.endswith(small):
            out[name] = out[name] * scale
    embed = out["embed.weight"]
    out["mtp.2.markov_head.embed.weight"] = embed * torch.rsqrt(embed.square().mean(-1, True))
    out["mtp.2.markov_head.head.weight"] = out["head.weight"].clone()
    out["mtp.2.norm.weight"] = torch.full_like(out["mtp.2.norm.weight"], 0.1)
    return out
