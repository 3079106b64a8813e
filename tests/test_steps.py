"""The order of a run."""

import pytest

from acceptance.ledger import Category
from acceptance.steps import category, outlives_failure, steps, waves


@pytest.mark.rule("P5.1")
def test_questions_are_asked_after_the_verdict_and_before_the_service_is_stopped():
    order = steps("restart", ("C1", "C4"), is_accuracy_planned=True)

    assert (
        "B1-start", "B1-C1", "B1-C4", "B1-stop", "B2-start", "B2-C1", "B2-C4",
        "performance", "accuracy", "B2-stop", "recomputation",
    ) == order  # fmt: skip


@pytest.mark.rule("P3.1")
def test_same_service_is_never_stopped_in_between_and_warmed_once():
    order = steps("same-service", ("C1",), is_accuracy_planned=False)

    assert "B1-stop" not in order
    assert ("warmup", "measured") == waves("same-service", "B1") == waves("restart", "B2")
    assert ("measured",) == waves("same-service", "B2")


@pytest.mark.rule("P6.7")
def test_stopping_and_recomputing_outlive_a_failure_and_measuring_does_not():
    order = steps("restart", ("C1",), is_accuracy_planned=True)

    assert ["B1-stop", "B2-stop", "recomputation"] == [s for s in order if outlives_failure(s)]


@pytest.mark.rule("P6.5")
def test_every_step_is_booked_under_its_category():
    booked = {s: category(s) for s in steps("restart", ("C1",), is_accuracy_planned=True)}

    assert Category.SERVICE_PREPARE_RECLAIM == booked["B1-start"] == booked["B2-stop"]
    assert Category.PERFORMANCE_MEASURED == booked["B2-C1"]
    assert Category.RECOMPUTE_REVIEW == booked["performance"] == booked["recomputation"]
    assert Category.ACCURACY == booked["accuracy"]
