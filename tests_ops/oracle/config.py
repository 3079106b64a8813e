"""text_config dict -> `Config`; tensors and config -> `Model`. Section 1 and 2.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

TEXT_FIELDS = {
    "vocab_size", "hidden_size", "num_hidden_layers", "moe_intermediate_size",
    "num_attention_heads", "head_dim", "qk_rope_head_dim", "q_lora_rank", "o_lora_rank",
    "o_groups", "swiglu_limit", "rms_norm_eps", "rope_theta", "compress_rope_theta",
    "n_routed_experts", "num_experts_per_tok", "norm_topk_prob", "routed_scaling_factor",
    "sliding_window", "compress_ratios", "kv_source_layer_ids", "index_source_layer_ids",
    "index_n_heads", "index_head_dim", "index_topk", "candidate_source_layer_id",
    "candidate_topk_blocks", "candidate_block_size", "hc_mult", "hc_sinkhorn_iters", "hc_eps",
    "engram_layer_ids", "engram_num_embeddings", "engram_max_ngram_size", "engram_vocab_size",
    "engram_n_heads", "engram_head_dim", "engram_pad_token_id", "engram_compressed_vocab_size",
    "num_nextn_predict_layers", "dspark_block_size", "dspark_noise_token_id",
    "dspark_target_layer_ids", "dspark_markov_rank", "dspark_n_routed_experts",
    "dspark_num_experts_per_tok",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config:
    """The keys of `text_config` the forward pass reads, under their official names."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    moe_intermediate_size: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    swiglu_limit: float
    rms_norm_eps: float
    rope_theta: float
    compress_rope_theta: float
    n_routed_experts: int
    num_experts_per_tok: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    sliding_window: int
    compress_ratios: tuple[int, ...]
    kv_source_layer_ids: tuple[int, ...]
    index_source_layer_ids: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int
    candidate_topk_blocks: int
    candidate_block_size: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    engram_layer_ids: tuple[int, ...]
    engram_num_embeddings: tuple[int, ...]
    engram_max_ngram_size: int
    engram_vocab_size: int
    engram_n_heads: int
    engram_head_dim: int
    engram_pad_token_id: int
    engram_compressed_vocab_size: int
    num_nextn_predict_layers: int
    dspark_block_size: int
    dspark_noise_token_id: int
    dspark_target_layer_ids: tuple[int, ...]
    dspark_markov_rank: int
    dspark_n_routed_experts: int
    dspark_num_experts_per_tok: int
    yarn_factor: float
    yarn_beta_fast: float
    yarn_beta_slow: float
    yarn_original_positions: int

    @staticmethod
    def from_text_config(text: Mapping[str, Any]) -> Config:
        """Raises ValueError naming every missing key."""
        missing = sorted(TEXT_FIELDS - text.keys())
        yarn = text.get("rope_scaling") or {}
        wanted = ("factor", "beta_fast", "beta_slow", "original_max_position_embeddings")
        missing += [f"rope_scaling.{key}" for key in wanted if key not in yarn]
        if missing:
            raise ValueError(f"text_config lacks {', '.join(missing)}")
        values = {key: _frozen(text[key]) for key in TEXT_FIELDS}
        return Config(
            **values,
            yarn_factor=yarn["factor"],
            yarn_beta_fast=yarn["beta_fast"],
            yarn_beta_slow=yarn["beta_slow"],
            yarn_original_positions=yarn["original_max_position_embeddings"],
        )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class Model:
    """Everything a forward pass needs.

    `w`: tensors in the compute dtype under the official names, already dequantised.
    `token_map`: int64 [vocab], token id -> compressed id (2.11).
    `rounding`: the one switch of 4.2, all activation and KV rounding on or off.
    """

    cfg: Config
    w: Mapping[str, Tensor]
    token_map: Tensor
    rounding: bool = False


def build_model(
    text: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    token_map: Sequence[int] | Tensor | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    rounding: bool = False,
) -> Model:
    """Model from plain tensors. Without a map, `id mod compressed vocab` stands in (8.2)."""
    cfg = Config.from_text_config(text)
    if token_map is None:
        token_map = torch.arange(cfg.vocab_size) % cfg.engram_compressed_vocab_size
    w = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    return Model(
        cfg=cfg,
        w=w,
        token_map=torch.as_tensor(token_map, dtype=torch.int64),
        rounding=rounding,
    )


def kv_source_of(cfg: Config, layer: int) -> int:
    """2.1: the latest kv source at or before `layer` owns the compressed KV and index keys."""
    return max(source for source in cfg.kv_source_layer_ids if source <= layer)


def index_source_of(cfg: Config, layer: int) -> int:
    """2.1: the latest index source at or before `layer` owns the selection."""
    return max(source for source in cfg.index_source_layer_ids if source <= layer)


assert {f.name for f in fields(Config)} >= TEXT_FIELDS
