"""The two-round gate (P3, P4, P6.7): one test per step, in the protocol's order.

The session's gate drives the steps; a test asks for its own, and what comes before is done first.
Verdicts are values of `acceptance.verdict`; these tests only say them.
"""

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.service]


@pytest.mark.rule("P3.1")
@pytest.mark.parametrize("step", ["B1-start"], ids=["B1"])
def test_service_starts(gate, step):
    gate.require(step)


@pytest.mark.rule("P4.1")
@pytest.mark.parametrize("level", ["C1", "C4", "C16"])
def test_first_round(gate, level):
    gate.require(f"B1-{level}")


@pytest.mark.rule("P5.1")
def test_service_changes_between_the_rounds(gate):
    """`restart`: B1 is reaped and B2 started; `same-service`: one service, still the same."""
    gate.require("B2-start")


@pytest.mark.rule("P4.1")
@pytest.mark.parametrize("level", ["C1", "C4", "C16"])
def test_second_round(gate, level):
    gate.require(f"B2-{level}")


@pytest.mark.rule("P4.4")
def test_performance(gate):
    gate.require("performance")


@pytest.mark.rule("P7.5")
def test_function(gate):
    gate.require("function")


@pytest.mark.rule("P6.7")
def test_service_is_reaped(gate):
    gate.require("B2-stop")


@pytest.mark.rule("P6.2")
def test_validator_agrees(gate):
    gate.require("recomputation")
