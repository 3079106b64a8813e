"""`attempt.json`, `.reads` and banks: their shapes, read strictly."""

from dataclasses import dataclass
from typing import Any

from .strict import (
    Misfit,
    Reader,
    array,
    boolean,
    decimal,
    file_name,
    integer,
    mapping,
    natural,
    nullable,
    one_of,
    record,
    schema,
    sha256,
    text,
)

SCHEMA = 1
OUTCOMES = ("fin", "timeout", "reset", "refused", "aborted", "client-died")
KINDS = ("warmup", "measured")


@dataclass(frozen=True)
class Request:
    """One request as the client recorded it; times in ns after the wave's origin."""

    slot: int
    prompt_index: int
    prompt_sha256: str
    rank: int
    cache_salt: str
    start_ns: int | None
    connected_ns: int | None
    sent_ns: int | None
    outcome: str
    request: str
    raw: str
    reads: str


@dataclass(frozen=True)
class Client:
    """What the client said of itself."""

    pid: int
    scheduler: str
    nice: int
    affinity: tuple[int, ...]
    gc_collections: int
    ticks: int
    tick_ns: int
    stall_ns_max: int
    read_ns_max: int
    barrier_wait_ns: int


@dataclass(frozen=True)
class Wave:
    """One wave. `origin_ns` is on the clock of the whole run."""

    kind: str
    origin_ns: int
    started_utc: str
    requests: tuple[Request, ...]
    client: Client | None
    aborted: str | None


@dataclass(frozen=True)
class Attempt:
    """One execution of a level."""

    schema: int
    run_id: str
    runspec_sha256: str
    round: str
    level: str
    attempt: int
    service_id: str
    waves: tuple[Wave, ...]
    metrics: tuple[str, ...]
    identity: tuple[str, ...]
    previous: str | None
    reason: str | None


REQUEST: Reader[Request] = record(
    Request,
    slot=integer,
    prompt_index=integer,
    prompt_sha256=text,
    rank=integer,
    cache_salt=text,
    start_ns=nullable(integer),
    connected_ns=nullable(integer),
    sent_ns=nullable(integer),
    outcome=one_of(OUTCOMES),
    request=file_name,
    raw=file_name,
    reads=file_name,
)

CLIENT: Reader[Client] = record(
    Client,
    pid=integer,
    scheduler=text,
    nice=integer,
    affinity=array(integer),
    gc_collections=integer,
    ticks=integer,
    tick_ns=integer,
    stall_ns_max=integer,
    read_ns_max=integer,
    barrier_wait_ns=integer,
)

WAVE: Reader[Wave] = record(
    Wave,
    kind=one_of(KINDS),
    origin_ns=decimal,
    started_utc=text,
    requests=array(REQUEST),
    client=nullable(CLIENT),
    aborted=nullable(text),
)

ATTEMPT: Reader[Attempt] = record(
    Attempt,
    schema=schema(SCHEMA),
    run_id=text,
    runspec_sha256=sha256,
    round=one_of(("B1", "B2", "S1", "S2", "S3", "S4", "S5", "S6")),
    level=text,
    attempt=natural,
    service_id=text,
    waves=array(WAVE),
    metrics=array(file_name),
    identity=array(file_name),
    previous=nullable(text),
    reason=nullable(text),
)

BANK: Reader[tuple[tuple[int, ...], ...]] = array(array(natural))


def _pair(value: Any, place: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise Misfit(place, "is no [t_ns, byte count]")
    return integer(value[0], f"{place}[0]"), integer(value[1], f"{place}[1]")


READS: Reader[tuple[tuple[int, int], ...]] = array(_pair)


@dataclass(frozen=True)
class Host:
    """What else the host did, for the report."""

    load_milli: int | None
    steal_ppm: int | None
    throttle_events: int | None
    temperature_milli_c: int | None


def setting(value: Any, place: str) -> str | int | bool:
    """A value of the service's configuration."""
    if isinstance(value, bool):
        return boolean(value, place)
    return text(value, place) if isinstance(value, str) else integer(value, place)


@dataclass(frozen=True)
class Proof:
    """`identity-N.json`: the service at an edge of a level; None is unknown."""

    schema: int
    service_id: str
    identity: dict[str, str | None]
    process_start: str | None
    is_healthy: bool | None
    settings: dict[str, str | int | bool | None] | None
    kv_tokens: tuple[int | None, ...] | None
    is_profiler_on: bool | None
    deployed_differences: tuple[str, ...] | None
    weights_differences: tuple[str, ...] | None
    device_problems: tuple[str, ...] | None
    host: Host | None
    observer_cost_ns: int | None


HOST: Reader[Host] = record(
    Host,
    load_milli=nullable(integer),
    steal_ppm=nullable(integer),
    throttle_events=nullable(integer),
    temperature_milli_c=nullable(integer),
)

PROOF: Reader[Proof] = record(
    Proof,
    schema=schema(SCHEMA),
    service_id=text,
    identity=mapping(nullable(text)),
    process_start=nullable(text),
    is_healthy=nullable(boolean),
    settings=nullable(mapping(nullable(setting))),
    kv_tokens=nullable(array(nullable(integer))),
    is_profiler_on=nullable(boolean),
    deployed_differences=nullable(array(text)),
    weights_differences=nullable(array(text)),
    device_problems=nullable(array(text)),
    host=nullable(HOST),
    observer_cost_ns=nullable(integer),
)


@dataclass(frozen=True)
class Command:
    """`service/command.json`: how a round's service was started."""

    schema: int
    service_id: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    port: int
    expect: dict[str, str | int | bool]


COMMAND: Reader[Command] = record(
    Command,
    schema=schema(SCHEMA),
    service_id=text,
    argv=array(text),
    environment=mapping(text),
    directory=text,
    port=natural,
    expect=mapping(setting),
)
