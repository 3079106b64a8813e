"""Samples of `npu-smi info` -> what is off with the NPUs before anything starts (P2.1).

Not yet run on hardware, see `acceptance.devices.npu`. Idle is what several samples, some seconds
apart, all say: a die that was busy in one of them is busy, and what is unknown is not free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acceptance.devices.finding import Finding
from acceptance.devices.npu import Die, Info

HEALTHY = "OK"
UNREAD = "npu-smi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a host must show: `dies` in number, each healthy, cool and idle.

    An idle die holds some memory for its driver: 2.9 to 3.4 GB were seen. `is_owner_told`: every
    card must say who runs on it, or that nobody does; a container without rights can't see that.
    """

    dies: int
    hbm_used_mb_max: int = 4096
    temperature_c_max: int | None = None
    is_owner_told: bool = True


def findings(
    samples: Sequence[Info | None], held: Mapping[int, Sequence[str]], limits: Limits
) -> tuple[Finding, ...]:
    """What is off, over all samples: a die that was busy or ill in one of them is so.

    A sample that could not be read is None, and that is off as well; so are no samples at all.
    """
    read = [sample for sample in samples if sample is not None]
    found: dict[tuple[str, str], Finding] = {}
    for finding in (
        *_unread(samples),
        *(f for sample in read for f in _number_of_dies(sample, limits)),
        *(f for sample in read for die in sample.dies for f in _ill(die, limits)),
        *(f for sample in read for f in _taken(sample)),
        *(f for sample in read for f in _silent(sample, limits)),
        *(f for sample in read for die in sample.dies for f in _busy(die, sample, limits)),
        *_holding(held),
    ):
        found.setdefault((finding.what, finding.fix), finding)
    return tuple(found.values())


def _unread(samples: Sequence[Info | None]) -> list[Finding]:
    missing = sum(sample is None for sample in samples)
    if samples and not missing:
        return []
    return [
        Finding(
            what=UNREAD,
            found=f"{missing} of {len(samples)} samples could not be read",
            fix="run `npu-smi info` by hand: its driver, or the rights of this container, lack",
        )
    ]


def _number_of_dies(sample: Info, limits: Limits) -> list[Finding]:
    if len(sample.dies) == limits.dies:
        return []
    return [
        Finding(
            what="devices",
            found=f"{len(sample.dies)} dies are shown, {limits.dies} wanted",
            fix="compare `npu-smi info -m` with `ls /dev/davinci*`; a card that dropped out needs "
            "its owner",
        )
    ]


def _ill(die: Die, limits: Limits) -> list[Finding]:
    found = []
    if die.health != HEALTHY:
        found.append(
            Finding(
                what=f"{die.where} health",
                found=die.health,
                fix=f"`npu-smi info -t health -i {die.card} -c {die.chip}` gives the error code",
            )
        )
    limit = limits.temperature_c_max
    if limit is not None and (die.temperature_c is None or die.temperature_c > limit):
        found.append(
            Finding(
                what=f"{die.where} temperature",
                found="unknown" if die.temperature_c is None else f"{die.temperature_c} C",
                fix=f"let it cool below {limit} C",
            )
        )
    return found


def _taken(sample: Info) -> list[Finding]:
    return [
        Finding(
            what=f"NPU {process.card} is taken",
            found=f"by {process.name}, {process.memory_mb} MB",
            fix=f"its owner must end process {process.pid} of the host",
        )
        for process in sample.processes
    ]


def _silent(sample: Info, limits: Limits) -> list[Finding]:
    if not limits.is_owner_told:
        return []
    told = {*sample.quiet_cards, *(process.card for process in sample.processes)}
    return [
        Finding(
            what=f"NPU {card} processes",
            found="the tool does not say who runs there",
            fix="run it on the host, or in a container that may see the host's processes",
        )
        for card in sorted({die.card for die in sample.dies} - told)
    ]


def _busy(die: Die, sample: Info, limits: Limits) -> list[Finding]:
    """Memory or work on a die; one that nobody owns is a stale context or another container."""
    owners = {process.card for process in sample.processes}
    found = []
    if die.hbm_used_mb >= limits.hbm_used_mb_max:
        owner = "listed processes hold it" if die.card in owners else "no owner is known"
        found.append(
            Finding(
                what=f"{die.where} memory",
                found=f"{die.hbm_used_mb} of {die.hbm_total_mb} MB used, {owner}",
                fix="end what uses it, wait a minute for the driver, look into other containers",
            )
        )
    if die.aicore_percent != 0:
        share = "unknown" if die.aicore_percent is None else f"{die.aicore_percent} %"
        found.append(
            Finding(
                what=f"{die.where} AICore",
                found=share,
                fix="wait until what computes there has ended",
            )
        )
    return found


def _holding(held: Mapping[int, Sequence[str]]) -> list[Finding]:
    return [
        Finding(
            what="device files are open",
            found=", ".join(files),
            fix=f"see `ps -fp {pid}`; its owner must end it",
        )
        for pid, files in sorted(held.items())
    ]
