"""The accuracy run: a frozen plan and a live service -> raw answers and their record (P5).

Every question once, no warm-up, no retry (P5.3). Nothing is parsed here; `evaluate` reads what
this leaves behind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from acceptance.accuracy.plan import Plan, wave_spec
from acceptance.accuracy.records import SCHEMA, AccuracyRun, ServiceEdge
from acceptance.archive import write_record
from acceptance.client.spec import WaveSpec
from acceptance.errors import RunFailure
from acceptance.records import Wave

RUN: Final = "accuracy.json"


class SendWave(Protocol):
    """The client as the stage sees it: send a wave, store its files in the directory, return its
    record. Interrupted, it raises with what there is as the exception's attribute `wave`."""

    def __call__(self, spec: WaveSpec, directory: Path) -> Wave: ...


Edge = Callable[[str], ServiceEdge]
"""Prove and snapshot the service: takes `before` or `after`; RunFailure if it can't be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the service listens and over how many data-parallel ranks requests are spread."""

    host: str
    port: int
    data_parallel_size: int
    barrier_timeout_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What the run is bound to (P5.6); fields as in `AccuracyRun`."""

    accuracy_id: str
    runspec_sha256: str
    service_id: str
    measured_identity_sha256: str | None
    performance_sha256: str | None
    reuse_lost: str | None = None
    previous: str | None = None
    fault: str | None = None


def run(
    plan: Plan,
    binding: Binding,
    address: Address,
    *,
    edge: Edge,
    send_wave: SendWave,
    directory: Path,
) -> AccuracyRun:
    """Ask every question once and write `accuracy.json`, whatever happens on the way.

    RunFailure before the first question if the service is not drained (P5.6) or is not the one
    that was measured and nobody said why (P5.1). FileExistsError if the directory was used.
    """
    directory.mkdir(parents=True)
    before = edge("before")
    check_before(before, binding)
    spec = wave_spec(
        plan,
        host=address.host,
        port=address.port,
        data_parallel_size=address.data_parallel_size,
        barrier_timeout_ns=address.barrier_timeout_ns,
    )
    try:
        wave = send_wave(spec, directory)
    except BaseException as error:
        partial = getattr(error, "wave", None)
        if isinstance(partial, Wave):
            _write(plan, binding, directory, wave=partial, before=before, after=None)
        raise
    try:
        after: ServiceEdge | None = edge("after")
    except RunFailure:
        after = None
    return _write(plan, binding, directory, wave=wave, before=before, after=after)


def check_before(before: ServiceEdge, binding: Binding) -> None:
    """What must hold before the first question, as RunFailure with its rule."""
    if (before.running, before.waiting) != (0, 0):
        raise RunFailure(
            "P5.6",
            f"not drained before the first question: {_number(before.running)} running, "
            f"{_number(before.waiting)} waiting requests",
        )
    measured = binding.measured_identity_sha256
    if measured not in (None, before.identity_sha256) and binding.reuse_lost is None:
        raise RunFailure("P5.1", "the service is not the one that was measured, and no reason why")
    if binding.previous is not None and not binding.fault:
        raise RunFailure("P5.4", f"a run after {binding.previous} needs the fault that spoiled it")


def _write(
    plan: Plan,
    binding: Binding,
    directory: Path,
    *,
    wave: Wave,
    before: ServiceEdge,
    after: ServiceEdge | None,
) -> AccuracyRun:
    record = AccuracyRun(
        schema=SCHEMA,
        accuracy_id=binding.accuracy_id,
        runspec_sha256=binding.runspec_sha256,
        spec_sha256=plan.spec_sha256,
        service_id=binding.service_id,
        measured_identity_sha256=binding.measured_identity_sha256,
        reuse_lost=binding.reuse_lost,
        performance_sha256=binding.performance_sha256,
        wave=wave,
        before=before,
        after=after,
        previous=binding.previous,
        fault=binding.fault,
    )
    write_record(directory / RUN, record)
    return record


def _number(value: int | None) -> str:
    return "an unknown number of" if value is None else str(value)
