"""The official checkpoint's tensors: every name, shape and storage type that a config implies.

The table reproduces the released checkpoint's count and parameter sum, so a loader that agrees
with it has seen everything.  `X.scale` tensors count as tensors but not as parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

from dsv41.model.config import LayerPlan, ModelConfig

TILE = 32  # FP8 weights carry one scale per 32x32 tile, FP4 rows one per 32 values


class Storage(Enum):
    """How the released checkpoint stores a tensor."""

    BF16 = "bf16"
    F32 = "f32"
    FP8 = "fp8"  # E4M3 with E8M0 scales over 32x32 tiles
    FP8_ROWS = "fp8-rows"  # E4M3 with E8M0 scales per row and 32 values (Engram tables)
    FP4 = "fp4"  # two E2M1 codes a byte, E8M0 scales per row and 32 values


@dataclass(frozen=True)
class TensorSpec:
    """One weight under its official name; `shape` is the logical shape, before packing."""

    name: str
    shape: tuple[int, ...]
    storage: Storage = Storage.BF16

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        if self.storage is Storage.FP4:
            return (*self.shape[:-1], self.shape[-1] // 2)
        return self.shape

    @property
    def scale_name(self) -> str | None:
        if self.storage in (Storage.BF16, Storage.F32):
            return None
        return self.name.removesuffix(".weight") + ".scale"

    @property
    def scale_shape(self) -> tuple[int, ...] | None:
        rows, columns = self.shape[0], -(-self.shape[-1] // TILE)
        if self.storage is Storage.FP8:
            return (-(-rows // TILE), columns)
        if self.storage in (Storage.FP4, Storage.FP8_ROWS):
            return (rows, columns)
        return None

    @property
    def count(self) -> int:
        """Tensors on disk: the weight, and its scale where it has one."""
        return 1 if self.scale_name is None else 2


def text_tensors(config: ModelConfig) -> Iterator[TensorSpec]:
    """Every text tensor of the backbone and the draft stages, in the checkpoint's naming."""
    d = config.hidden_size
    yield TensorSpec("embed.weight", (config.vocab_size, d))
    yield TensorSpec("head.weight", (config.vocab_size, d))
    yield TensorSpec("norm.weight", (d,))
    for plan in config.layer_plans():
        prefix = f"layers.{plan.index}."
        yield from _block(config, prefix, config.n_routed_experts)
        yield from _compressed(config, prefix + "attn.", plan)
        if plan.has_engram:
            yield from _engram(config, prefix + "engram.", plan.index)
    yield from _draft(config)


def vision_tensors(config: ModelConfig, vision: dict[str, Any]) -> Iterator[TensorSpec]:
    """Names of the vision part, which this text model skips; kept so that nothing is surplus."""
    d, v, inner = config.hidden_size, vision["hidden_size"], vision["intermediate_size"]
    joined = v * vision["downsample_ratio"] ** 2
    for name in ("image_start", "image_end", "image_newline"):
        yield TensorSpec(name, (d,))
    yield TensorSpec("vision.patch_embed.proj.weight", (v, 3 * vision["patch_size"] ** 2))
    yield TensorSpec("vision.patch_embed.proj.bias", (v,))
    for i in range(vision["num_hidden_layers"]):
        block = f"vision.blocks.{i}."
        yield TensorSpec(block + "attn.wqkv.weight", (3 * v, v))
        yield TensorSpec(block + "attn.wqkv.bias", (3 * v,))
        yield TensorSpec(block + "attn.wo.weight", (v, v))
        yield TensorSpec(block + "attn.wo.bias", (v,))
        yield TensorSpec(block + "mlp.w1.weight", (2 * inner, v))
        yield TensorSpec(block + "mlp.w2.weight", (v, inner))
        yield TensorSpec(block + "norm1.weight", (v,))
        yield TensorSpec(block + "norm2.weight", (v,))
    yield TensorSpec("vision.norm.weight", (v,))
    yield TensorSpec("aligner.w1.weight", (d, joined))
    yield TensorSpec("aligner.w1.bias", (d,))
    yield TensorSpec("aligner.w2.weight", (d, d))
    yield TensorSpec("aligner.w2.bias", (d,))


VISION_PREFIXES = ("vision.", "aligner.", "image_start", "image_end", "image_newline")


