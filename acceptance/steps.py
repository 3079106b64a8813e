"""The order of a run: which steps there are, and what a step needs (P3.1, P3.2, P5.1, P6.7)."""

from typing import Literal

from acceptance.ledger import Category
from acceptance.protocol import CALIBRATION_ROUNDS, ROUNDS


def steps(
    rounds: Literal["restart", "same-service"],
    levels: tuple[str, ...],
    *,
    is_accuracy_planned: bool,
    is_function_planned: bool = False,
) -> tuple[str, ...]:
    """All steps in their order.

    `restart`: B1 is stopped before B2 starts. `same-service`: one start serves both rounds, and
    the step `B2-start` proves that it is still the same service.
    """
    first = ["B1-start", *(f"{ROUNDS[0]}-{level}" for level in levels)]
    between = ["B1-stop", "B2-start"] if rounds == "restart" else ["B2-start"]
    second = [f"{ROUNDS[1]}-{level}" for level in levels]
    accuracy = ["accuracy"] if is_accuracy_planned else []
    function = ["function"] if is_function_planned else []
    last = ["performance", *accuracy, *function, "B2-stop", "recomputation"]
    return (*first, *between, *second, *last)


def calibration_steps(levels: tuple[str, ...]) -> tuple[str, ...]:
    """P4.5: six services one after the other, then the thresholds."""
    return (
        *(f"{name}-{what}" for name in CALIBRATION_ROUNDS for what in ("start", *levels, "stop")),
        "calibration",
        "recomputation",
    )


def category(step: str) -> Category:
    """What the time of a step is booked under (P6.5)."""
    if step in ("performance", "calibration", "recomputation"):
        return Category.RECOMPUTE_REVIEW
    if step == "accuracy":
        return Category.ACCURACY
    if step == "function":
        return Category.COMPONENT_VERIFICATION
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
    return step.endswith("-stop") or step == "recomputation"
