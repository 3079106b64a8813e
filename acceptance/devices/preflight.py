"""Look at the host's devices before anything starts, and again when all has ended (P2.1, P6.7).

What is off comes as one line each, with what to do; no line at all means fit. What is asked and
how time passes is handed in, so that a test needs neither a device nor patience.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from acceptance.devices import cpu, npu, npu_idle
from acceptance.devices.finding import Finding

Sleep = Callable[[float], None]
Ask = Callable[..., str | None]
Holders = Callable[[], Mapping[int, Sequence[str]]]


def cpu_problems(
    limits: cpu.Limits,
    ours: Iterable[int] = (),
    *,
    interval_s: float = 1.0,
    sample: Callable[..., cpu.Sample] = cpu.sample,
    sleep: Sleep = time.sleep,
) -> tuple[str, ...]:
    """What keeps a CPU host from being fit, seen over `interval_s` seconds."""
    before = sample(with_tasks=True)
    sleep(interval_s)
    return _lines(cpu.findings(before, sample(with_tasks=True), limits, ours))


def npu_problems(
    limits: npu_idle.Limits,
    *,
    samples: int = 3,
    interval_s: float = 2.0,
    ask: Ask = npu.ask,
    holders: Holders = npu.holders,
    sleep: Sleep = time.sleep,
) -> tuple[str, ...]:
    """What keeps the NPUs of a host from being fit and idle, over several samples."""
    infos = []
    for number in range(samples):
        if number:
            sleep(interval_s)
        infos.append(_info(ask))
    return _lines(npu_idle.findings(infos, holders(), limits))


def wait_for_idle(
    limits: npu_idle.Limits,
    *,
    timeout_s: float = 60.0,
    interval_s: float = 2.0,
    ask: Ask = npu.ask,
    holders: Holders = npu.holders,
    sleep: Sleep = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> tuple[str, ...]:
    """What is still off when a stopped service had `timeout_s` seconds to leave the NPUs.

    () is the proof that makes REAPED into REAPED_IDLE: the driver gives memory back only some
    time after the last process is gone, so one look right after the stop would be too strict.
    """
    deadline = now() + timeout_s
    while problems := npu_problems(
        limits, samples=2, interval_s=interval_s, ask=ask, holders=holders, sleep=sleep
    ):
        if now() > deadline:
            return problems
        sleep(interval_s)
    return ()


def _info(ask: Ask) -> npu.Info | None:
    text = ask("info")
    try:
        return npu.parse_info(text) if text else None
    except ValueError:
        return None


def _lines(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(str(finding) for finding in findings)
