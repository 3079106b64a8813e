"""The frozen words and numbers of the protocol: what a level, a request and a verdict are.

Everything that may differ between a laptop and an NPU host is a field of the profile;
what stands here is the same everywhere (docs/protocol.md, P3 to P5).
"""

from enum import StrEnum
from typing import Any, Final

LEVELS: Final = ("C1", "C4", "C16")
"""P3.2: the levels, in the order in which they are measured."""

CONCURRENCY: Final = {"C1": 1, "C4": 4, "C16": 16}

ROUNDS: Final = ("B1", "B2")
"""P3.1: two rounds, B1 then B2."""

CALIBRATION_ROUNDS: Final = ("S1", "S2", "S3", "S4", "S5", "S6")
"""P4.5: the six services of a calibration, each one pass over the levels like a round."""

BANK_SIZE: Final = 32
"""P3.4: prompts in each of the two banks; a level of concurrency C uses the first C."""

WAVES: Final = ("warmup", "measured")
"""P3.2: a level is a warm-up wave, then a measured wave, C requests each."""


class Verdict(StrEnum):
    """What a scope of a run ended with."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_RUN = "NOT_RUN"


WORST_FIRST: Final = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.NOT_RUN, Verdict.PASS)
"""P4.8: the overall verdict is the worst of the planned scopes, in this order."""

EXIT_STATUS: Final = {
    Verdict.PASS: 0,
    Verdict.FAIL: 1,
    Verdict.INCONCLUSIVE: 10,
    Verdict.NOT_RUN: 11,
}
EXIT_USAGE: Final = 2
EXIT_BUG: Final = 3


def rounds_of(kind: str) -> tuple[str, ...]:
    """The rounds of a kind of run, in the order in which they are made."""
    return CALIBRATION_ROUNDS if kind == "calibration" else ROUNDS


def worst(verdicts: list[Verdict]) -> Verdict:
    """P4.8. An empty list is NOT_RUN: nothing shown is not a pass."""
    return min(verdicts, key=WORST_FIRST.index, default=Verdict.NOT_RUN)


def completion_body(
    *, model: str, prompt: list[int], output_tokens: int, cache_salt: str
) -> dict[str, Any]:
    """The body of one performance request (P3.5), warm-up or measured.

    Warm-up requests are forced to their length as well, so that every request of a
    wave does the same work.
    """
    return {
        "model": model,
        "prompt": prompt,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "echo": False,
        "add_special_tokens": False,
        "ignore_eos": True,
        "temperature": 0,
        "top_p": 1,
        "seed": 0,
        "n": 1,
        "min_tokens": output_tokens,
        "max_tokens": output_tokens,
        "cache_salt": cache_salt,
    }


def data_parallel_rank(slot: int, data_parallel_size: int) -> int:
    """P3.6: the value of the header `X-data-parallel-rank` of a slot."""
    return slot % data_parallel_size
