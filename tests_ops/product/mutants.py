"""The classic bugs of 8.6 and of paging and drafting, planted in the product from outside.

Each replaces one named function of `dsv41.model` while the block runs, and names the test of
`test_model_vs_oracle` that must then fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

from dsv41.model import attention, draft, forward, hyper, indexer, moe, paged, state
from dsv41.model.norms import rms_norm
from dsv41.model.rope import rotate
from dsv41.model.topk import top_k
from tests_ops.oracle.tiny import TINY

Patch = tuple[Any, str, Callable[[Any], Any]]

LAYERS = "test_every_layer_of_the_tiny_model_agrees"
UNCLIPPED = "test_a_swiglu_limit_of_0_clips_nothing"
DECODE = "test_one_token_decode_equals_prefill"
CHUNKS = "test_odd_chunks_over_pages_agree"
DRAFTS = "test_drafts_and_confidence_are_the_oracles"
LATE_DRAFTS = "test_drafts_after_chunks_are_those_after_one_piece"
SPECULATION = "test_speculation_gives_the_oracles_tokens_and_accept_counts"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """Functions replaced by `wrap(original)`, and the test that catches the bug."""

    name: str
    patches: tuple[Patch, ...]
    caught_by: str = LAYERS


def _instead(replacement: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda original: replacement


def _after(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda original: lambda *args, **kw: change(original(*args, **kw))


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

    return _instead(rotation)


class _Seen:
    """A segment with some of its answers replaced."""

    def __init__(self, segment: Any, **answers: Any) -> None:
        self._segment, self._answers = segment, answers

    def __getattr__(self, name: str) -> Any:
        return self._answers[name] if name in self._answers else getattr(self._segment, name)


def _short_reach(original: Any) -> Any:
    return lambda segment, *rest: original(_Seen(segment, positions=segment.positions - 1), *rest)


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


def _unit(x: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-20)


def _normed_query(projected: Any) -> Any:
    return projected._replace(query=_unit(projected.query))


def _narrow(original: Any) -> Any:
    return lambda keys, queries, window: original(keys, queries, window - 1)


def _keys_from_rotated(original: Any) -> Any:
    """compress() with the index key taken from the latent after its rotation (T-14)."""

    def compress(x: Any, params: Any, plan: Any, run: Any) -> None:
        kept: dict[str, Any] = {}

        def keep(field: Any, ratio: int, rows: Any) -> None:
            kept[field[0]] = rows

        original(x, params, plan, _Seen(run, state=_Seen(run.state, write_groups=keep)))
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

    return _instead(route)


def _swiglu(clip: Callable[[Any, Any, float], tuple[Any, Any]]) -> Callable[[Any], Any]:
    def swiglu(joined: Any, weight: Any, limit: float) -> Any:
        gate, up = clip(*joined.chunk(2, dim=-1), limit)
        hidden = F.silu(gate) * up
        return hidden if weight is None else hidden * weight

    return _instead(swiglu)


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

    return _instead(memory)


def _rank_major(attended: Any, params: Any, inverse: Any, rounding: Any) -> Any:
    groups = params.wo_a.shape[0]
    turned = rotate(attended, inverse).unflatten(1, (groups, -1)).flatten(2)
    low = torch.bmm(turned.transpose(0, 1), params.wo_a)
    return low.permute(1, 2, 0).flatten(1) @ params.wo_b


def _everywhere(name: str, wrap: Callable[[Any], Any]) -> tuple[Patch, ...]:
    """A function that backbone and draft stages imported by name."""
    return ((attention, name, wrap), (draft, name, wrap))


BACKBONE = [
    Mutant(name="hc-pre-not-delayed", patches=((forward, "block", _instead(_own_mix_block)),)),
    Mutant(
        name="hc-comb-transposed",
        patches=((hyper, "mixes", _after(lambda mix: mix._replace(comb=mix.comb.mT))),),
    ),
    Mutant(name="sinkhorn-1-iteration", patches=((hyper, "sinkhorn", _iterations(1)),)),
    Mutant(name="sinkhorn-3-iterations", patches=((hyper, "sinkhorn", _iterations(3)),)),
    Mutant(
        name="hc-post-without-factor-2",
        patches=((hyper, "mixes", _after(lambda mix: mix._replace(post=mix.post / 2))),),
    ),
    Mutant(name="no-inverse-rope-on-output", patches=((attention, "project_out", _no_inverse),)),
    Mutant(name="rope-half-split", patches=_everywhere("rotate", _instead(_half_split))),
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
    Mutant(name="per-head-q-norm", patches=((attention, "project", _after(_normed_query)),)),
    Mutant(name="window-one-short", patches=((state, "band", _narrow),)),
    Mutant(
        name="candidate-mask-ignored",
        patches=((attention, "select", _replanned(is_candidate_reader=False)),),
    ),
    Mutant(name="newest-block-not-pinned", patches=((indexer, "candidate_mask", _unpinned),)),
    Mutant(
        name="reindex-layer-keeps-old-selection", patches=((attention, "_publish", _no_reindex),)
    ),
    Mutant(name="second-r2-source-ignored", patches=((attention, "select", _first_r2_source),)),
    Mutant(name="index-score-without-relu", patches=((indexer, "scores", _instead(_no_relu)),)),
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
        patches=((forward, "engram", _instead(lambda stream, *rest: stream)),),
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
    Mutant(name="wo-a-rank-major", patches=((attention, "project_out", _instead(_rank_major)),)),
]


def _forgets(kind: str) -> Callable[[Any], Any]:
    """`before` sees nothing older than this step's first token, for one kind of field."""

    def wrap(original: Any) -> Any:
        def before(self: Any, field: Any, rows: Any, back: int) -> Any:
            found = original(self, field, rows, back)
            first = self.batch.seq_lens - self.batch.query_start.diff()
            old = self.positions - back < first[self.request]
            return found.masked_fill(old.unsqueeze(-1), 0) if field[0] == kind else found

        return before

    return wrap


