"""The accuracy stage of the gate (P5): the profile's questions, asked of the measured B2."""

import pytest

pytestmark = [pytest.mark.acceptance]


@pytest.mark.rule("P5.4")
def test_accuracy(gate):
    gate.require("accuracy")
