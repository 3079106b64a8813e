"""The classic bugs of 8.6 (and the draft's of T-32 ff.), each as a patch of one function.

`with planted("no-attention-sink"): ...` breaks the oracle inside the block only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

from tests_ops.oracle import (
    attention,
    compressor,
    dspark,
    engram,
    generate,
    hyper,
    indexer,
    model,
    moe,
    numerics,
    rope,
)

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """`module.function` replaced by `wrap(original)`.

    `earliest`: the first position it can change, worked out for the tiny config.
    `exact`: it does change that very position, whatever the weights.
    `least`: smallest max |logit difference| a test must see on 64 tokens of the tiny config.
    """

    name: str
    module: Any
    function: str
    wrap: Wrap
    earliest: int = 0
    exact: bool = False
    least: float = 0.1


def _constant(replacement: Callable[..., Any]) -> Wrap:
    return lambda original: replacement


def _after(change: Callable[[Any], Any]) -> Wrap:
    return lambda original: lambda *args, **kw: change(original(*args, **kw))


def _config(**changes: Any) -> Wrap:
    """Call the original with a changed config (first argument a Config or a Model)."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any, **kw: Any) -> Any:
            if hasattr(first, "cfg"):
                return original(replace(first, cfg=replace(first.cfg, **changes)), *rest, **kw)
            return original(replace(first, **changes), *rest, **kw)

        return call

    return wrap


def _own_mix_block(m: Any, prefix: str, h: Any, carried: Any, attend: Any, experts: Any) -> Any:
    eps = m.cfg.rms_norm_eps
    a_pre, a_post, a_comb = hyper.mixes(m, prefix, "attn", h)
    x = numerics.rms_norm(hyper.collapse(h, a_pre), m.w[f"{prefix}.attn_norm.weight"], eps)
    y_attn = attend(x)
    h = hyper.expand(y_attn, h, a_post, a_comb)
    f_pre, f_post, f_comb = hyper.mixes(m, prefix, "ffn", h)
    x = numerics.rms_norm(hyper.collapse(h, f_pre), m.w[f"{prefix}.ffn_norm.weight"], eps)
    y_ffn = moe.moe(m, f"{prefix}.ffn", x, *experts)
    return hyper.expand(y_ffn, h, f_post, f_comb), f_pre, y_attn, y_ffn


def _half_split_turn(x: Any, angles: Any) -> Any:
    rd = 2 * angles.shape[-1]
    shape = (angles.shape[0],) + (1,) * (x.dim() - 2) + (angles.shape[-1],)
    cos, sin = (t.to(x.dtype).reshape(shape) for t in (angles.cos(), angles.sin()))
    first, second = x[..., -rd : -rd // 2], x[..., -rd // 2 :]
    return torch.cat((x[..., :-rd], first * cos - second * sin, first * sin + second * cos), -1)


def _no_sink(original: Any) -> Any:
    return lambda q, keys, visible, sink: original(
        q, keys, visible, torch.full_like(sink, -torch.inf)
    )


def _scaled_sink(original: Any) -> Any:
    return lambda q, keys, visible, sink: original(q, keys, visible, sink * q.shape[-1] ** -0.5)


def _normed_heads(result: Any) -> Any:
    qr, q = result
    return qr, q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-20)


def _rotated_latent_keys(original: Any) -> Any:
    return lambda m, prefix, latent, positions, freqs: original(
        m, prefix, rope.rotate(latent, positions, freqs), positions, freqs
    )


def _no_relu(q: Any, keys: Any, weights: Any) -> Any:
    return torch.einsum("nhd,td,nh->nt", q, keys, weights)


def _route(biased: bool = False, affinity: Any = None) -> Wrap:
    def route(m: Any, prefix: str, x: Any, top_k: int) -> Any:
        scores = (affinity or moe.affinity)(x @ m.w[f"{prefix}.weight"].T)
        ranked = scores + m.w[f"{prefix}.bias"]
        chosen = numerics.top_k_mask(ranked, top_k)
        weights = (ranked if biased else scores).masked_fill(~chosen, 0)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * m.cfg.routed_scaling_factor

    return _constant(route)


def _both_sides(gate: Any, up: Any, limit: float) -> Any:
    return F.silu(gate.clamp(-limit, limit)) * up.clamp(-limit, limit)


def _clamp_after_silu(gate: Any, up: Any, limit: float) -> Any:
    return F.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)


def _joint_norms(cfg: Any, h: Any, key: Any) -> Any:
    def joint(x: Any) -> Any:
        return torch.rsqrt(x.square().mean((-2, -1)) + cfg.rms_norm_eps)[:, None]

    return joint(h) * joint(key)


def _rank_major(m: Any, prefix: str, out: Any) -> Any:
    cfg = m.cfg
    grouped = out.flatten(1).unflatten(1, (cfg.o_groups, -1))
    wo_a = m.w[f"{prefix}.wo_a.weight"].unflatten(0, (cfg.o_groups, cfg.o_lora_rank))
    low = torch.einsum("ngk,grk->nrg", grouped, wo_a).flatten(1)
    return low @ m.w[f"{prefix}.wo_b.weight"].T


