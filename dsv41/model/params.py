"""A flat dictionary of weights turned into the nested records that the layers read.

The flat dictionary holds the official names, except that the experts of a layer are stacked:
`layers.L.ffn.experts.w1.weight` is `[experts, inter, hidden]`.  `bind` only views, concatenates
and reorders, so gradients flow through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dsv41.model.config import LayerPlan, ModelConfig
from dsv41.model.names import TensorSpec, text_tensors

_STACKED_EXPERTS = 16  # more than this and a second copy of the experts is too much


@dataclass(frozen=True)
class MixParams:
    """One hyper-connection mix: `fn [hc*d, mix]`, `base [mix]`, `scale [mix]`, all float32."""

    fn: Tensor
    base: Tensor
    scale: Tensor


@dataclass(frozen=True)
class MoeParams:
    """Router and experts; `w13` holds w1 above w3, both transposed for `x @ w`."""

    gate: Tensor  # [d, experts] float32
    bias: Tensor  # [experts] float32
    w13: Tensor  # [experts, d, 2*inter]
    w2: Tensor  # [experts, inter, d]
    shared_w13: Tensor  # [d, 2*inter]
    shared_w2: Tensor  # [inter, d]
    num_experts_per_tok: int
    # Few experts and no gradients: all of them, and the shared one last, as one matrix each.
    every_w13: Tensor | None = None  # [d, (experts+1) * 2*inter]
    every_w2: Tensor | None = None  # [(experts+1) * inter, d]


@dataclass(frozen=True)
class CompressorParams:
    """Latent projection and index key of a kv source; `wkv` carries the gate beside it at R=2."""

    wkv: Tensor  # [d, D] or [d, 2*D]
    norm: Tensor  # [D]
    wk: Tensor  # [D, index_head_dim]
    k_norm: Tensor  # [index_head_dim]


@dataclass(frozen=True)
class IndexerParams:
    """Query side of an index source."""

    wq_b: Tensor  # [q_lora_rank, index heads * index_head_dim]
    weights_proj: Tensor  # [d, index heads]


@dataclass(frozen=True)
class AttentionParams:
    """Low-rank queries, the shared key/value row and the grouped output projection."""

    wq_a_kv: Tensor  # [d, q_lora_rank + D]: wq_a beside wkv, one product for both
    q_norm: Tensor
    wq_b: Tensor  # [q_lora_rank, heads * D]
    kv_norm: Tensor
    wo_a: Tensor  # [groups, heads*D/groups, rank]
    wo_b: Tensor  # [groups*rank, d]
    sink: Tensor  # [heads] float32
    compressor: CompressorParams | None
    indexer: IndexerParams | None


@dataclass(frozen=True)
class EngramParams:
    """The n-gram table `[rows, width]`, its projection and the per-copy gate weights."""

    table: Tensor
    wkv: Tensor  # [columns*width, (hc+1)*d]
    gate_weight: Tensor  # [hc, d]: q_weight * k_weight


@dataclass(frozen=True)
class BlockParams:
    """One layer: the two mixes, attention, experts, and an n-gram memory where it has one."""

    attn_norm: Tensor
    ffn_norm: Tensor
    attn_mix: MixParams
    ffn_mix: MixParams
    attn: AttentionParams
    moe: MoeParams
    engram: EngramParams | None


@dataclass(frozen=True)
class DraftParams:
    """The draft stages, the projection of the captured streams and the two heads."""

    main_proj: Tensor  # [captured*d, d]
    main_norm: Tensor
    stages: tuple[BlockParams, ...]
    context_wkv: Tensor  # [d, stages*D]: every stage's wkv side by side
    context_norms: Tensor  # [stages, D]
    norm: Tensor
    markov_embed: Tensor  # [vocab, rank]
    markov_head: Tensor  # [rank, vocab]
    confidence: Tensor  # [d + rank, 1]


@dataclass(frozen=True)
class ModelParams:
    """Everything that `forward` reads."""

    embed: Tensor  # [vocab, d]
    head: Tensor  # [d, vocab] float32
    norm: Tensor
    layers: tuple[BlockParams, ...]
    draft: DraftParams | None


def flat_tensors(config: ModelConfig) -> Iterator[TensorSpec]:
    """The names and shapes of the flat dictionary: official ones with experts stacked."""
    for spec in text_tensors(config):
        stacked = stacked_name(spec.name)
        if stacked is None:
            yield spec
        elif stacked[1] == 0:
            num = config.dspark_n_routed_experts if spec.name[0] == "m" else config.n_routed_experts
            yield replace(spec, name=stacked[0], shape=(num, *spec.shape))


def stacked_name(name: str) -> tuple[str, int] | None:
    """`(flat name, expert)` of an official expert weight, `None` of any other name."""
    head, found, tail = name.partition(".experts.")
    if not found:
        return None
    expert, _, weight = tail.partition(".")
    return f"{head}.experts.{weight}", int(expert)


def bind(weights: Mapping[str, Tensor], config: ModelConfig) -> ModelParams:
    """Nest the flat dictionary; a missing name raises `KeyError` with that name."""
    draft = _draft(weights, config) if config.num_nextn_predict_layers else None
    return ModelParams(
        embed=weights["embed.weight"],
        head=weights["head.weight"].float().t(),
        norm=weights["norm.weight"],
        layers=tuple(_layer(weights, config, plan) for plan in config.layer_plans()),
        draft=draft,
    )


def _layer(weights: Mapping[str, Tensor], config: ModelConfig, plan: LayerPlan) -> BlockParams:
    block = _block(weights, config, f"layers.{plan.index}.", config.num_experts_per_tok)
    attn, prefix = block.attn, f"layers.{plan.index}.attn."
    if plan.owns_compressor:
        wkv = weights[prefix + "compressor.wkv.weight"]
        if plan.ratio > 1:
            # Pooling is float32 throughout, so that decoding equals prefilling.
            wkv = torch.cat((wkv, weights[prefix + "compressor.wgate.weight"])).float()
        compressor = CompressorParams(
            wkv=wkv.t(),
            norm=weights[prefix + "compressor.norm.weight"],
            wk=weights[prefix + "indexer.wk.weight"].t(),
            k_norm=weights[prefix + "indexer.k_norm.weight"],
        )
        attn = replace(attn, compressor=compressor)
    if plan.owns_indexer:
        indexer = IndexerParams(
            wq_b=weights[prefix + "indexer.wq_b.weight"].t(),
            weights_proj=weights[prefix + "indexer.weights_proj.weight"].t(),
        )
        attn = replace(attn, indexer=indexer)
    engram = _engram(weights, f"layers.{plan.index}.engram.") if plan.has_engram else None
    return replace(block, attn=attn, engram=engram)


def _block(
    weights: Mapping[str, Tensor], config: ModelConfig, prefix: str, per_token: int
) -> BlockParams:
    attn, ffn, groups = prefix + "attn.", prefix + "ffn.", config.o_groups
    wo_a = weights[attn + "wo_a.weight"]
    experts, shared = ffn + "experts.", ffn + "shared_experts."
    return BlockParams(
        attn_norm=weights[prefix + "attn_norm.weight"],
        ffn_norm=weights[prefix + "ffn_norm.weight"],
        attn_mix=_mix(weights, config, prefix + "hc_attn"),
        ffn_mix=_mix(weights, config, prefix + "hc_ffn"),
        attn=AttentionParams(
            wq_a_kv=torch.cat((weights[attn + "wq_a.weight"], weights[attn + "wkv.weight"])).t(),
            q_norm=weights[attn + "q_norm.weight"],
            wq_b=weights[attn + "wq_b.weight"].t(),
            kv_norm=weights[attn + "kv_norm.weight"],
            wo_a=wo_a.view(groups, -1, wo_a.shape[-1]).transpose(1, 2),
            wo_b=weights[attn + "wo_b.weight"].t(),
            sink=weights[attn + "attn_sink"].float(),
            compressor=None,
            indexer=None,
        ),
        moe=_stack(
            MoeParams(
                gate=weights[ffn + "gate.weight"].float().t(),
                bias=weights[ffn + "gate.bias"].float(),
                w13=_side_by_side(weights, experts),
                w2=weights[experts + "w2.weight"].transpose(-1, -2),
                shared_w13=_side_by_side(weights, shared),
                shared_w2=weights[shared + "w2.weight"].t(),
                num_experts_per_tok=per_token,
            )
        ),
        engram=None,
    )


def _stack(moe: MoeParams) -> MoeParams:
    if moe.bias.shape[0] > _STACKED_EXPERTS or moe.w2.requires_grad:
        return moe
    w13 = torch.cat((moe.w13, moe.shared_w13.unsqueeze(0)))
    w2 = torch.cat((moe.w2, moe.shared_w2.unsqueeze(0)))
    return replace(moe, every_w13=w13.transpose(0, 1).flatten(1), every_w2=w2.flatten(0, 1))


def _side_by_side(weights: Mapping[str, Tensor], prefix: str) -> Tensor:
    parts = (weights[prefix + "w1.weight"], weights[prefix + "w3.weight"])
    return torch.cat(parts, dim=-2).transpose(-1, -2)


def _mix(weights: Mapping[str, Tensor], config: ModelConfig, name: str) -> MixParams:
    hc = config.hc_mult
    counts = torch.tensor([hc, hc, hc * hc])
    scale = torch.repeat_interleave(weights[name + "_scale"].float(), counts)
    return MixParams(
        fn=weights[name + "_fn"].float().t(), base=weights[name + "_base"].float(), scale=scale
    )


def _engram(weights: Mapping[str, Tensor], prefix: str) -> EngramParams:
    return EngramParams(
        table=weights[prefix + "embed.weight"],
        wkv=weights[prefix + "wkv.weight"].t(),
        gate_weight=weights[prefix + "q_weight"].float() * weights[prefix + "k_weight"].float(),
    )


def _draft(weights: Mapping[str, Tensor], config: ModelConfig) -> DraftParams:
    stages = config.num_nextn_predict_layers
    last = f"mtp.{stages - 1}."
    wkv = torch.cat([weights[f"mtp.{s}.attn.wkv.weight"] for s in range(stages)])
    per_token = config.dspark_num_experts_per_tok
    return DraftParams(
        main_proj=weights["mtp.0.main_proj.weight"].t(),
        main_norm=weights["mtp.0.main_norm.weight"],
        stages=tuple(_block(weights, config, f"mtp.{s}.", per_token) for s in range(stages)),
        context_wkv=wkv.t(),
        context_norms=torch.stack([weights[f"mtp.{s}.attn.kv_norm.weight"] for s in range(stages)]),
        norm=weights[last + "norm.weight"],
        markov_embed=weights[last + "markov_head.embed.weight"],
        markov_head=weights[last + "markov_head.head.weight"].float().t(),
        confidence=weights[last + "confidence_head.proj.weight"].float().t(),
    )
