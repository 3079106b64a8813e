"""The classic faults of every operator: a backend that has one fails a check."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsv41 import ops
from dsv41.ops.case import Cases
from dsv41.ops.registry import Op
from dsv41.ops.testing import checks

pytestmark = pytest.mark.ops
OPS = {name: (ops.load(name), ops.cases_of(name)) for name in ops.names()}
FAULTS = [
    pytest.param(op, cases, fault, id=f"{name}-{what.replace(' ', '-')}")
    for name, (op, cases) in OPS.items()
    for what, fault in cases.faults.items()
]


@pytest.mark.parametrize(("op", "cases", "fault"), FAULTS)
def test_a_planted_fault_is_found(op: Op, cases: Cases, fault: Callable) -> None:
    backend = checks.replaced(next(iter(op.backends.values())), fault)

    assert any(fails(check) for _, check in checks.everything(op, backend, cases))


def fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except checks.Mismatch:
        return True
    return False


@pytest.mark.parametrize("name", OPS)
def test_every_operator_has_what_is_asked_of_it(name: str) -> None:
    """Formula, source, consumers or a reason, cases, faults: none may be forgotten."""
    op, cases = OPS[name]

    assert op.formula
    assert op.source
    assert op.consumers
    assert cases.faults
    assert {0, 1, 6, 12, 64, 257} <= set(cases.rows)
    assert any(backend.provider == "cpu" for backend in op.backends.values())
    assert all(e.because for b in op.backends.values() for e in b.exactness.values())
