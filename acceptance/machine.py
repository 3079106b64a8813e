"""The machine before a service starts: fit, or what is off and the line that mends it (P2.1)."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from acceptance.archive import write_record
from acceptance.devices import cpu, npu_idle
from acceptance.devices import preflight as devices
from acceptance.errors import RunFailure
from acceptance.profile import Preflight
from acceptance.records import SCHEMA, Record
from acceptance.service import find_orphans

GAP_S = 0.5


class PreflightRecord(Record, frozen=True, kw_only=True):
    """`preflight.json` of a round: what the machine showed. Units as in `devices.cpu.Sample`.

    `problems` keep a service from being started; `notes` are told and change nothing.
    """

    schema: int
    taken_utc: str
    cpus: int
    load_milli: int | None
    steal_ppm: int | None
    memory_available_bytes: int | None
    frequency_khz_min: int | None
    frequency_khz_top: int | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def look(
    limits: Preflight, records: Path, notes: tuple[str, ...] = (), *, is_after_stop: bool = False
) -> PreflightRecord:
    """Look at the machine twice, and at what earlier services left. Takes half a second on a CPU.

    `records`: where running services are put on record. What is left of an earlier service and
    runs is a problem: it would share the machine with what is measured. It is never ended here.
    `is_after_stop`: a service of ours was just stopped, and NPUs get their time to become idle.
    """
    before = cpu.sample(with_tasks=True)
    time.sleep(GAP_S)
    after = cpu.sample(with_tasks=True)
    found = [*map(str, cpu.findings(before, after, _cpu_limits(limits), _ours()))]
    if limits.npu_dies is not None:
        wanted = npu_idle.Limits(
            dies=limits.npu_dies, temperature_c_max=limits.npu_temperature_c_max
        )
        ask = devices.wait_for_idle if is_after_stop else devices.npu_problems
        found += ask(wanted)
    orphans = find_orphans(records)
    return PreflightRecord(
        schema=SCHEMA,
        taken_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        cpus=after.cpus,
        load_milli=after.load_milli,
        steal_ppm=cpu.steal_ppm(before, after),
        memory_available_bytes=after.memory_available_bytes,
        frequency_khz_min=after.frequency_khz_min,
        frequency_khz_top=after.frequency_khz_top,
        problems=(
            *found,
            *(orphan.advice for orphan in orphans if orphan.running),
        ),
        notes=(*notes, *(orphan.advice for orphan in orphans if not orphan.running)),
    )


def require(record: PreflightRecord, directory: Path) -> None:
    """Write `preflight.json`; RunFailure (P2.1) with all that is off, and what to do."""
    write_record(directory / "preflight.json", record)
    if record.problems:
        raise RunFailure("P2.1", "; ".join(record.problems))


def _ours() -> tuple[int, ...]:
    """Processes that are no foreign load: this one, and what started it."""
    return os.getpid(), os.getppid()


def _cpu_limits(limits: Preflight) -> cpu.Limits:
    return cpu.Limits(
        load_milli_per_cpu_max=limits.load_milli_per_cpu_max,
        steal_ppm_max=limits.steal_ppm_max,
        memory_available_bytes_min=limits.memory_available_bytes_min,
        frequency_ppm_min=limits.frequency_ppm_min,
        task_ppm_max=limits.task_ppm_max,
    )