def _previous_source(original: Any) -> Any:
    """The latest index source but one, when the latest is the re-index layer."""

    def source(cfg: Any, layer: int) -> int:
        found = original(cfg, layer)
        return original(cfg, found - 1) if found > max(cfg.kv_source_layer_ids) else found

    return source


def _first_r2_source(original: Any) -> Any:
    def source(cfg: Any, layer: int) -> int:
        found = original(cfg, layer)
        return min(cfg.kv_source_layer_ids) if cfg.compress_ratios[found] == 2 else found

    return source


def _own_mask_first(original: Any) -> Any:
    """The candidate source's own top-k restricted by its own mask (T-21)."""

    def select(m: Any, layer: int, x: Any, qr: Any, positions: Any, shared: Any) -> Any:
        chosen = original(m, layer, x, qr, positions, shared)
        if layer != m.cfg.candidate_source_layer_id:
            return chosen
        unaware = replace(m, cfg=replace(m.cfg, candidate_source_layer_id=-1))
        return original(unaware, layer, x, qr, positions, shared)

    return select


BACKBONE = [
    Mutant(
        name="hc-pre-not-delayed", module=model, function="block", wrap=_constant(_own_mix_block)
    ),
    Mutant(
        name="hc-comb-transposed",
        module=hyper,
        function="mixes",
        wrap=_after(lambda r: (r[0], r[1], r[2].mT)),
    ),
    Mutant(
        name="sinkhorn-1-iteration",
        module=hyper,
        function="sinkhorn",
        wrap=_config(hc_sinkhorn_iters=1),
    ),
    Mutant(
        name="sinkhorn-3-iterations",
        module=hyper,
        function="sinkhorn",
        wrap=_config(hc_sinkhorn_iters=3),
        least=1e-3,
    ),
    Mutant(
        name="hc-post-without-factor-2",
        module=hyper,
        function="mixes",
        wrap=_after(lambda r: (r[0], r[1] / 2, r[2])),
    ),
    Mutant(
        name="no-inverse-rope-on-output",
        module=rope,
        function="rotate_back",
        wrap=_constant(lambda x, positions, freqs: x),
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="rope-half-split",
        module=rope,
        function="_turn",
        wrap=_constant(_half_split_turn),
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="rope-table-a-on-compressed-layers",
        module=rope,
        function="frequencies",
        wrap=_constant(lambda cfg, ratio: rope.base_frequencies(cfg, cfg.rope_theta)),
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="latent-at-last-token-of-group",
        module=compressor,
        function="group_positions",
        wrap=_constant(lambda groups, ratio: torch.arange(groups) * ratio + ratio - 1),
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="latent-at-group-index",
        module=compressor,
        function="group_positions",
        wrap=_constant(lambda groups, ratio: torch.arange(groups)),
        earliest=3,
        exact=True,
    ),
    Mutant(
        name="reach-floor-p-over-r",
        module=indexer,
        function="reach",
        wrap=_constant(lambda positions, ratio: positions // ratio),
        earliest=0,
        exact=True,
    ),
    Mutant(name="no-attention-sink", module=numerics, function="attend", wrap=_no_sink, exact=True),
    Mutant(name="sink-scaled", module=numerics, function="attend", wrap=_scaled_sink, exact=True),
    Mutant(
        name="per-head-q-norm", module=attention, function="queries", wrap=_after(_normed_heads)
    ),
    Mutant(
        name="window-one-short",
        module=attention,
        function="window_mask",
        wrap=_config(sliding_window=7),
        earliest=7,
        exact=True,
    ),
    Mutant(
        name="candidate-mask-ignored",
        module=indexer,
        function="restrict",
        wrap=_constant(lambda scores, mask: scores),
        earliest=8,
    ),
    Mutant(
        name="newest-block-not-pinned",
        module=indexer,
        function="pin_newest",
        wrap=_constant(lambda cfg, blocks, reached: blocks),
        earliest=8,
    ),
    Mutant(
        name="candidate-source-restricts-itself",
        module=attention,
        function="select",
        wrap=_own_mask_first,
        earliest=8,
    ),
    Mutant(
        name="reindex-layer-keeps-old-selection",
        module=attention,
        function="index_source_of",
        wrap=_previous_source,
        earliest=4,
    ),
    Mutant(
        name="second-r2-source-ignored",
        module=attention,
        function="kv_source_of",
        wrap=_first_r2_source,
        earliest=1,
        exact=True,
    ),
    Mutant(
        name="index-score-without-relu",
        module=indexer,
        function="head_sum",
        wrap=_constant(_no_relu),
        earliest=4,
    ),
    Mutant(
        name="index-key-from-rotated-latent",
        module=compressor,
        function="index_keys",
        wrap=_rotated_latent_keys,
        earliest=4,
    ),
    Mutant(
        name="router-softplus-without-sqrt",
        module=moe,
        function="affinity",
        wrap=_constant(F.softplus),
    ),
    Mutant(
        name="routing-weights-from-biased-scores",
        module=moe,
        function="route",
        wrap=_route(biased=True),
    ),
    Mutant(
        name="no-routed-scaling",
        module=moe,
        function="route",
        wrap=_config(routed_scaling_factor=1.0),
    ),
    Mutant(
        name="swiglu-clamp-missing",
        module=moe,
        function="clipped_swiglu",
        wrap=_constant(lambda gate, up, limit: F.silu(gate) * up),
    ),
    Mutant(
        name="swiglu-gate-clamped-both-sides",
        module=moe,
        function="clipped_swiglu",
        wrap=_constant(_both_sides),
    ),
    Mutant(
        name="swiglu-clamped-after-silu",
        module=moe,
        function="clipped_swiglu",
        wrap=_constant(_clamp_after_silu),
    ),
    Mutant(
        name="engram-off",
        module=engram,
        function="engram",
        wrap=_constant(lambda m, layer, h, tokens: h),
    ),
    Mutant(
        name="engram-pad-id-wrong", module=engram, function="pad_id", wrap=_after(lambda p: p + 1)
    ),
    Mutant(
        name="engram-gate-without-signed-root",
        module=engram,
        function="gate",
        wrap=_constant(torch.sigmoid),
    ),
    Mutant(
        name="engram-norm-joint-over-copies",
        module=engram,
        function="inverse_norms",
        wrap=_constant(_joint_norms),
    ),
    Mutant(
        name="wo-a-rank-major",
        module=attention,
        function="project_output",
        wrap=_constant(_rank_major),
        exact=True,
    ),
]


def _causal_block(block: int, context: int) -> Any:
    ahead = torch.arange(block)[None, :] <= torch.arange(block)[:, None]
    return torch.cat((torch.ones(block, context, dtype=torch.bool), ahead), -1)


def _late_context(original: Any) -> Any:
    return lambda m, stage, projected, positions: original(m, stage, projected, positions + 1)


def _wrong_noise(m: Any, anchor: int) -> Any:
    return torch.tensor([anchor] + [0] * (m.cfg.dspark_block_size - 1))


def _reversed_captures(original: Any) -> Any:
    def draft(m: Any, main_hidden: Any, positions: Any, anchor: int) -> Any:
        parts = main_hidden.unflatten(-1, (len(m.cfg.dspark_target_layer_ids), -1))
        return original(m, parts.flip(-2).flatten(-2), positions, anchor)

    return draft


def _normed_confidence(original: Any) -> Any:
    """Confidence from x after the final norm (T-34)."""

    def read_out(m: Any, x: Any, anchor: int) -> Any:
        good = original(m, x, anchor)
        last = f"mtp.{m.cfg.num_nextn_predict_layers - 1}"
        normed = numerics.rms_norm(x, m.w[f"{last}.norm.weight"], m.cfg.rms_norm_eps)
        return replace(good, confidence=original(m, normed, anchor).confidence)

    return read_out


def _markov_of_anchor(original: Any) -> Any:
    """Every row corrected by the anchor instead of the previous draft."""

    def read_out(m: Any, x: Any, anchor: int) -> Any:
        rows = [original(m, x[i : i + 1], anchor) for i in range(x.shape[0])]
        return dspark.Draft(
            tokens=[row.tokens[0] for row in rows],
            base_logits=torch.cat([row.base_logits for row in rows]),
            logits=torch.cat([row.logits for row in rows]),
            confidence=torch.cat([row.confidence for row in rows]),
        )

    return read_out


DRAFT = [
    Mutant(
        name="draft-block-causal",
        module=dspark,
        function="block_mask",
        wrap=_constant(_causal_block),
    ),
    Mutant(
        name="draft-context-one-late", module=dspark, function="context_rows", wrap=_late_context
    ),
    Mutant(
        name="draft-noise-id-wrong",
        module=dspark,
        function="block_ids",
        wrap=_constant(_wrong_noise),
    ),
    Mutant(
        name="draft-captures-reversed",
        module=dspark,
        function="draft",
        wrap=_reversed_captures,
    ),
    Mutant(
        name="draft-confidence-after-norm",
        module=dspark,
        function="read_out",
        wrap=_normed_confidence,
    ),
    Mutant(
        name="draft-markov-from-anchor",
        module=dspark,
        function="read_out",
        wrap=_markov_of_anchor,
    ),
    Mutant(
        name="draft-no-main-norm",
        module=dspark,
        function="context_input",
        wrap=_constant(lambda m, main: main @ m.w["mtp.0.main_proj.weight"].T),
    ),
]

MUTANTS = {mutant.name: mutant for mutant in BACKBONE + DRAFT}


def noise_drafter(seed: int) -> generate.Drafter:
    """A dead drafter: tokens that have nothing to do with the model."""
    source = torch.Generator().manual_seed(seed)

    def draft(m: Any, trace: Any, anchor: int) -> list[int]:
        size = (m.cfg.dspark_block_size,)
        return torch.randint(m.cfg.vocab_size, size, generator=source).tolist()

    return draft


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The named bug is in the oracle inside the block."""
    mutant = MUTANTS[name]
    original = getattr(mutant.module, mutant.function)
    with mock.patch.object(mutant.module, mutant.function, mutant.wrap(original)):
        yield
