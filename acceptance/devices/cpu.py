"""A CPU host: load, steal, frequency, memory and who else works -> what is off with it (P2.1).

Samples are read from /proc and /sys; what is judged is two samples and declared limits. A figure
that the machine does not show is None: a container often hides frequency and temperature.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from acceptance.devices.finding import Finding
from acceptance.evidence import Host

PROC = Path("/proc")
CPU = Path("/sys/devices/system/cpu")
THERMAL = Path("/sys/class/thermal")

PPM = 1_000_000
COMMAND_CHARS_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One process: `start_ticks` after boot, `cpu_ticks` it has used so far."""

    start_ticks: int
    cpu_ticks: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The host at one moment.

    - `load_milli`: load average over one minute, in thousandths.
    - `all_ticks`, `steal_ticks`: since boot, over all CPUs.
    - `frequency_khz_min`, `frequency_khz_top`: the slowest core's now, and the highest it has.
    - `tasks`: processes by pid; empty where they were not asked for.
    """

    load_milli: int | None
    all_ticks: int | None
    steal_ticks: int | None
    cpus: int
    memory_available_bytes: int | None
    frequency_khz_min: int | None
    frequency_khz_top: int | None
    temperature_milli_c: int | None
    throttle_events: int | None
    tasks: Mapping[int, Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Above (or below) these a host is not fit to measure on; None is not looked at.

    Load is per CPU; a foreign process is heavy from `task_ppm_max` of one CPU on.
    """

    load_milli_per_cpu_max: int | None = None
    steal_ppm_max: int | None = None
    memory_available_bytes_min: int | None = None
    frequency_ppm_min: int | None = None
    task_ppm_max: int | None = None


