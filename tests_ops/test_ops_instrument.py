"""Every check of the operator tests fails on the fault that it is there for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dsv41 import ops
from dsv41.ops.registry import Rule
from dsv41.ops.testing import checks
from dsv41.ops.testing.checks import Mismatch
from dsv41.ops.testing.poison import poisoned_memory
from dsv41.ops.testing.tape import Captured, ReplayError

pytestmark = pytest.mark.ops
OP, CASES = ops.load("rms_norm"), ops.cases_of("rms_norm")
CPU, NATIVE = OP.backends["cpu"], OP.native
F32 = torch.float32


def with_function(function: Callable[..., Tensor]):
    return checks.replaced(CPU, function)


def test_an_unwritten_row_is_found() -> None:
    def forgets_the_last_row(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty_like(x)
        out[:-1] = NATIVE(x[:-1], weight, eps)
        return out

    with pytest.raises(Mismatch, match="nan"):
        checks.all_rows(OP, with_function(forgets_the_last_row), CASES, F32, 6)


def test_a_changed_input_is_found() -> None:
    def in_place(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return x.copy_(NATIVE(x, weight, eps))

    with pytest.raises(Mismatch, match="argument 0 was changed"):
        checks.all_rows(OP, with_function(in_place), CASES, F32, 6)


def test_a_fault_at_one_row_count_is_found() -> None:
    def wrong_at_257(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return NATIVE(x, weight, eps) * (1.001 if len(x) == 257 else 1.0)

    checks.all_rows(OP, with_function(wrong_at_257), CASES, F32, 64)
    with pytest.raises(Mismatch, match="257 rows"):
        checks.all_rows(OP, with_function(wrong_at_257), CASES, F32, 257)


def test_a_fault_on_zero_rows_is_found() -> None:
    def without_eps(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return NATIVE(x, weight, 0.0)

    with pytest.raises(Mismatch, match="zeros"):
        checks.special_values(OP, with_function(without_eps), CASES, F32)


def test_a_host_value_kept_from_capture_is_found() -> None:
    def reads_a_weight_on_the_host(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return NATIVE(x, weight / weight[0], eps) * float(weight[0])

    with pytest.raises(Mismatch, match="on the host"):
        checks.replays(OP, with_function(reads_a_weight_on_the_host), CASES, (1,), 6)


def test_a_host_value_gives_a_stale_result() -> None:
    """Even a read that no counter saw: here the replay itself is wrong."""
    captured = Captured(lambda x, w: x * float(w[0]), (torch.ones(2), torch.full((1,), 2.0)))
    captured.write(1, torch.full((1,), 5.0))

    assert [2.0, 2.0] == captured.replay()[0].tolist()
    assert 1 == captured.tape.host_reads


def test_a_stale_weight_is_found() -> None:
    kept: dict[int, Tensor] = {}

    def caches_its_weight(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return NATIVE(x, kept.setdefault(weight.data_ptr(), weight.clone()), eps)

    with pytest.raises(Mismatch, match="replay 0"):
        checks.replays(OP, with_function(caches_its_weight), CASES, (1,), 12)


def test_a_stale_input_is_found() -> None:
    kept: dict[int, Tensor] = {}

    def caches_its_input(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return NATIVE(kept.setdefault(x.data_ptr(), x.clone()), weight, eps)

    with pytest.raises(Mismatch, match="replay 0"):
        checks.replays(OP, with_function(caches_its_input), CASES, (0,), 12)


def test_a_sum_carried_from_replay_to_replay_is_found() -> None:
    carried = torch.zeros(())

    def accumulates(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        carried.add_(1.0)
        return NATIVE(x, weight, eps) + (carried - 2.0)

    with pytest.raises(Mismatch, match="replay"):
        checks.replays(OP, with_function(accumulates), CASES, (0,), 6)


def test_a_shape_that_depends_on_data_cannot_be_replayed() -> None:
    captured = Captured(lambda x: x[x > 0], (torch.tensor([1.0, -1.0, 2.0]),))
    captured.write(0, torch.tensor([1.0, -1.0, -2.0]))

    with pytest.raises(ReplayError, match="depends on data"):
        captured.replay()


def test_a_replay_follows_views_and_writes_in_place() -> None:
    def doubled_columns(x: Tensor) -> Tensor:
        out = x.clone()
        out[:, 1].mul_(2.0)
        return out.t()

    captured = Captured(doubled_columns, (torch.ones(2, 2),))
    captured.write(0, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))

    assert [[1.0, 3.0], [4.0, 8.0]] == captured.replay()[0].tolist()
    assert [[1.0, 3.0], [4.0, 8.0]] == captured.replay()[0].tolist()
    assert 2 == captured.tape.replays


@pytest.mark.rule("P7.3")
def test_a_path_that_never_ran_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # The registry is told to use a backend that declines everything.
    monkeypatch.setattr(OP.ir.impls["cpu"], "_supports_args", lambda *args: False)

    with pytest.raises(Mismatch, match="calls went to"):
        checks.takes_its_path(OP, CPU, CASES.sample(6, F32, "path"))


@pytest.mark.rule("P7.3")
def test_a_reason_that_is_not_the_rule_is_found() -> None:
    declining = OP.backends["vllm_cpu"]
    args = CASES.declines["rows are not float32"]

    with pytest.raises(Mismatch, match="says"):
        checks.falls_back(OP, declining, "no rows", args)


def test_a_silent_fall_back_is_found() -> None:
    """The backend's own rule refuses, but the registry was never told: it runs all the same."""
    strict = dataclasses.replace(CPU, rules=(Rule("too few rows", lambda *a: False),))

    with pytest.raises(Mismatch, match="not counted"):
        checks.falls_back(OP, strict, "too few rows", CASES.sample(6, F32, "path"))


def test_a_consumer_sees_a_wrong_output() -> None:
    with pytest.raises(Mismatch, match="read by linear"):
        checks.consumed(OP, with_function(lambda x, w, e: -NATIVE(x, w, e)), CASES, "linear", F32)


def test_poison_reaches_every_way_to_uninitialised_memory() -> None:
    x = torch.zeros(2)
    with poisoned_memory():
        made = (
            torch.empty(2),
            torch.empty_like(x),
            x.new_empty(2),
            torch.empty_strided((2,), (1,)),
        )
        whole = torch.empty(2, dtype=torch.int8)

    assert all(bool(m.isnan().all()) for m in made)
    assert [0x7F, 0x7F] == whole.tolist()
    assert not torch.empty(2).fill_(0).isnan().any()


def test_an_operator_without_exactness_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match="no exactness is declared"):
        OP.backend("hasty", exactness={})(NATIVE)
