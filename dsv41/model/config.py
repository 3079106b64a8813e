"""A `config.json` turned into one frozen record and a plan of what each layer owns and reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any


class ConfigError(ValueError):
    """The configuration cannot describe a DeepSeek V4.1 model; one line says why."""


@dataclass(frozen=True)
class LayerPlan:
    """What one layer owns and what it reads; `None` where the layer has no such thing."""

    index: int
    ratio: int  # 0: window only; 1 or 2: tokens per compressed row that it reads
    kv_source: int | None  # the layer whose compressed rows it reads
    index_source: int | None  # the layer whose selection it reads
    has_engram: bool
    is_captured: bool  # its entry stream feeds the draft module
    is_candidate_source: bool
    is_candidate_reader: bool  # selects among the published candidates only

    @property
    def owns_compressor(self) -> bool:
        return self.ratio > 0 and self.kv_source == self.index

    @property
    def owns_indexer(self) -> bool:
        return self.ratio > 0 and self.index_source == self.index


@dataclass(frozen=True)
class ModelConfig:
    """The text part of a `deepseek_v41` configuration, under its Hugging Face names."""

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
    max_position_embeddings: int
    rope_theta: float
    compress_rope_theta: float
    rope_factor: float
    rope_beta_fast: float
    rope_beta_slow: float
    rope_original_max_position_embeddings: int
    n_routed_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    norm_topk_prob: bool
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

    @property
    def mix_size(self) -> int:
        """Values of one hyper-connection mix: pre, post and the square matrix."""
        return (2 + self.hc_mult) * self.hc_mult

    @property
    def engram_columns(self) -> int:
        return (self.engram_max_ngram_size - 1) * self.engram_n_heads

    def layer_plans(self) -> tuple[LayerPlan, ...]:
        """One plan per backbone layer, in order."""
        return _plans(self)

    @classmethod
    def from_file(cls, path: str | Path) -> ModelConfig:
        """Read a `config.json`, nested (`text_config`) or flat."""
        try:
            raw = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: not a readable JSON file: {error}") from None
        return cls.from_dict(raw, where=str(path))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], where: str = "config") -> ModelConfig:
        """Build from the keys of a configuration; unknown keys are other parts' business."""
        if not isinstance(raw, Mapping) or not isinstance(raw.get("text_config", {}), Mapping):
            raise ConfigError(f"{where}: not an object, or its text_config is none")
        text = {**raw, **raw.get("text_config", {})}
        rope = text.get("rope_scaling") or text.get("rope_parameters") or {}
        values = {
            "rope_factor": rope.get("factor", 1.0),
            "rope_beta_fast": rope.get("beta_fast", 32.0),
            "rope_beta_slow": rope.get("beta_slow", 1.0),
            "rope_original_max_position_embeddings": rope.get(
                "original_max_position_embeddings", text.get("max_position_embeddings")
            ),
            "norm_topk_prob": True,
            "engram_layer_ids": (),
            "engram_num_embeddings": (),
        }
        values["rope_theta"] = rope.get("rope_theta", 10000.0)
        missing = []
        for field in fields(cls):
            value = text.get(field.name, values.get(field.name))
            if value is None:
                missing.append(field.name)
            elif not _fits(value, str(field.type)):
                raise ConfigError(f"{where}: {field.name} is {value!r}, expected {field.type}")
            values[field.name] = tuple(value) if isinstance(value, list) else value
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise ConfigError(f"{where}: text_config lacks {', '.join(missing[:5])}{more}")
        config = cls(**values)
        _check(config, where)
        return config


def _fits(value: object, kind: str) -> bool:
    """Whether a JSON value can be a field of this annotation."""
    if kind.startswith("tuple"):
        return isinstance(value, list | tuple) and all(type(v) is int for v in value)
    if kind == "bool":
        return isinstance(value, bool)
    return type(value) is int or (kind == "float" and type(value) is float)


@lru_cache(maxsize=64)
def _plans(config: ModelConfig) -> tuple[LayerPlan, ...]:
    return tuple(_plan(config, i) for i in range(config.num_hidden_layers))


def _plan(config: ModelConfig, index: int) -> LayerPlan:
    ratio = config.compress_ratios[index]
    kv_sources = [i for i in config.kv_source_layer_ids if i <= index]
    index_sources = [i for i in config.index_source_layer_ids if i <= index]
    owns_indexer = ratio > 0 and index in config.index_source_layer_ids
    return LayerPlan(
        index=index,
        ratio=ratio,
        kv_source=max(kv_sources) if ratio else None,
        index_source=max(index_sources) if ratio else None,
        has_engram=index in config.engram_layer_ids,
        is_captured=index in config.dspark_target_layer_ids,
        is_candidate_source=owns_indexer and index == config.candidate_source_layer_id,
        is_candidate_reader=owns_indexer and index > config.candidate_source_layer_id >= 0,
    )


def _check(config: ModelConfig, where: str) -> None:
    """Refuse what the layers cannot compute; each line names the key and what it must be."""
    layers, ratios = config.num_hidden_layers, config.compress_ratios
    sources = config.kv_source_layer_ids
    reads = [i for i in range(layers) if i < len(ratios) and ratios[i]]
    unserved = [i for i in reads if not any(s <= i for s in sources)]
    served = [i for i in reads if i not in unserved]
    complaints = (
        (len(ratios) < layers, f"compress_ratios has {len(ratios)} entries for {layers} layers"),
        (any(r not in (0, 1, 2) for r in ratios), "compress_ratios may hold 0, 1 and 2 only"),
        (config.num_attention_heads % config.o_groups, "o_groups must divide num_attention_heads"),
        (config.qk_rope_head_dim % 2, "qk_rope_head_dim must be even"),
        (
            config.qk_rope_head_dim > min(config.head_dim, config.index_head_dim),
            "qk_rope_head_dim exceeds head_dim or index_head_dim",
        ),
        (config.head_dim % 2 or config.index_head_dim % 2, "head dims must be even"),
        (
            any(i not in config.index_source_layer_ids for i in sources),
            "every kv source must be an index source",
        ),
        (
            bool(unserved),
            f"layers {unserved} have a ratio but no kv source before them",
        ),
        (
            any(ratios[i] == 0 for i in config.index_source_layer_ids if i < layers <= len(ratios)),
            "an index source must have a ratio",
        ),
        (
            any(ratios[i] != ratios[max(s for s in sources if s <= i)] for i in served),
            "a layer's ratio must be that of its kv source",
        ),
        (
            len(config.engram_layer_ids) != len(config.engram_num_embeddings),
            "engram_num_embeddings must have one entry per engram layer",
        ),
        (
            config.num_experts_per_tok > config.n_routed_experts,
            "num_experts_per_tok exceeds n_routed_experts",
        ),
    )
    for wrong, line in complaints:
        if wrong:
            raise ConfigError(f"{where}: {line}")