def _window_of_the_chunk(original: Any) -> Any:
    """Window rows of earlier chunks are lost (T-23)."""

    def window(self: Any, field: Any) -> Any:
        rows, visible = original(self, field)
        # Columns stand at first - (W - 1), .., so the chunk's own rows begin at column W - 1.
        own = torch.arange(visible.shape[-1]) >= self.state.window_size - 1
        return rows, visible & own

    return window


def _with_keys_of(segment: Any, layer: int) -> _Seen:
    def groups(field: Any, ratio: int) -> Any:
        if field[0] != "key":
            return segment.groups(field, ratio)
        return segment.groups(("key", layer), 1)[:, : segment.num_groups(ratio)]

    return _Seen(segment, groups=groups)


def _stale_keys(original: Any) -> Any:
    """The released reference's quirk: a half-filled group scores the keys published last (U-18)."""

    def select(segment: Any, query: Any, weight: Any, plan: Any, config: Any, *rest: Any) -> Any:
        half_filled = plan.ratio == 2 and segment.positions.numel() == 1
        if half_filled and int(segment.positions) % 2 == 0:
            segment = _with_keys_of(segment, max(config.kv_source_layer_ids))
        return original(segment, query, weight, plan, config, *rest)

    return select


PAGED = [
    Mutant(
        name="half-group-dropped-at-chunk-edge",
        patches=((paged.PagedState, "before", _forgets("raw")),),
        caught_by=CHUNKS,
    ),
    Mutant(
        name="engram-history-reset-at-chunk-start",
        patches=((paged.PagedState, "before", _forgets("token")),),
        caught_by=CHUNKS,
    ),
    Mutant(
        name="window-lost-at-chunk-start",
        patches=((paged.PagedSegment, "window", _window_of_the_chunk),),
        caught_by=CHUNKS,
    ),
    Mutant(
        name="window-one-short-over-pages", patches=((paged, "band", _narrow),), caught_by=CHUNKS
    ),
    Mutant(
        name="stale-index-keys-in-decode",
        patches=((attention, "select", _stale_keys),),
        caught_by=DECODE,
    ),
]


