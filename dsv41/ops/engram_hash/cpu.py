"""The hash as it serves."""

from torch import Tensor

from dsv41.model import engram
from dsv41.ops.engram_hash.native import OP
from dsv41.ops.exactness import Bitwise


@OP.backend(
    "cpu",
    exactness={"int64": Bitwise(because="integers that stay below 2**63")},
    serves=("dsv41.model.engram.hash_rows",),
)
def cpu(history: Tensor, multipliers: Tensor, primes: Tensor, offsets: Tensor) -> Tensor:
    return engram.hash_rows(history, engram.HashPlan(multipliers, primes, offsets))
