"""Other ways to compute attention, against the model's own, at their declared tolerance (P7.1)."""

from __future__ import annotations

import json

import pytest
import torch

from dsv41 import candidates, paths
from dsv41.model.attend import ATTEND, attend_fused, attend_sink_after
from dsv41.model.attention import native_attend

pytestmark = pytest.mark.ops

RTOL, ATOL = 1e-4, 1e-5
OTHERS = {name: function for name, function in ATTEND.items() if function is not None}
SHAPES = [(1, 1, 1), (1, 6, 48), (2, 6, 48), (3, 12, 5), (1, 64, 64), (1, 257, 300)]


def _case(requests: int, queries: int, rows: int, seen: float = 0.6) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(requests * 1000 + queries + rows)
    visible = torch.rand(requests, queries, rows) < seen
    query = torch.randn(requests, queries, 4, 16)
    return query, torch.randn(requests, rows, 16), visible, torch.randn(4) * 3


@pytest.mark.rule("P7.1")
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_it_agrees_at_shapes_of_the_service(name: str, shape: tuple[int, int, int]) -> None:
    case = _case(*shape)

    torch.testing.assert_close(OTHERS[name](*case), native_attend(*case), rtol=RTOL, atol=ATOL)


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize("name", OTHERS)
def test_a_query_that_sees_nothing_gives_zeros(name: str) -> None:
    out = OTHERS[name](*_case(2, 3, 7, seen=0.0))

    assert torch.equal(torch.zeros_like(out), out)


@pytest.mark.rule("P7.2")
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("sink", [-80.0, 80.0], ids=["no-sink", "all-sink"])
def test_a_sink_at_its_extremes(name: str, sink: float) -> None:
    query, keys, visible, _ = _case(2, 3, 7)
    case = query, keys, visible, torch.full((4,), sink)

    torch.testing.assert_close(OTHERS[name](*case), native_attend(*case), rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("function", [attend_fused, attend_sink_after], ids=["fused", "sink-after"])
def test_a_planted_fault_would_be_seen(function: object) -> None:
    query, keys, visible, sink = _case(2, 6, 48)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(
            function(query, keys, visible, sink + 0.01),  # type: ignore[operator]
            native_attend(query, keys, visible, sink),
            rtol=RTOL,
            atol=ATOL,
        )


def test_the_table_on_disk_is_the_one_in_the_code() -> None:
    assert candidates.table() == candidates.TABLE.read_bytes()


@pytest.mark.rule("P7.3")
def test_every_candidate_names_a_switch_of_ours_and_a_counter() -> None:
    from dsv41 import envs

    documented = "".join(str(getattr(envs, name).__doc__) for name in dir(envs))
    for one in json.loads(candidates.table())["candidates"]:
        assert all(name in documented for name in one["switch"])
        assert one["paths"]


def test_an_engine_lends_what_the_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("dsv41.engine.kernels", reason="vLLM is not installed here")
    from dsv41.model.attention import attend
    from dsv41.model.kernels import lent

    monkeypatch.setattr(lent, "attend", None)
    monkeypatch.setattr(lent, "names", {})
    monkeypatch.setenv("DSV41_ATTEND", "fused")
    kernels.lend_attend()
    paths.reset()
    with torch.inference_mode():
        attend(*_case(1, 6, 48))
    taken = paths.snapshot()["paths"]
    monkeypatch.setenv("DSV41_ATTEND", "fuzed")
    with pytest.raises(ValueError, match="use one of plain, fused, sink-after"):
        kernels.lend_attend()

    assert {"attend/fused": {"calls": 1, "rows": 6}} == taken
