"""The attention sub-layer: one shared key/value row per token, a window and chosen rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dsv41 import paths
from dsv41.model.config import LayerPlan, ModelConfig
from dsv41.model.indexer import select
from dsv41.model.kernels import lent, serves
from dsv41.model.norms import rms_norm
from dsv41.model.params import AttentionParams, CompressorParams
from dsv41.model.quant import Rounding
from dsv41.model.rope import rotate

if TYPE_CHECKING:
    from dsv41.model.forward import Forward


class Projected(NamedTuple):
    """Queries `[n, heads, D]`, the window row `[n, D]`, and the low-rank query `[n, rank]`."""

    query: Tensor
    row: Tensor
    low_rank: Tensor


def project(
    x: Tensor, params: AttentionParams, config: ModelConfig, rotation: Tensor, rounding: Rounding
) -> Projected:
    """Rotated queries and the rotated, rounded window row of `x [n, d]`.

    There is no per-head norm of the query.
    """
    eps, rank = config.rms_norm_eps, config.q_lora_rank
    joined = rounding.activation(x) @ params.wq_a_kv
    low_rank = rms_norm(joined[:, :rank], params.q_norm, eps)
    row = rms_norm(joined[:, rank:], params.kv_norm, eps)
    # The row goes through the rotation as one more head.
    both = torch.cat((rounding.activation(low_rank) @ params.wq_b, row), -1)
    turned = rotate(both.view(x.shape[0], -1, config.head_dim), rotation)
    return Projected(turned[:, :-1], rounding.activation(turned[:, -1]), low_rank)


def attend(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """`native_attend`, or what is lent in its place."""
    if serves(lent.attend, query):
        return lent.attend(query, keys, visible, sink)
    return native_attend(query, keys, visible, sink)


def count_attend(layer: int | str, query: Tensor) -> None:
    """Count which path `attend` takes for `query` in a layer."""
    path = lent.names["attend"] if serves(lent.attend, query) else "plain"
    paths.count(f"attend.{layer}", path)


def native_attend(query: Tensor, keys: Tensor, visible: Tensor, sink: Tensor) -> Tensor:
    """`query [R, Q, H, D]` over `keys [R, M, D]` (values too) under `visible [R, Q, M]`.

    The sink of each head is an unscaled logit without a value: it only enlarges the denominator.
    """
    r, q, h, d = query.shape
    flat, wide = query.reshape(r, q * h, d).float(), keys.float()
    score = (torch.bmm(flat, wide.transpose(1, 2)) * d**-0.5).view(r, q, h, -1)
    score = score.masked_fill(~visible.unsqueeze(2), -torch.inf)
    score = torch.cat((score, sink.view(1, 1, h, 1).expand(r, q, h, 1)), -1)
    weight = score.softmax(-1)[..., :-1].reshape(r, q * h, -1)
    return torch.bmm(weight, wide).view(r, q, h, d).to(query.dtype)


def project_out(
    attended: Tensor, params: AttentionParams, inverse: Tensor, rounding: Rounding
) -> Tensor:
    """`attended [n, H, D]` to `[n, d]`: turned back at the query's position, then by groups.

    The rows carry a rotation because values are keys; it is undone with the query's angle.
    """
    groups = params.wo_a.shape[0]
    turned = rotate(attended, inverse).view(attended.shape[0], groups, -1)
    low = torch.bmm(turned.transpose(0, 1), params.wo_a).transpose(0, 1).flatten(1)
    return rounding.activation(low) @ params.wo_b


def attention(x: Tensor, params: AttentionParams, plan: LayerPlan, run: Forward) -> Tensor:
    """One backbone layer's attention over the run's state; `x [n, d]` is normalised."""
    config, state, rounding = run.config, run.state, run.rounding
    projected = project(x, params, config, run.rotation(plan.ratio, config.head_dim), rounding)
    window = ("window", plan.index)
    state.write(window, projected.row)
    if params.compressor is not None:
        compress(x, params.compressor, plan, run)
    if params.indexer is not None:
        _publish(x, projected.low_rank, params, plan, run)
    parts = []
    for number, segment in enumerate(state.segments):
        keys, visible = segment.window(window)
        chosen = run.selections.get(number) if plan.ratio else None
        if chosen is not None:
            keys = torch.cat((keys, chosen.keys), 1)
            visible = torch.cat((visible, chosen.visible), 2)
        parts.append(attend(segment.take(projected.query), keys, visible, params.sink))
    count_attend(plan.index, projected.query)
    return project_out(state.merge(parts), params, run.inverse(plan.ratio), rounding)


def compress(x: Tensor, params: CompressorParams, plan: LayerPlan, run: Forward) -> None:
    """Write the latent and the index key of every group that a token of `x [n, d]` completes.

    A token that completes none writes a row that nobody reads, so that no shape depends on
    where a chunk begins.
    """
    config, state, layer = run.config, run.state, plan.index
    eps = config.rms_norm_eps
    if plan.ratio == 1:
        latent = x @ params.wkv
    else:
        raw = x.float() @ params.wkv
        field = ("raw", layer)
        state.write(field, raw)
        value, gate = raw.chunk(2, dim=-1)
        earlier_value, earlier_gate = state.before(field, raw, 1).chunk(2, dim=-1)
        # A softmax over two tokens is the sigmoid of their difference.
        latent = torch.lerp(earlier_value, value, (gate - earlier_gate).sigmoid()).to(x.dtype)
    latent = rms_norm(latent, params.norm, eps)
    # The key comes from the latent before its rotation.
    key = rms_norm(latent @ params.wk, params.k_norm, eps)
    key = rotate(key, run.group_rotation(plan.ratio, config.index_head_dim))
    state.write_groups(("key", layer), plan.ratio, run.rounding.index(key))
    turned = rotate(latent, run.group_rotation(plan.ratio, config.head_dim))
    state.write_groups(("latent", layer), plan.ratio, run.rounding.latent(turned))


def _publish(
    x: Tensor, low_rank: Tensor, params: AttentionParams, plan: LayerPlan, run: Forward
) -> None:
    """Score, choose, and leave the chosen rows for this layer and its consumers."""
    config, indexer = run.config, params.indexer
    assert indexer is not None
    with torch.no_grad():
        width = config.index_head_dim
        query = (run.rounding.activation(low_rank) @ indexer.wq_b).view(x.shape[0], -1, width)
        query = run.rounding.index(rotate(query, run.rotation(plan.ratio, width)))
        weight = (x @ indexer.weights_proj).float()
        weight = weight * (width**-0.5 * config.index_n_heads**-0.5)
    for number, segment in enumerate(run.state.segments):
        chosen, mask = select(segment, query, weight, plan, config, run.candidates.get(number))
        run.selections[number] = chosen
        run.candidates[number] = mask
