"""What must hold of every backend, as functions that raise `Mismatch` with one line.

`tests_ops` runs them over the cases, a mutation run over broken kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from dsv41 import paths
from dsv41.ops.case import Args, Cases, every_bf16
from dsv41.ops.exactness import Bitwise, mismatch
from dsv41.ops.registry import Backend, Op
from dsv41.ops.testing.poison import poisoned_memory
from dsv41.ops.testing.tape import Captured

_SAME = Bitwise(because="a copy")


class Mismatch(AssertionError):
    """A backend differs from the reference, touches its inputs or hides what it did."""


def outputs_of(function: Callable[..., Any], args: Args) -> tuple[Tensor, ...]:
    """Outputs of a call over copies of `args` in poisoned memory; the copies must stay as are."""
    copies = tuple(a.clone() if isinstance(a, Tensor) else a for a in args)
    with torch.no_grad(), poisoned_memory():
        outputs = tuple(pytree.tree_leaves(function(*copies)))
    for i, (before, after) in enumerate(zip(args, copies, strict=True)):
        if isinstance(before, Tensor) and _differs(after, before):
            raise Mismatch(f"argument {i} was changed")
    return outputs


def _differs(after: Tensor, before: Tensor) -> str | None:
    if before.dtype.is_complex:
        after, before = torch.view_as_real(after), torch.view_as_real(before)
    return mismatch(after, before, _SAME)


def compare(
    got: tuple[Tensor, ...], want: tuple[Tensor, ...], backend: Backend, cases: Cases, what: str
) -> None:
    """Every output within what the backend declares for its dtype."""
    if len(got) != len(want):
        raise Mismatch(f"{what}: {len(got)} outputs, not {len(want)}")
    if cases.canonical is not None:
        got, want = cases.canonical(got), cases.canonical(want)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        found = mismatch(a, b, backend.exactness_of(b.dtype))
        if found:
            raise Mismatch(f"{backend.op}/{backend.provider} {what}, output {i}: {found}")


def matches(op: Op, backend: Backend, cases: Cases, args: Args, what: str) -> None:
    """The backend agrees with the reference on `args`."""
    got, want = outputs_of(backend.function, args), outputs_of(op.native, args)
    compare(got, want, backend, cases, what)


def named_args(cases: Cases, dtype: torch.dtype) -> Iterator[tuple[str, Args]]:
    """The special values, by name."""
    yield from cases.specials(dtype).items()


def all_rows(op: Op, backend: Backend, cases: Cases, dtype: torch.dtype, rows: int) -> None:
    """Agreement at one row count (P7.2); arguments that the backend declines are not its own."""
    args = cases.sample(rows, dtype, f"{op.name} {rows}")
    if backend.eligible(*args)[0]:
        matches(op, backend, cases, args, f"{rows} rows")


def every_pattern(op: Op, backend: Backend, cases: Cases) -> None:
    """Agreement on every BF16 bit pattern (element-wise operators)."""
    assert cases.patterns is not None
    for name, args in cases.patterns(every_bf16()).items():
        if backend.eligible(*args)[0]:
            matches(op, backend, cases, args, f"every pattern, {name}")


def special_values(op: Op, backend: Backend, cases: Cases, dtype: torch.dtype) -> None:
    """Agreement on zeros of both signs, infinities, NaN, masks and full capacity."""
    for name, args in named_args(cases, dtype):
        if backend.eligible(*args)[0]:
            matches(op, backend, cases, args, name)


def replays(op: Op, backend: Backend, cases: Cases, which: tuple[int, ...], rows: int) -> None:
    """A captured call follows arguments `which` that change in place; twice, and back again."""
    dtype = cases.dtypes[0]
    if not backend.eligible(*cases.sample(rows, dtype, "first"))[0]:
        dtype = cases.dtypes[-1]
    first, second = (cases.sample(rows, dtype, seed) for seed in ("first", "second"))
    captured = Captured(backend.function, first)
    if captured.tape.host_reads:
        raise Mismatch(f"{backend.provider} reads {captured.tape.host_reads} values on the host")
    for turn, source in enumerate((second, second, first)):
        for i in which:
            captured.write(i, source[i])
        mixed = tuple(source[i] if i in which else a for i, a in enumerate(first))
        want = outputs_of(op.native, mixed)
        compare(captured.replay(), want, backend, cases, f"replay {turn}")


def falls_back(op: Op, backend: Backend, reason: str, args: Args) -> None:
    """A refused call says why, gives the reference's result, and counts both (P7.3)."""
    ok, said = backend.eligible(*args)
    if ok or said != reason:
        raise Mismatch(f"{backend.provider} says {said!r} where {reason!r} holds")
    want = outputs_of(op.native, args)
    paths.reset()
    with op.using(backend.provider):
        got = outputs_of(op, args)
    counted = paths.snapshot()["paths"]
    if f"op.{op.name}/native" not in counted or f"op.{op.name}/{backend.provider}" in counted:
        raise Mismatch(f"the path of the refused call is not counted: {counted}")
    if f"op.{op.name}.declined/{backend.provider}: {reason}" not in counted:
        raise Mismatch(f"the reason is not counted: {counted}")
    for a, b in zip(got, want, strict=True):
        if mismatch(a, b, _SAME):
            raise Mismatch("the fall-back is not the reference")