def sample(*, with_tasks: bool = False) -> Sample:
    """The host now. With tasks it takes some ten milliseconds, without one or two."""
    all_ticks, steal_ticks = parse_stat(_text(PROC / "stat"))
    now, top = frequencies(CPU)
    return Sample(
        load_milli=parse_load(_text(PROC / "loadavg")),
        all_ticks=all_ticks,
        steal_ticks=steal_ticks,
        cpus=os.cpu_count() or 1,
        memory_available_bytes=parse_memory(_text(PROC / "meminfo")),
        frequency_khz_min=now,
        frequency_khz_top=top,
        temperature_milli_c=max(_numbers(THERMAL.glob("thermal_zone*/temp")), default=None),
        throttle_events=_total(CPU.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")),
        tasks=tasks() if with_tasks else {},
    )


def parse_load(text: str | None) -> int | None:
    """/proc/loadavg -> the one-minute load in thousandths."""
    try:
        whole, _, part = (text or "").split()[0].partition(".")
        return int(whole) * 1000 + int(part.ljust(3, "0")[:3])
    except (IndexError, ValueError):
        return None


def parse_stat(text: str | None) -> tuple[int | None, int | None]:
    """/proc/stat -> (ticks of all kinds, ticks stolen by other guests) since boot."""
    fields = (text or "").partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return None, None
    # Guest time (the 9th and 10th figure) is part of user time already.
    ticks = [int(field) for field in fields[1:9]]
    return sum(ticks), ticks[7]


def parse_memory(text: str | None) -> int | None:
    """/proc/meminfo -> bytes that can be had without swapping."""
    for line in (text or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def frequencies(folder: Path) -> tuple[int | None, int | None]:
    """(slowest core's frequency now, the highest that a core has) in kHz."""
    now = _numbers(folder.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    top = _numbers(folder.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq"))
    return min(now, default=None), max(top, default=None)


def tasks() -> dict[int, Task]:
    """All processes that can be seen, by pid."""
    found = {}
    for name in os.listdir(PROC):
        text = _text(PROC / name / "stat") if name.isdigit() else None
        if text:
            fields = text.rpartition(")")[2].split()
            command = (_text(PROC / name / "cmdline") or "").replace("\0", " ").strip()
            found[int(name)] = Task(
                start_ticks=int(fields[19]),
                cpu_ticks=int(fields[11]) + int(fields[12]),
                command=command or text.partition("(")[2].rpartition(")")[0],
            )
    return found


def host(before: Sample, after: Sample) -> Host:
    """What the validity rules take of a host: load now, steal and throttling in between."""
    return Host(
        load_milli=after.load_milli,
        steal_ppm=steal_ppm(before, after),
        throttle_events=_less(after.throttle_events, before.throttle_events),
        temperature_milli_c=after.temperature_milli_c,
    )


def steal_ppm(before: Sample, after: Sample) -> int | None:
    """The share of all CPU time between two samples that other guests took."""
    stolen = _less(after.steal_ticks, before.steal_ticks)
    total = _less(after.all_ticks, before.all_ticks)
    if stolen is None or total is None or total <= 0:
        return None
    return stolen * PPM // total


def findings(
    before: Sample, after: Sample, limits: Limits, ours: Iterable[int] = ()
) -> tuple[Finding, ...]:
    """What is off with the host, worst first to mend. `ours`: pids that are not foreign.

    A figure that has a limit but can't be read is off as well: unknown is never fit.
    """
    found = [
        _load(after, limits.load_milli_per_cpu_max),
        _steal(steal_ppm(before, after), limits.steal_ppm_max),
        _memory(after.memory_available_bytes, limits.memory_available_bytes_min),
        _frequency(after, limits.frequency_ppm_min),
        *_heavy(before, after, limits.task_ppm_max, set(ours)),
    ]
    return tuple(finding for finding in found if finding is not None)


def _load(now: Sample, limit: int | None) -> Finding | None:
    if limit is None:
        return None
    if now.load_milli is None:
        return _unreadable("load", "/proc/loadavg")
    if now.load_milli <= limit * now.cpus:
        return None
    return Finding(
        what="load",
        found=f"{now.load_milli / 1000:.2f} on {now.cpus} CPUs, "
        f"at most {limit * now.cpus / 1000:.2f} is fit",
        fix="end what else runs (`top`), wait a minute and start again",
    )


def _steal(share: int | None, limit: int | None) -> Finding | None:
    if limit is None:
        return None
    if share is None:
        return _unreadable("steal", "/proc/stat")
    if share <= limit:
        return None
    return Finding(
        what="steal",
        found=f"other guests took {share / 10_000:.2f} % of the CPU time, "
        f"at most {limit / 10_000:.2f} % is fit",
        fix="use a machine of your own, or a quieter hour",
    )


def _memory(available: int | None, limit: int | None) -> Finding | None:
    if limit is None:
        return None
    if available is None:
        return _unreadable("memory", "/proc/meminfo")
    if available >= limit:
        return None
    return Finding(
        what="memory",
        found=f"{available >> 20} MiB available, {limit >> 20} MiB needed",
        fix="end what holds memory (`ps aux --sort -rss | head`)",
    )


def _frequency(now: Sample, limit: int | None) -> Finding | None:
    if limit is None:
        return None
    if now.frequency_khz_min is None or not now.frequency_khz_top:
        return _unreadable("frequency", str(CPU))
    share = now.frequency_khz_min * PPM // now.frequency_khz_top
    if share >= limit:
        return None
    return Finding(
        what="frequency",
        found=f"slowest core at {now.frequency_khz_min // 1000} MHz of "
        f"{now.frequency_khz_top // 1000} MHz",
        fix="set the governor (`cpupower frequency-set -g performance`), let it cool",
    )


def _heavy(before: Sample, after: Sample, limit: int | None, ours: set[int]) -> list[Finding]:
    if limit is None:
        return []
    span = _less(after.all_ticks, before.all_ticks)
    if not span:
        return [_unreadable("other processes", "/proc/stat")]
    heavy = []
    for pid, task in after.tasks.items():
        earlier = before.tasks.get(pid)
        if pid in ours or earlier is None or earlier.start_ticks != task.start_ticks:
            continue
        # Ticks of all CPUs passed, so one CPU's share of them is span / cpus.
        share = (task.cpu_ticks - earlier.cpu_ticks) * PPM * after.cpus // span
        if share > limit:
            heavy.append((share, pid, task.command))
    return [
        Finding(
            what="other processes",
            found=f"pid {pid} uses {share // 10_000} % of a CPU: {command[:COMMAND_CHARS_MAX]}",
            fix=f"end it, or wait for it (`ps -fp {pid}`)",
        )
        for share, pid, command in sorted(heavy, reverse=True)
    ]


def _unreadable(what: str, source: str) -> Finding:
    return Finding(
        what=what, found=f"can't be read from {source}", fix="take its limit out of the profile"
    )


def _less(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def _total(paths: Iterable[Path]) -> int | None:
    numbers = _numbers(paths)
    return sum(numbers) if numbers else None


def _numbers(paths: Iterable[Path]) -> list[int]:
    texts = [_text(path) for path in paths]
    return [int(text) for text in texts if text and text.strip().lstrip("-").isdigit()]


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
