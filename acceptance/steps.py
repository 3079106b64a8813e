"""The order of a run: which steps there are, and what a step needs (P3.1, P3.2, P5.1, P6.7)."""

from typing import Literal

from acceptance.ledger import Category
from acceptance.protocol import ROUNDS


def steps(
    rounds: Literal["restart", "same-service"],
    levels: tuple[str, ...],
    *,
    is_accuracy_planned: bool,
) -> tuple[str, ...]:
    """All steps in their order.

    `restart`: B1 is stopped before B2 starts. `same-service`: one start serves both rounds, and
    the step `B2-start` proves that it is still the same service.
    """
    first = ["B1-start", *(f"{ROUNDS[0]}-{level}" for level in levels)]
    between = ["B1-stop", "B2-start"] if rounds == "restart" else ["B2-start"]
    second = [f"{ROUNDS[1]}-{level}" for level in levels]
    accuracy = ["accuracy"] if is_accuracy_planned else []
    return (*first, *between, *second, "performance", *accuracy, "B2-stop", "recomputation")


def category(step: str) -> Category:
    """What the time of a step is booked under (P6.5)."""
    if step in ("performance", "recomputation"):
        return Category.RECOMPUTE_REVIEW
    if step == "accuracy":
        return Category.ACCURACY
    if step.endswith(("-start", "-stop")):
        return Category.SERVICE_PREPARE_RECLAIM
    return Category.PERFORMANCE_MEASURED


def waves(rounds: Literal["restart", "same-service"], round_name: str) -> tuple[str, ...]:
    """Waves of a level in a round: in `same-service` R2 has no second warm-up (P3.1)."""
    if rounds == "same-service" and round_name == "B2":
        return ("measured",)
    return ("warmup", "measured")


def outlives_failure(step: str) -> bool:
    """Steps that are taken even after the run has failed: to leave nothing behind, and to have
    the evidence recomputed."""
    return step in ("B1-stop", "B2-stop", "recomputation")