def _causal(original: Any) -> Any:
    def attend(query: Any, keys: Any, visible: Any, sink: Any) -> Any:
        size = query.shape[1]
        ahead = torch.ones(size, size, dtype=torch.bool).triu(1)
        visible = visible.clone()
        visible[..., -size:] &= ~ahead
        return original(query, keys, visible, sink)

    return attend


def _leaving_captures(original: Any) -> Any:
    """Captures of what leaves the target layers instead of what enters them."""

    def run_layers(params: Any, run: Any, token_ids: Any, token_map: Any) -> Any:
        kept, block = [], forward.block

        def keeping(stream: Any, carried: Any, layer: Any, plan: Any, scratch: Any) -> Any:
            stream, carried = block(stream, carried, layer, plan, scratch)
            if plan.is_captured:
                kept.append(stream.mean(1))
            return stream, carried

        with mock.patch.object(forward, "block", keeping):
            hidden = original(params, run, token_ids, token_map)
        return hidden._replace(captured=torch.cat(kept, -1))

    return run_layers


def _other_noise(original: Any) -> Any:
    def draft_hidden(params: Any, config: Any, *rest: Any) -> Any:
        return original(params, replace(config, dspark_noise_token_id=0), *rest)

    return draft_hidden


def _late_context(original: Any) -> Any:
    def rows(captured: Any, params: Any, config: Any, rotation: Any, rounding: Any) -> Any:
        one = forward.rotation_rows(config, torch.tensor([1]), config.head_dim, compressed=False)
        return original(captured, params, config, rotation * one, rounding)

    return rows


def _no_main_norm(original: Any) -> Any:
    def rows(captured: Any, params: Any, *rest: Any) -> Any:
        plain = replace(params, main_norm=torch.ones_like(params.main_norm))
        return original(captured, plain, *rest)

    return rows


def _normed_confidence(original: Any) -> Any:
    def corrected(folded: Any, base: Any, previous: Any, params: Any) -> Any:
        scored, _ = original(folded, base, previous, params)
        _, confidence = original(_unit(folded) * params.norm, base, previous, params)
        return scored, confidence

    return corrected


def _markov_of_anchor(folded: Any, anchor: Any, params: Any, config: Any) -> Any:
    previous = anchor.unsqueeze(1).expand(folded.shape[:2])
    base = draft.base_logits(folded, params, config)
    scored, confidence = draft.corrected(folded, base, previous, params.draft)
    return draft.Drafts(scored.argmax(-1), confidence)


def _noise(folded: Any, anchor: Any, params: Any, config: Any) -> Any:
    shape = folded.shape[:2]
    tokens = (anchor.unsqueeze(1) * 31 + 17 * torch.arange(shape[1])) % config.vocab_size
    return draft.Drafts(tokens, torch.zeros(shape))


DRAFT = [
    Mutant(name="draft-block-causal", patches=((draft, "attend", _causal),), caught_by=DRAFTS),
    Mutant(
        name="draft-captures-layer-outputs",
        patches=((forward, "run_layers", _leaving_captures),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-noise-id-wrong",
        patches=((draft, "draft_hidden", _other_noise),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-context-one-late",
        patches=((draft, "context_rows", _late_context),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-no-main-norm",
        patches=((draft, "context_rows", _no_main_norm),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-confidence-after-norm",
        patches=((draft, "corrected", _normed_confidence),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-markov-from-anchor",
        patches=((draft, "greedy_drafts", _instead(_markov_of_anchor)),),
        caught_by=DRAFTS,
    ),
    Mutant(
        name="draft-context-never-written",
        patches=((draft, "write_context", _instead(lambda *args: None)),),
        caught_by=LATE_DRAFTS,
    ),
    Mutant(
        name="drafter-returns-noise",
        patches=((draft, "greedy_drafts", _instead(_noise)),),
        caught_by=SPECULATION,
    ),
]

MUTANTS = {mutant.name: mutant for mutant in BACKBONE + PAGED + DRAFT}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The named bug is in the product inside the block."""
    with contextlib.ExitStack() as stack:
        for owner, function, wrap in MUTANTS[name].patches:
            original = getattr(owner, function)
            stack.enter_context(mock.patch.object(owner, function, wrap(original)))
        yield
