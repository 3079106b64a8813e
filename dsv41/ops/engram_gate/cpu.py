"""The memory as it serves."""

from types import SimpleNamespace

from torch import Tensor

from dsv41.model import engram
from dsv41.model.params import EngramParams
from dsv41.model.quant import EXACT
from dsv41.ops.engram_gate.native import OP
from dsv41.ops.exactness import Close
from dsv41.ops.registry import Rule


@OP.backend(
    "cpu",
    exactness={
        "float32": Close(
            rtol=1e-5,
            atol=1e-4,
            because="float32 products; the root steepens the error of a dot near 0",
        )
    },
    serves=("dsv41.model.engram.engram",),
    rules=(
        Rule("no rows", lambda stream, *rest: stream.shape[0] > 0),
        Rule("stream is not float32", lambda stream, *rest: stream.element_size() == 4),
    ),
)
def cpu(
    stream: Tensor, rows: Tensor, table: Tensor, wkv: Tensor, gate_weight: Tensor, eps: float
) -> Tensor:
    config = SimpleNamespace(hc_mult=stream.shape[1], hidden_size=stream.shape[2], rms_norm_eps=eps)
    return engram.engram(stream, rows, EngramParams(table, wkv, gate_weight), config, EXACT)
