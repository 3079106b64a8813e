"""The classic bugs of the backbone (8.6), planted in the product from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional as F

from dsv41.model import attention, draft, forward, hyper, indexer, moe, state
from dsv41.model.norms import rms_norm
from dsv41.model.rope import rotate
from dsv41.model.topk import top_k
from tests_ops.oracle.tiny import TINY
from tests_ops.product.planting import UNCLIPPED, Mutant, Patch, Seen, after, instead


def _own_mix_block(stream: Any, carried: Any, params: Any, plan: Any, run: Any) -> Any:
    config = run.config
    mix = hyper.mixes(stream, params.attn_mix, config)
    x = rms_norm(hyper.collapse(stream, mix.pre), params.attn_norm, config.rms_norm_eps)
    stream = hyper.expand(attention.attention(x, params.attn, plan, run), stream, mix)
    own = hyper.mixes(stream, params.ffn_mix, config).pre
    return forward.feed_forward(stream, own, params, config, run.rounding)


def _iterations(count: int) -> Callable[[Any], Any]:
    return lambda original: lambda logits, iterations, eps: original(logits, count, eps)


def _no_inverse(original: Any) -> Any:
    return lambda attended, params, inverse, rounding: original(
        attended, params, torch.ones_like(inverse), rounding
    )


def _half_split(x: Any, rotation: Any) -> Any:
    k = _PAIRS
    turn = rotation[..., -k:].unsqueeze(1) if x.dim() == 3 else rotation[..., -k:]
    kept, first, second = x[..., : -2 * k], x[..., -2 * k : -k], x[..., -k:]
    real = first * turn.real - second * turn.imag
    return torch.cat((kept, real, first * turn.imag + second * turn.real), -1)


_PAIRS = TINY["qk_rope_head_dim"] // 2


def _table_a(original: Any) -> Any:
    return lambda *args, compressed: original(*args, compressed=False)


def _group_rotation(first: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    def rotation(self: Any, ratio: int, width: int) -> Any:
        positions = first(self.state.positions, ratio)
        return forward.rotation_rows(self.config, positions, width, compressed=True)

    return instead(rotation)


def _short_reach(original: Any) -> Any:
    return lambda segment, *rest: original(Seen(segment, positions=segment.positions - 1), *rest)


def _replanned(**changes: Any) -> Callable[[Any], Any]:
    """select() with a changed layer plan."""

    def wrap(original: Any) -> Any:
        def select(segment: Any, query: Any, weight: Any, plan: Any, *rest: Any) -> Any:
            return original(segment, query, weight, replace(plan, **changes), *rest)

        return select

    return wrap


def _first_r2_source(original: Any) -> Any:
    def select(segment: Any, query: Any, weight: Any, plan: Any, config: Any, *rest: Any) -> Any:
        if plan.ratio == 2:
            plan = replace(plan, kv_source=min(config.kv_source_layer_ids))
        return original(segment, query, weight, plan, config, *rest)

    return select


def _unpinned(original: Any) -> Any:
    return lambda score, reach, config: original(score, torch.zeros_like(reach), config)


def _no_reindex(original: Any) -> Any:
    def publish(x: Any, low_rank: Any, params: Any, plan: Any, run: Any) -> None:
        if not plan.is_candidate_reader:
            original(x, low_rank, params, plan, run)

    return publish


def _no_relu(query: Any, weight: Any, keys: Any) -> Any:
    return torch.einsum("rqaw,rtw,rqa->rqt", query, keys, weight)


def _sink(change: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda original: (
        lambda query, keys, visible, sink: original(query, keys, visible, change(sink, query))
    )


def unit(x: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-20)


def _normed_query(projected: Any) -> Any:
    return projected._replace(query=unit(projected.query))


def narrow(original: Any) -> Any:
    return lambda keys, queries, window: original(keys, queries, window - 1)


def _keys_from_rotated(original: Any) -> Any:
    """compress() with the index key taken from the latent after its rotation (T-14)."""

    def compress(x: Any, params: Any, plan: Any, run: Any) -> None:
        kept: dict[str, Any] = {}

        def keep(field: Any, ratio: int, rows: Any) -> None:
            kept[field[0]] = rows

        original(x, params, plan, Seen(run, state=Seen(run.state, write_groups=keep)))
        latent, eps = kept["latent"], run.config.rms_norm_eps
        key = rms_norm(latent @ params.wk, params.k_norm, eps)
        key = rotate(key, run.group_rotation(plan.ratio, run.config.index_head_dim))
        run.state.write_groups(("latent", plan.index), plan.ratio, latent)
        run.state.write_groups(("key", plan.index), plan.ratio, key)

    return compress


def _route(root: bool = True, biased: bool = False, scaled: bool = True) -> Callable[[Any], Any]:
    def route(x: Any, params: Any, config: Any) -> Any:
        score = F.softplus(x @ params.gate)
        score = score.sqrt() if root else score
        index = top_k(score + params.bias, params.num_experts_per_tok)
        weight = (score + params.bias if biased else score).gather(-1, index)
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        return index, weight * (config.routed_scaling_factor if scaled else 1.0)

    return instead(route)


def _swiglu(clip: Callable[[Any, Any, float], tuple[Any, Any]]) -> Callable[[Any], Any]:
    def swiglu(joined: Any, weight: Any, limit: float) -> Any:
        gate, up = clip(*joined.chunk(2, dim=-1), limit)
        hidden = F.silu(gate) * up
        return hidden if weight is None else hidden * weight

    return instead(swiglu)


def _wrong_pad(original: Any) -> Any:
    return lambda run_state, compressed, pad, config: original(
        run_state, compressed, pad + 1, config
    )


def _engram(root: bool, joint: bool) -> Callable[[Any], Any]:
    def memory(stream: Any, rows: Any, params: Any, config: Any, rounding: Any) -> Any:
        hc, d, over = config.hc_mult, config.hidden_size, (-2, -1) if joint else (-1,)
        joined = F.embedding(rows, params.table).flatten(-2) @ params.wkv
        key, value = joined[:, : hc * d].unflatten(-1, (hc, d)), joined[:, hc * d :]
        norm = (stream.square().mean(over) * key.square().mean(over)).rsqrt()
        dot = (stream * params.gate_weight * key).sum(-1) * d**-0.5
        dot = dot * (norm.unsqueeze(-1) if joint else norm)
        rooted = torch.copysign(dot.abs().clamp(min=1e-6).sqrt(), dot)
        gate = (rooted if root else dot).sigmoid()
        return stream + gate.unsqueeze(-1) * value.unsqueeze(1)

    return instead(memory)


def _rank_major(attended: Any, params: Any, inverse: Any, rounding: Any) -> Any:
    groups = params.wo_a.shape[0]
    turned = rotate(attended, inverse).unflatten(1, (groups, -1)).flatten(2)
    low = torch.bmm(turned.transpose(0, 1), params.wo_a)
    return low.permute(1, 2, 0).flatten(1) @ params.wo_b


def _everywhere(name: str, wrap: Callable[[Any], Any]) -> tuple[Patch, ...]:
    """A function that backbone and draft stages imported by name."""
    return ((attention, name, wrap), (draft, name, wrap))


BACKBONE = [
    Mutant(name="hc-pre-not-delayed", patches=((forward, "block", instead(_own_mix_block)),)),
    Mutant(
        name="hc-comb-transposed",
        patches=((hyper, "mixes", after(lambda mix: mix._replace(comb=mix.comb.mT))),),
    ),
    Mutant(name="sinkhorn-1-iteration", patches=((hyper, "sinkhorn", _iterations(1)),)),
    Mutant(name="sinkhorn-3-iterations", patches=((hyper, "sinkhorn", _iterations(3)),)),
    Mutant(
        name="hc-post-without-factor-2",
        patches=((hyper, "mixes", after(lambda mix: mix._replace(post=mix.post / 2))),),
    ),
    Mutant(name="no-inverse-rope-on-output", patches=((attention, "project_out", _no_inverse),)),
    Mutant(name="rope-half-split", patches=_everywhere("rotate", instead(_half_split))),
    Mutant(
        name="rope-table-a-on-compressed-layers",
        patches=((forward, "rotation_rows", _table_a),),
    ),
    Mutant(
        name="latent-at-last-token-of-group",
        patches=((forward.Forward, "group_rotation", _group_rotation(lambda p, r: p)),),
    ),
    Mutant(
        name="latent-at-group-index",
        patches=((forward.Forward, "group_rotation", _group_rotation(lambda p, r: p // r)),),
    ),
    Mutant(name="reach-floor-p-over-r", patches=((attention, "select", _short_reach),)),
    Mutant(
        name="no-attention-sink",
        patches=((attention, "attend", _sink(lambda s, q: torch.full_like(s, -torch.inf))),),
    ),
    Mutant(
        name="sink-scaled",
        patches=((attention, "attend", _sink(lambda s, q: s * q.shape[-1] ** -0.5)),),
    ),
    Mutant(name="per-head-q-norm", patches=((attention, "project", after(_normed_query)),)),
    Mutant(name="window-one-short", patches=((state, "band", narrow),)),
    Mutant(
        name="candidate-mask-ignored",
        patches=((attention, "select", _replanned(is_candidate_reader=False)),),
    ),
    Mutant(name="newest-block-not-pinned", patches=((indexer, "candidate_mask", _unpinned),)),
    Mutant(
        name="reindex-layer-keeps-old-selection", patches=((attention, "_publish", _no_reindex),)
    ),
    Mutant(name="second-r2-source-ignored", patches=((attention, "select", _first_r2_source),)),
    Mutant(name="index-score-without-relu", patches=((indexer, "scores", instead(_no_relu)),)),
    Mutant(
        name="index-key-from-rotated-latent",
        patches=((attention, "compress", _keys_from_rotated),),
    ),
    Mutant(name="router-softplus-without-sqrt", patches=((moe, "route", _route(root=False)),)),
    Mutant(
        name="routing-weights-from-biased-scores", patches=((moe, "route", _route(biased=True)),)
    ),
    Mutant(name="no-routed-scaling", patches=((moe, "route", _route(scaled=False)),)),
    Mutant(
        name="swiglu-clamp-missing",
        patches=((moe, "swiglu", _swiglu(lambda g, u, limit: (g, u))),),
    ),
    Mutant(
        name="swiglu-gate-clamped-both-sides",
        patches=(
            (
                moe,
                "swiglu",
                _swiglu(lambda g, u, limit: (g.clamp(-limit, limit), u.clamp(-limit, limit))),
            ),
        ),
    ),
    Mutant(
        name="swiglu-limit-0-clips-to-0",
        patches=(
            (
                moe,
                "swiglu",
                _swiglu(lambda g, u, limit: (g.clamp(max=limit), u.clamp(-limit, limit))),
            ),
        ),
        caught_by=UNCLIPPED,
    ),
    Mutant(
        name="engram-off",
        patches=((forward, "engram", instead(lambda stream, *rest: stream)),),
    ),
    Mutant(name="engram-pad-id-wrong", patches=((forward, "lookback", _wrong_pad),)),
    Mutant(
        name="engram-gate-without-signed-root",
        patches=((forward, "engram", _engram(root=False, joint=False)),),
    ),
    Mutant(
        name="engram-norm-joint-over-copies",
        patches=((forward, "engram", _engram(root=True, joint=True)),),
    ),
    Mutant(name="wo-a-rank-major", patches=((attention, "project_out", instead(_rank_major)),)),
]
