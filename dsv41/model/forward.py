"""A forward pass: embedding, layers, final fold and head, over any state.

Prefill, chunked prefill, decode and verify are this one function: tokens at positions a..b-1
over whatever the state holds below a.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from dsv41.model import hyper
from dsv41.model.attention import attention, compress
from dsv41.model.config import ConfigError, LayerPlan, ModelConfig
from dsv41.model.engram import engram, hash_plans, hash_rows, lookback
from dsv41.model.indexer import Selection
from dsv41.model.moe import moe
from dsv41.model.norms import rms_norm
from dsv41.model.params import BlockParams, ModelParams
from dsv41.model.quant import EXACT, Rounding
from dsv41.model.rope import rotation_table
from dsv41.model.state import State
from dsv41.model.vocabulary import TokenMap


class Hidden(NamedTuple):
    """`folded [n, d]` is what the head reads; `captured [n, targets*d]` feeds the drafts."""

    folded: Tensor
    captured: Tensor | None


@dataclass
class Forward:
    """One pass's scratch: what layers publish for later layers, and the rotations in use."""

    config: ModelConfig
    state: State
    rounding: Rounding = EXACT
    replay: bool = False
    kept: Tensor | None = None  # rows of the step that the decoder layers ran, None: all
    selections: dict[int, Selection | None] = field(default_factory=dict)
    candidates: dict[int, Tensor | None] = field(default_factory=dict)
    _rotations: dict[tuple[str, int, int], Tensor] = field(default_factory=dict)

    def trim(self) -> Tensor | None:
        """Go on with each request's last window of rows; their indices, or None if that is all."""
        state, kept = self.state.tail(self.config.sliding_window)
        if kept is None:
            return None
        self.state, self.kept = state, kept
        for published in (self.selections, self.candidates, self._rotations):
            published.clear()
        return kept

    def rotation(self, ratio: int, width: int) -> Tensor:
        """Rotation of vectors of `width` at each token's position, `[n, width/2]` complex."""
        return self._rotation("own", min(ratio, 1), width)

    def inverse(self, ratio: int) -> Tensor:
        """The inverse of the rotation of a head."""
        return self._rotation("inverse", min(ratio, 1), self.config.head_dim)

    def group_rotation(self, ratio: int, width: int) -> Tensor:
        """Rotation at the first position of the group that each token ends."""
        if ratio == 1:
            return self.rotation(1, width)
        return self._rotation("group", ratio, width)

    def _rotation(self, kind: str, ratio: int, width: int) -> Tensor:
        key = (kind, ratio, width)
        if key not in self._rotations:
            if kind == "inverse":
                made = self.rotation(ratio, width).conj().resolve_conj()
            else:
                back = ratio - 1 if kind == "group" else 0
                at = (self.state.positions - back).clamp(min=0)
                made = rotation_rows(self.config, at, width, compressed=ratio > 0)
            self._rotations[key] = made
        return self._rotations[key]


def rotation_rows(
    config: ModelConfig, positions: Tensor, width: int, *, compressed: bool
) -> Tensor:
    """Rows of the rotation table for `positions [n]`: `[n, width/2]` complex64."""
    return _rotation_table(config, width, compressed).index_select(0, positions)


@lru_cache(maxsize=32)
def _rotation_table(config: ModelConfig, width: int, compressed: bool) -> Tensor:
    with torch.inference_mode(False):
        # Drafts reach a block beyond the last position.
        length = config.max_position_embeddings + config.dspark_block_size + 1
        return rotation_table(config, length, width, compressed=compressed)


def run_layers(params: ModelParams, run: Forward, token_ids: Tensor, token_map: TokenMap) -> Hidden:
    """All backbone layers over `token_ids [n]`, in the order of the state's positions."""
    config = run.config
    embedded = torch.nn.functional.embedding(token_ids, params.embed)
    stream = embedded.unsqueeze(1).expand(-1, config.hc_mult, -1)
    carried = hyper.first_mix(token_ids.shape[0], config.hc_mult)
    history = None
    if config.engram_layer_ids:
        compressed = token_map.ids[token_ids]
        history = lookback(run.state, compressed, token_map.pad, config)
    captured = []
    cut = replay_cut(config) if run.replay else None
    for plan, layer in zip(config.layer_plans(), params.layers, strict=True):
        if layer.engram is not None:
            rows = hash_rows(history, hash_plans(config)[plan.index])
            stream = engram(stream, rows, layer.engram, config, run.rounding)
        if plan.index == cut:
            stream, carried = _enter_decoder(stream, carried, layer, plan, run)
        if plan.is_captured:
            # The stream that enters the layer, after its n-gram memory.
            captured.append(stream.float().mean(1).to(stream.dtype))
        stream, carried = block(stream, carried, layer, plan, run)
    folded = hyper.collapse(stream, carried)
    return Hidden(folded, torch.cat(captured, -1) if captured else None)


def replay_cut(config: ModelConfig) -> int:
    """The first decoder layer: the last kv source.  Bounded replay runs it and all above on each
    chunk's last window only, so nothing above may need the other rows."""
    cut = max(config.kv_source_layer_ids)
    if max(config.engram_layer_ids, default=-1) >= cut:
        raise ConfigError(f"decoder replay: an engram layer is not below layer {cut}")
    if min(config.dspark_target_layer_ids, default=cut) < cut:
        raise ConfigError(f"decoder replay: a draft target layer is below layer {cut}")
    return cut


def _enter_decoder(
    stream: Tensor, carried: Tensor, params: BlockParams, plan: LayerPlan, run: Forward
) -> tuple[Tensor, Tensor]:
    """Write the last global rows for every token, then keep each request's last window."""
    x = rms_norm(hyper.collapse(stream, carried), params.attn_norm, run.config.rms_norm_eps)
    assert params.attn.compressor is not None
    compress(x, params.attn.compressor, plan, run)
    kept = run.trim()
    return (stream, carried) if kept is None else (stream[kept], carried[kept])


def block(
    stream: Tensor, carried: Tensor, params: BlockParams, plan: LayerPlan, run: Forward
) -> tuple[Tensor, Tensor]:
    """One layer: `stream [n, hc, d]` and the carried mix `[n, hc]`, and both after it.

    The mix that reads the copies is one sub-layer late: attention reads with the carried one,
    the experts with the one computed before attention.
    """
    config = run.config
    mix = hyper.mixes(stream, params.attn_mix, config)
    x = rms_norm(hyper.collapse(stream, carried), params.attn_norm, config.rms_norm_eps)
    stream = hyper.expand(attention(x, params.attn, plan, run), stream, mix)
    return feed_forward(stream, mix.pre, params, config, run.rounding)


def feed_forward(
    stream: Tensor, carried: Tensor, params: BlockParams, config: ModelConfig, rounding: Rounding
) -> tuple[Tensor, Tensor]:
    """The experts' half of a block; returns the stream and the mix that the next layer carries."""
    mix = hyper.mixes(stream, params.ffn_mix, config)
    x = rms_norm(hyper.collapse(stream, carried), params.ffn_norm, config.rms_norm_eps)
    stream = hyper.expand(moe(x, params.moe, config, rounding), stream, mix)
    return stream, mix.pre


def logits(folded: Tensor, params: ModelParams, config: ModelConfig) -> Tensor:
    """`[n, vocab]` float32 of the folded stream."""
    return rms_norm(folded, params.norm, config.rms_norm_eps).float() @ params.head
