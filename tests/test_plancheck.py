"""A plan names every test of its scope, and no test that is not there."""

import pytest

from acceptance.plancheck import compare

TESTS = ["a.py::test_x[1]", "a.py::test_x[2]", "b.py::test_y"]


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        pytest.param("a.py::test_x\nb.py::test_y", [], id="complete"),
        pytest.param("a.py\nb.py", [], id="whole-files"),
        pytest.param("a.py::test_x[1]\na.py::test_x[2]\n! b.py::test_y needs an NPU", [], id="out"),
        pytest.param("a.py::test_x", ["b.py::test_y: neither planned"], id="missing"),
        pytest.param("a.py\nb.py\nc.py::test_z", ["c.py::test_z: no such test"], id="surplus"),
        pytest.param("a.py\n! b.py::test_y", ["without a reason"], id="no-reason"),
        pytest.param("a.py::test\nb.py", ["a.py::test: no such test", "a.py::test_x[1]: neither",
                                          "a.py::test_x[2]: neither"], id="prefix"),
    ],
)  # fmt: skip
def test_plan_and_tests_must_name_each_other(plan, says):
    found = compare("p.txt", plan, TESTS)

    assert len(says) == len(found)
    assert all(text in line for text, line in zip(says, found, strict=True))
