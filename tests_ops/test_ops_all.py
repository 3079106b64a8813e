"""Every operator's backends against their reference, over the operator's own cases (P7.2).

One module for all: an operator joins by its folder.  What cannot run here is skipped by name
and reason.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41 import ops
from dsv41.ops.case import Cases
from dsv41.ops.registry import Backend, Op
from dsv41.ops.testing import checks
from dsv41.ops.testing.tape import Captured, ReplayError

pytestmark = pytest.mark.ops
OPS = {name: (ops.load(name), ops.cases_of(name)) for name in ops.names()}
BACKENDS = [
    pytest.param(op, backend, cases, id=f"{name}-{backend.provider}")
    for name, (op, cases) in OPS.items()
    for backend in op.backends.values()
]
each_backend = pytest.mark.parametrize(("op", "backend", "cases"), BACKENDS)


def _kind(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]


def _first_eligible(backend: Backend, cases: Cases, rows: int = 6) -> tuple:
    samples = (cases.sample(rows, dtype, "path") for dtype in cases.dtypes)
    return next(args for args in samples if backend.eligible(*args)[0])


def _select(wanted) -> list:
    """Parameters of the backends that `wanted(backend, cases)` picks extra axes for."""
    return [
        pytest.param(*p.values, *extra, id="-".join((p.id, name)))
        for p in BACKENDS
        for name, extra in wanted(p.values[1], p.values[2]).items()
    ]


@pytest.fixture(autouse=True)
def _can_run(request: pytest.FixtureRequest) -> None:
    backend = getattr(request.node, "callspec", None) and request.node.callspec.params.get(
        "backend"
    )
    if backend is not None and backend.missing:
        pytest.skip(f"{backend.op}/{backend.provider}: {backend.missing}")


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize(
    ("op", "backend", "cases", "dtype", "rows"),
    _select(
        lambda backend, cases: {
            f"rows{rows}-{_kind(dtype)}": (dtype, rows)
            for rows in cases.rows
            for dtype in cases.dtypes
        }
    ),
)
def test_matches_native(
    op: Op, backend: Backend, cases: Cases, dtype: torch.dtype, rows: int
) -> None:
    checks.all_rows(op, backend, cases, dtype, rows)


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize(
    ("op", "backend", "cases"), _select(lambda b, cases: {"all": ()} if cases.patterns else {})
)
def test_every_bf16_pattern(op: Op, backend: Backend, cases: Cases) -> None:
    checks.every_pattern(op, backend, cases)


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize(
    ("op", "backend", "cases", "dtype"),
    _select(lambda backend, cases: {_kind(dtype): (dtype,) for dtype in cases.dtypes}),
)
def test_special_values(op: Op, backend: Backend, cases: Cases, dtype: torch.dtype) -> None:
    assert len(cases.specials(dtype)) > 0
    checks.special_values(op, backend, cases, dtype)


@each_backend
def test_any_shape(op: Op, backend: Backend, cases: Cases) -> None:
    drawn = {name: st.sampled_from(values) for name, values in cases.dims.items()}

    @settings(max_examples=8, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(rows=st.integers(0, 40), dtype=st.sampled_from(cases.dtypes),
           dims=st.fixed_dictionaries(drawn))  # fmt: skip
    def agrees(rows: int, dtype: torch.dtype, dims: dict) -> None:
        args = cases.sample(rows, dtype, f"{rows} {sorted(dims.items())}", **dims)
        if backend.eligible(*args)[0]:
            checks.matches(op, backend, cases, args, f"{rows} rows, {dims}")

    agrees()


@pytest.mark.rule("P7.3")
@each_backend
def test_a_call_takes_and_counts_its_path(op: Op, backend: Backend, cases: Cases) -> None:
    args = _first_eligible(backend, cases)

    checks.takes_its_path(op, backend, args)


@pytest.mark.rule("P7.3")
@pytest.mark.parametrize(
    ("op", "backend", "cases", "reason"),
    _select(lambda b, cases: {r.reason.replace(" ", "-"): (r.reason,) for r in b.rules}),
)
def test_declines_with_its_reason_and_falls_back(
    op: Op, backend: Backend, cases: Cases, reason: str
) -> None:
    assert reason in cases.declines, f"no case shows that {backend.provider} declines: {reason}"
    checks.falls_back(op, backend, reason, cases.declines[reason])


def _replayable(weights: bool):
    def pick(backend: Backend, cases: Cases) -> dict:
        if backend.eager is not None or (weights and not cases.weights):
            return {}
        return {f"rows{rows}": (rows,) for rows in (6, 12)}

    return pick


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize(("op", "backend", "cases", "rows"), _select(_replayable(False)))
def test_replays_new_inputs(op: Op, backend: Backend, cases: Cases, rows: int) -> None:
    checks.replays(op, backend, cases, cases.inputs, rows)


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize(("op", "backend", "cases", "rows"), _select(_replayable(True)))
def test_replays_new_weights(op: Op, backend: Backend, cases: Cases, rows: int) -> None:
    checks.replays(op, backend, cases, cases.weights, rows)


@pytest.mark.parametrize(
    ("op", "backend", "cases"), _select(lambda b, cases: {"eager": ()} if b.eager else {})
)
def test_what_is_declared_eager_cannot_be_captured(op: Op, backend: Backend, cases: Cases) -> None:
    """Else the declaration would hide a test that could run."""
    first, second = (cases.sample(12, cases.dtypes[0], seed) for seed in ("first", "second"))
    captured = Captured(backend.function, first)
    try:
        for i in cases.inputs:
            captured.write(i, second[i])
        captured.replay()
    except ReplayError:
        return
    assert captured.tape.host_reads > 0


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize(
    ("op", "backend", "cases"), _select(lambda b, cases: {"loader": ()} if cases.loads else {})
)
def test_loads_original_weights(op: Op, backend: Backend, cases: Cases, seeded_model) -> None:
    loaded, by_hand = cases.loads(seeded_model)
    if not backend.eligible(*loaded)[0]:
        pytest.skip(f"{backend.provider} declines: {backend.eligible(*loaded)[1]}")

    got = checks.outputs_of(backend.function, loaded)
    want = checks.outputs_of(op.native, by_hand)

    checks.compare(got, want, backend, cases, "loaded weights")


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize(
    ("op", "backend", "cases", "name", "dtype"),
    _select(
        lambda backend, cases: {
            f"{name}-{_kind(dtype)}": (name, dtype)
            for name in cases.consumers
            for dtype in cases.dtypes
        }
    ),
)
def test_consumers_agree(
    op: Op, backend: Backend, cases: Cases, name: str, dtype: torch.dtype
) -> None:
    checks.consumed(op, backend, cases, name, dtype)


@pytest.mark.parametrize(
    ("op", "backend", "cases", "served"),
    _select(lambda b, cases: {name.rpartition(".")[2]: (name,) for name in b.serves}),
)
def test_a_bound_backend_calls_what_serves(
    op: Op, backend: Backend, cases: Cases, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is tested is what serves: the named function of the model, not a copy of it."""

    class Called(Exception):
        pass

    def spy(*args: object, **kwargs: object) -> None:
        raise Called

    args = _first_eligible(backend, cases)
    monkeypatch.setattr(served, spy)

    with pytest.raises(Called):
        backend.function(*args)
