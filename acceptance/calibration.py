"""Six services of one version -> the jitter of three pairs and the frozen thresholds (P4.5).

Exact throughout: times are Fractions of ns per token, stored as "n/d". No valid pair is dropped,
however noisy; nothing freezes before all six services are complete.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from acceptance.errors import RunFailure
from acceptance.exact import parse, write
from acceptance.records import Record
from acceptance.utc import parse_utc

ORDER = (("parent", "candidate"), ("candidate", "parent"), ("parent", "candidate"))
"""P4.5: three pairs, in the order in which their services are started."""

SERVICES = tuple(role for pair in ORDER for role in pair)

FLOOR = Fraction(1, 100)


class CalibrationService(Record, frozen=True, kw_only=True):
    """One complete or failed service of a calibration.

    `version` is the commit, `environment` the SHA-256 of everything that must be equal among the
    six (configuration, weights, inputs, client, machine). `tpot_ns` maps a level to the mean TPOT
    of its wave as "n/d" ns per token; null is unknown. `obstacle` says why the service is not
    complete, null where it is. `started_utc` is read by `utc.parse_utc`.
    """

    run_id: str
    service_id: str
    role: Literal["parent", "candidate"]
    version: str
    environment: str
    started_utc: str
    evidence_sha256: str
    tpot_ns: dict[str, str | None]
    obstacle: str | None


class CalibrationReport(Record, frozen=True, kw_only=True):
    """What a calibration froze. Ratios are "n/d"; `jitter` maps a level to that of each pair."""

    schema: int
    profile: str
    levels: tuple[str, ...]
    services: tuple[CalibrationService, ...]
    jitter: dict[str, tuple[str, ...]]
    thresholds: dict[str, str]


def jitter(parent_ns: Fraction, candidate_ns: Fraction) -> Fraction:
    """|candidate - parent| / parent of one pair: our reading, the task book defines none."""
    return abs(candidate_ns - parent_ns) / parent_ns


def threshold(jitters: Iterable[Fraction]) -> Fraction:
    """max(1 %, the largest jitter)."""
    return max([FLOOR, *jitters])


def problems(services: Sequence[CalibrationService], levels: Sequence[str]) -> tuple[str, ...]:
    """Why these services freeze no threshold; empty when they do. Never raises."""
    found = []
    roles = tuple(service.role for service in services)
    if roles != SERVICES:
        found.append(f"{len(roles)} services in the order {', '.join(roles) or 'none'}; P4.5 asks "
                     f"for six: {', '.join(SERVICES)}")  # fmt: skip
    if not levels:
        found.append("no level to calibrate")
    for name in ("version", "environment"):
        if len({getattr(service, name) for service in services}) > 1:
            found.append(f"the services differ in their {name}: this is no A/A calibration")
    for name in ("service_id", "evidence_sha256"):
        values = [getattr(service, name) for service in services]
        if len(set(values)) < len(values):
            found.append(f"two services have the same {name}: each must be new")
    try:
        starts = [parse_utc(service.started_utc) for service in services]
        if any(two <= one for one, two in pairwise(starts)):
            found.append("the services were not started in the order in which they are listed")
    except ValueError as error:
        found.append(f"a start is {error}")
    for number, service in enumerate(services, 1):
        if service.obstacle is not None:
            found.append(f"service {number} ({service.role}): {service.obstacle}")
        for level in levels:
            if trouble := _time_trouble(service.tpot_ns.get(level)):
                found.append(f"service {number} ({service.role}), {level}: {trouble}")
    return tuple(found)


def _time_trouble(text: str | None) -> str:
    if text is None:
        return "no mean TPOT"
    try:
        return "" if parse(text) > 0 else "a mean TPOT that is not positive"
    except ValueError as error:
        return str(error)


def freeze(
    *, profile: str, services: Sequence[CalibrationService], levels: Sequence[str]
) -> CalibrationReport:
    """The report with exact thresholds. RunFailure (P4.5) unless all six services are complete."""
    if found := problems(services, levels):
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise RunFailure("P4.5", found[0] + more)
    jitters = {level: _jitters(services, level) for level in levels}
    return CalibrationReport(
        schema=1,
        profile=profile,
        levels=tuple(levels),
        services=tuple(services),
        jitter={level: tuple(map(write, values)) for level, values in jitters.items()},
        thresholds={level: write(threshold(values)) for level, values in jitters.items()},
    )


def _jitters(services: Sequence[CalibrationService], level: str) -> list[Fraction]:
    """One jitter a pair; each pair holds one service of either role, in the order of ORDER."""
    jitters = []
    for first, second in zip(services[::2], services[1::2], strict=True):
        times = {service.role: parse(service.tpot_ns[level] or "") for service in (first, second)}
        jitters.append(jitter(times["parent"], times["candidate"]))
    return jitters


def thresholds(report: CalibrationReport) -> dict[str, Fraction]:
    """Level -> threshold, computed again from the report's own services.

    RunFailure (P4.5) where the report is of another schema, is not complete, or says something
    else than its services do: a threshold is never taken on trust.
    """
    if report.schema != 1:
        raise RunFailure("P4.5", f"calibration report of schema {report.schema}; 1 is known here")
    again = freeze(profile=report.profile, services=report.services, levels=report.levels)
    if again != report:
        raise RunFailure(
            "P4.5", "the report's jitter or thresholds do not follow from its services"
        )
    return {level: parse(text) for level, text in again.thresholds.items()}