def takes_its_path(op: Op, backend: Backend, args: Args) -> None:
    """A call through the registry runs this backend and counts its rows (P7.3)."""
    paths.reset()
    with op.using(backend.provider):
        op(*args)
    counted = paths.snapshot()["paths"]
    taken = [path for path in counted if path.startswith("op.")]
    if taken != [f"op.{op.name}/{backend.provider}"]:
        raise Mismatch(f"calls went to {taken}")


def consumed(op: Op, backend: Backend, cases: Cases, name: str, dtype: torch.dtype) -> None:
    """What reads the output cannot tell the backend from the reference."""
    consumer = cases.consumers[name]
    for rows in (6, 12):
        args = cases.sample(rows, dtype, f"{op.name} for {name} {rows}")
        if not backend.eligible(*args)[0]:
            continue
        got, want = (
            consumer.apply(outputs_of(function, args), args)
            for function in (backend.function, op.native)
        )
        found = mismatch(got, want, consumer.exactness)
        if found:
            raise Mismatch(f"{backend.op}/{backend.provider} read by {name}, {rows} rows: {found}")


def everything(op: Op, backend: Backend, cases: Cases) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every check that applies to a backend, by name: what a mutant must survive to be alive."""
    for dtype in cases.dtypes:
        kind = str(dtype).removeprefix("torch.")
        for rows in cases.rows:
            yield f"{kind}-rows{rows}", _later(all_rows, op, backend, cases, dtype, rows)
        yield f"{kind}-specials", _later(special_values, op, backend, cases, dtype)
        for name in cases.consumers:
            yield f"{kind}-{name}", _later(consumed, op, backend, cases, name, dtype)
    if cases.patterns is not None:
        yield "patterns", _later(every_pattern, op, backend, cases)
    for reason, args in declines(backend, cases).items():
        yield f"declines {reason}", _later(falls_back, op, backend, reason, args)
    if backend.eager is None:
        yield "replay-inputs", _later(replays, op, backend, cases, cases.inputs, 6)
        if cases.weights:
            yield "replay-weights", _later(replays, op, backend, cases, cases.weights, 12)


def declines(backend: Backend, cases: Cases) -> Mapping[str, Args]:
    """The refused arguments of this backend's own reasons."""
    own = {rule.reason for rule in backend.rules}
    return {reason: args for reason, args in cases.declines.items() if reason in own}


def replaced(backend: Backend, function: Callable[..., Any]) -> Backend:
    """The backend with another function under the same declarations."""
    return dataclasses.replace(backend, function=function)


def _later(check: Callable[..., None], *args: Any) -> Callable[[], None]:
    return lambda: check(*args)
