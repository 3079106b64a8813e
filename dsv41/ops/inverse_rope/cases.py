"""Cases of the inverse rotation: those of the rotation."""

from dsv41.ops.inverse_rope.native import OP
from dsv41.ops.rope.cases import cases_of

CASES = cases_of(OP.native)
