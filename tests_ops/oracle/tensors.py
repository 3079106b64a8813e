"""Config dict -> every checkpoint tensor with shape, storage and scale shape. Section 5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

BITS = {"F32": 32, "BF16": 16, "F8": 8, "FP4": 4}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A weight; F8 and FP4 ones have a `.scale` tensor of E8M0 bytes beside them."""

    name: str
    shape: tuple[int, ...]  # logical: an FP4 weight holds two values per stored byte
    storage: str

    @property
    def scale_shape(self) -> tuple[int, int] | None:
        """Scale grid: 32x32 tiles for F8, per row and 32 columns for FP4 and Engram rows."""
        if self.storage not in ("F8", "FP4"):
            return None
        rows, columns = self.shape
        per_row = self.storage == "FP4" or self.name.endswith("engram.embed.weight")
        return (rows if per_row else -(-rows // 32), -(-columns // 32))

    @property
    def parameters(self) -> int:
        """Values; scales do not count."""
        return prod(self.shape)

    @property
    def payload_bytes(self) -> int:
        """Stored bytes with the scales."""
        scales = prod(self.scale_shape) if self.scale_shape else 0
        return self.parameters * BITS[self.storage] // 8 + scales


def text_entries(c: Mapping[str, Any]) -> list[Entry]:
    """Backbone and draft module, without vision and image delimiters."""
    return [*_top(c), *_backbone(c), *_draft(c)]


def vision_entries(text: Mapping[str, Any], vision: Mapping[str, Any]) -> list[Entry]:
    """Vision tower, aligner and the three delimiter vectors; only counted, never run."""
    d, v = text["hidden_size"], vision["hidden_size"]
    inner, patch = vision["intermediate_size"], vision["patch_size"]
    joined = v * vision["downsample_ratio"] ** 2
    shapes: dict[str, tuple[int, ...]] = {
        "image_start": (d,),
        "image_end": (d,),
        "image_newline": (d,),
        "vision.patch_embed.proj.weight": (v, 3 * patch**2),
        "vision.patch_embed.proj.bias": (v,),
        "vision.norm.weight": (v,),
        "aligner.w1.weight": (d, joined),
        "aligner.w1.bias": (d,),
        "aligner.w2.weight": (d, d),
        "aligner.w2.bias": (d,),
    }
    for n in range(vision["num_hidden_layers"]):
        block = f"vision.blocks.{n}"
        shapes |= {
            f"{block}.attn.wqkv.weight": (3 * v, v),
            f"{block}.attn.wqkv.bias": (3 * v,),
            f"{block}.attn.wo.weight": (v, v),
            f"{block}.attn.wo.bias": (v,),
            f"{block}.mlp.w1.weight": (2 * inner, v),
            f"{block}.mlp.w2.weight": (v, inner),
            f"{block}.norm1.weight": (v,),
            f"{block}.norm2.weight": (v,),
        }
    return [Entry(name=name, shape=shape, storage="BF16") for name, shape in shapes.items()]


def _top(c: Mapping[str, Any]) -> Iterator[Entry]:
    table = (c["vocab_size"], c["hidden_size"])
    yield Entry(name="embed.weight", shape=table, storage="BF16")
    yield Entry(name="head.weight", shape=table, storage="BF16")
    yield Entry(name="norm.weight", shape=(c["hidden_size"],), storage="BF16")


def _backbone(c: Mapping[str, Any]) -> Iterator[Entry]:
    for layer in range(c["num_hidden_layers"]):
        prefix = f"layers.{layer}"
        yield from _block(c, prefix, c["n_routed_experts"])
        yield from _sources(c, layer, f"{prefix}.attn")
        if layer in c["engram_layer_ids"]:
            yield from _engram(c, layer, f"{prefix}.engram")


def _block(c: Mapping[str, Any], prefix: str, experts: int) -> Iterator[Entry]:
    d, hc, head = c["hidden_size"], c["hc_mult"], c["head_dim"]
    q_rank, inner = c["q_lora_rank"], c["moe_intermediate_size"]
    heads = c["num_attention_heads"]
    o_rows = c["o_groups"] * c["o_lora_rank"]
    plain: dict[str, tuple[tuple[int, ...], str]] = {
        "attn_norm.weight": ((d,), "BF16"),
        "ffn_norm.weight": ((d,), "BF16"),
        "attn.attn_sink": ((heads,), "F32"),
        "attn.wq_a.weight": ((q_rank, d), "F8"),
        "attn.q_norm.weight": ((q_rank,), "BF16"),
        "attn.wq_b.weight": ((heads * head, q_rank), "F8"),
        "attn.wkv.weight": ((head, d), "F8"),
        "attn.kv_norm.weight": ((head,), "BF16"),
        "attn.wo_a.weight": ((o_rows, heads * head // c["o_groups"]), "F8"),
        "attn.wo_b.weight": ((d, o_rows), "F8"),
        "ffn.gate.weight": ((experts, d), "BF16"),
        "ffn.gate.bias": ((experts,), "F32"),
        "ffn.gate.bias_vl": ((experts,), "F32"),
    }
    for kind in ("attn", "ffn"):
        plain[f"hc_{kind}_fn"] = (((2 + hc) * hc, hc * d), "F32")
        plain[f"hc_{kind}_base"] = (((2 + hc) * hc,), "F32")
        plain[f"hc_{kind}_scale"] = ((3,), "F32")
    names = [("ffn.shared_experts", "F8"), *((f"ffn.experts.{e}", "FP4") for e in range(experts))]
    for name, storage in names:
        plain[f"{name}.w1.weight"] = ((inner, d), storage)
        plain[f"{name}.w3.weight"] = ((inner, d), storage)
        plain[f"{name}.w2.weight"] = ((d, inner), storage)
    for name, (shape, storage) in plain.items():
        yield Entry(name=f"{prefix}.{name}", shape=shape, storage=storage)


def _sources(c: Mapping[str, Any], layer: int, prefix: str) -> Iterator[Entry]:
    d, head = c["hidden_size"], c["head_dim"]
    index, heads = c["index_head_dim"], c["index_n_heads"]
    plain: dict[str, tuple[tuple[int, ...], str]] = {}
    if layer in c["kv_source_layer_ids"]:
        plain["compressor.wkv.weight"] = ((head, d), "BF16")
        if c["compress_ratios"][layer] > 1:
            plain["compressor.wgate.weight"] = ((head, d), "BF16")
        plain["compressor.norm.weight"] = ((head,), "BF16")
        plain["indexer.wk.weight"] = ((index, head), "BF16")
        plain["indexer.k_norm.weight"] = ((index,), "BF16")
    if layer in c["index_source_layer_ids"]:
        plain["indexer.wq_b.weight"] = ((heads * index, c["q_lora_rank"]), "F8")
        plain["indexer.weights_proj.weight"] = ((heads, d), "BF16")
    for name, (shape, storage) in plain.items():
        yield Entry(name=f"{prefix}.{name}", shape=shape, storage=storage)


def _engram(c: Mapping[str, Any], layer: int, prefix: str) -> Iterator[Entry]:
    d, hc, width = c["hidden_size"], c["hc_mult"], c["engram_head_dim"]
    rows = c["engram_num_embeddings"][list(c["engram_layer_ids"]).index(layer)]
    memory = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"] * width
    yield Entry(name=f"{prefix}.embed.weight", shape=(rows, width), storage="F8")
    yield Entry(name=f"{prefix}.wkv.weight", shape=((hc + 1) * d, memory), storage="F8")
    yield Entry(name=f"{prefix}.q_weight", shape=(hc, d), storage="BF16")
    yield Entry(name=f"{prefix}.k_weight", shape=(hc, d), storage="BF16")


def _draft(c: Mapping[str, Any]) -> Iterator[Entry]:
    d, rank, stages = c["hidden_size"], c["dspark_markov_rank"], c["num_nextn_predict_layers"]
    for stage in range(stages):
        yield from _block(c, f"mtp.{stage}", c["dspark_n_routed_experts"])
    if stages == 0:
        return
    wide = d * len(c["dspark_target_layer_ids"])
    last = f"mtp.{stages - 1}"
    yield Entry(name="mtp.0.main_proj.weight", shape=(d, wide), storage="F8")
    yield Entry(name="mtp.0.main_norm.weight", shape=(d,), storage="BF16")
    yield Entry(name=f"{last}.norm.weight", shape=(d,), storage="BF16")
    table = (c["vocab_size"], rank)
    yield Entry(name=f"{last}.markov_head.embed.weight", shape=table, storage="BF16")
    yield Entry(name=f"{last}.markov_head.head.weight", shape=table, storage="BF16")
    yield Entry(name=f"{last}.confidence_head.proj.weight", shape=(1, d + rank), storage="BF16")
