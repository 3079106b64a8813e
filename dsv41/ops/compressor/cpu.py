"""The compressor as it serves, over a dense state of one sequence."""

from types import SimpleNamespace

import torch
from torch import Tensor

from dsv41.model import attention
from dsv41.model.params import CompressorParams
from dsv41.model.quant import EXACT
from dsv41.model.state import DenseState
from dsv41.ops.compressor.native import OP
from dsv41.ops.exactness import Close
from dsv41.ops.registry import Rule


@OP.backend(
    "cpu",
    exactness={
        "float32": Close(
            rtol=1e-5,
            atol=5e-5,
            because="two float32 products of up to 5120 terms, each followed by a norm to size 1",
        )
    },
    serves=("dsv41.model.attention.compress",),
    rules=(
        Rule("fewer rows than a group", lambda x, *rest: x.shape[0] >= rest[-2]),
        Rule("rows are not float32", lambda x, *rest: x.element_size() == 4),
    ),
)
def cpu(
    x: Tensor,
    wkv: Tensor,
    norm: Tensor,
    wk: Tensor,
    key_norm: Tensor,
    latent_rotation: Tensor,
    key_rotation: Tensor,
    ratio: int,
    eps: float,
) -> tuple[Tensor, Tensor]:
    n = x.shape[0]
    state = DenseState(1, n, window=1)

    def per_token(rotation: Tensor) -> Tensor:
        # Only the angle of a group's last token is read; an unfinished group has none.
        spread = rotation.repeat_interleave(ratio, 0)
        return torch.cat((spread, spread.new_ones(n - len(spread), spread.shape[1])))

    turns = {norm.shape[0]: per_token(latent_rotation), wk.shape[1]: per_token(key_rotation)}
    run = SimpleNamespace(
        config=SimpleNamespace(
            rms_norm_eps=eps, head_dim=norm.shape[0], index_head_dim=wk.shape[1]
        ),
        state=state,
        rounding=EXACT,
        group_rotation=lambda ratio, width: turns[width],
    )
    plan = SimpleNamespace(index=0, ratio=ratio)
    attention.compress(x, CompressorParams(wkv, norm, wk, key_norm), plan, run)
    return state.rows["latent", 0][0], state.rows["key", 0][0]