def _block(config: ModelConfig, prefix: str, num_experts: int) -> Iterator[TensorSpec]:
    d, inter, hc = config.hidden_size, config.moe_intermediate_size, config.hc_mult
    head = config.head_dim
    heads, rank = config.num_attention_heads, config.o_groups * config.o_lora_rank
    yield TensorSpec(prefix + "attn_norm.weight", (d,))
    yield TensorSpec(prefix + "ffn_norm.weight", (d,))
    for part in ("attn", "ffn"):
        yield TensorSpec(f"{prefix}hc_{part}_fn", (config.mix_size, hc * d), Storage.F32)
        yield TensorSpec(f"{prefix}hc_{part}_base", (config.mix_size,), Storage.F32)
        yield TensorSpec(f"{prefix}hc_{part}_scale", (3,), Storage.F32)
    attn = prefix + "attn."
    yield TensorSpec(attn + "attn_sink", (heads,), Storage.F32)
    yield TensorSpec(attn + "wq_a.weight", (config.q_lora_rank, d), Storage.FP8)
    yield TensorSpec(attn + "q_norm.weight", (config.q_lora_rank,))
    yield TensorSpec(attn + "wq_b.weight", (heads * head, config.q_lora_rank), Storage.FP8)
    yield TensorSpec(attn + "wkv.weight", (head, d), Storage.FP8)
    yield TensorSpec(attn + "kv_norm.weight", (head,))
    yield TensorSpec(attn + "wo_a.weight", (rank, heads * head // config.o_groups), Storage.FP8)
    yield TensorSpec(attn + "wo_b.weight", (d, rank), Storage.FP8)
    ffn = prefix + "ffn."
    yield TensorSpec(ffn + "gate.weight", (num_experts, d))
    yield TensorSpec(ffn + "gate.bias", (num_experts,), Storage.F32)
    yield TensorSpec(ffn + "gate.bias_vl", (num_experts,), Storage.F32)
    for e in range(num_experts):
        yield from _expert(f"{ffn}experts.{e}.", d, inter, Storage.FP4)
    yield from _expert(ffn + "shared_experts.", d, inter, Storage.FP8)


def _expert(prefix: str, d: int, inter: int, storage: Storage) -> Iterator[TensorSpec]:
    yield TensorSpec(prefix + "w1.weight", (inter, d), storage)
    yield TensorSpec(prefix + "w2.weight", (d, inter), storage)
    yield TensorSpec(prefix + "w3.weight", (inter, d), storage)


def _compressed(config: ModelConfig, attn: str, plan: LayerPlan) -> Iterator[TensorSpec]:
    d, head, width = config.hidden_size, config.head_dim, config.index_head_dim
    if plan.owns_compressor:
        yield TensorSpec(attn + "compressor.wkv.weight", (head, d))
        if plan.ratio > 1:
            yield TensorSpec(attn + "compressor.wgate.weight", (head, d))
        yield TensorSpec(attn + "compressor.norm.weight", (head,))
        yield TensorSpec(attn + "indexer.wk.weight", (width, head))
        yield TensorSpec(attn + "indexer.k_norm.weight", (width,))
    if plan.owns_indexer:
        rows = config.index_n_heads * width
        yield TensorSpec(attn + "indexer.wq_b.weight", (rows, config.q_lora_rank), Storage.FP8)
        yield TensorSpec(attn + "indexer.weights_proj.weight", (config.index_n_heads, d))


def _engram(config: ModelConfig, prefix: str, layer: int) -> Iterator[TensorSpec]:
    d, hc, width = config.hidden_size, config.hc_mult, config.engram_head_dim
    rows = config.engram_num_embeddings[config.engram_layer_ids.index(layer)]
    yield TensorSpec(prefix + "embed.weight", (rows, width), Storage.FP8_ROWS)
    joined = config.engram_columns * width
    yield TensorSpec(prefix + "wkv.weight", ((hc + 1) * d, joined), Storage.FP8)
    yield TensorSpec(prefix + "q_weight", (hc, d))
    yield TensorSpec(prefix + "k_weight", (hc, d))


def _draft(config: ModelConfig) -> Iterator[TensorSpec]:
    d, stages, rank = config.hidden_size, config.num_nextn_predict_layers, config.dspark_markov_rank
    if not stages:
        return
    for s in range(stages):
        yield from _block(config, f"mtp.{s}.", config.dspark_n_routed_experts)
    captured = len(config.dspark_target_layer_ids) * d
    yield TensorSpec("mtp.0.main_proj.weight", (d, captured), Storage.FP8)
    yield TensorSpec("mtp.0.main_norm.weight", (d,))
    last = f"mtp.{stages - 1}."
    yield TensorSpec(last + "norm.weight", (d,))
    yield TensorSpec(last + "markov_head.embed.weight", (config.vocab_size, rank))
    yield TensorSpec(last + "markov_head.head.weight", (config.vocab_size, rank))
    yield TensorSpec(last + "confidence_head.proj.weight", (1, d + rank))
