"""`plan/runspec.json`: all that this validator knows of its shape stands here.

What a verdict depends on is checked for sense as well as for shape; the rest only for shape.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .attempts import SCHEMA, setting
from .strict import (
    Misfit,
    Reader,
    array,
    boolean,
    integer,
    mapping,
    natural,
    nullable,
    one_of,
    ratio,
    record,
    schema,
    sha256,
    text,
)

PATH = "plan/runspec.json"
SCOPES = ("performance", "accuracy", "function")
CONCURRENCY = {"C1": 1, "C4": 4, "C16": 16}
ROUNDS = ("B1", "B2")
CALIBRATION_ROUNDS = ("S1", "S2", "S3", "S4", "S5", "S6")
NOT_APPLICABLE = "not_applicable:"


@dataclass(frozen=True)
class Size:
    """Tokens of one request."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Limits:
    """How far the client may have disturbed a wave, ns."""

    send_skew_ns: int
    stall_ns: int


@dataclass(frozen=True)
class Profile:
    """The part of the profile that a verdict depends on."""

    name: str
    rounds: str
    levels: tuple[str, ...]
    attempts_max: int
    data_parallel_size: int
    served_name: str
    warmup: Size
    measured: Size
    limits: Limits
    scopes: dict[str, str]
    rules: dict[str, str]

    def size(self, kind: str) -> Size:
        """Size of the requests of a kind of wave."""
        return self.warmup if kind == "warmup" else self.measured

    def waves(self, round_name: str) -> tuple[str, ...]:
        """P3.1: on one service start the second round has no warm-up."""
        if self.rounds == "same-service" and round_name == "B2":
            return ("measured",)
        return ("warmup", "measured")

    def is_required(self, rule: str) -> bool:
        """Whether a rule applies; one that the table leaves out does."""
        return not self.rules.get(rule, "").startswith(NOT_APPLICABLE)


@dataclass(frozen=True)
class Service:
    """How the service was to be started."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    inherit: tuple[str, ...]
    expect: dict[str, str | int | bool]
    startup_timeout_s: int
    stop_timeout_s: int
    port: int | None
    kv_tokens_min: int


@dataclass(frozen=True)
class FileHash:
    """A file as it was."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Function:
    """P7.5: sizes of what the functional stage asks, in tokens."""

    long_prompt_tokens: int
    output_tokens: int
    abort_tokens: int


@dataclass(frozen=True)
class RunSpec:
    """What was frozen before the first request."""

    schema: int
    run_id: str
    kind: str
    created_utc: str
    profile: Profile
    service: Service
    http_timeout_ns: int
    barrier_timeout_ns: int
    limits_tpot_ns: dict[str, Fraction]
    targets: tuple[str, ...]
    thresholds: dict[str, Fraction] | None
    parent_tpot_ns: dict[str, Fraction] | None
    candidate: Any
    parent: Any
    paths_claimed: tuple[str, ...]
    workers: int
    register_head: str
    function: Function | None
    plan: tuple[str, ...]
    versions: dict[str, str]
    files: tuple[FileHash, ...]
    tools: tuple[FileHash, ...]
    model: tuple[FileHash, ...]

    @property
    def rounds(self) -> tuple[str, ...]:
        """P3.1, P4.5: the passes over the levels, in order."""
        return CALIBRATION_ROUNDS if self.kind == "calibration" else ROUNDS

    def shares_service(self, round_name: str) -> bool:
        """P3.1: whether a round runs on the service of the one before it."""
        return round_name == "B2" and self.profile.rounds == "same-service"


def _at_least(least: int) -> Reader[int]:
    def reader(value: Any, place: str) -> int:
        if integer(value, place) < least:
            raise Misfit(place, f"{value} is less than {least}")
        return int(value)

    return reader


def _levels(value: Any, place: str) -> tuple[str, ...]:
    levels = array(one_of(tuple(CONCURRENCY)))(value, place)
    if not levels or list(levels) != [one for one in CONCURRENCY if one in levels]:
        raise Misfit(place, "must hold some of C1, C4, C16, in this order")
    return levels


def _scopes(value: Any, place: str) -> dict[str, str]:
    scopes = mapping(text)(value, place)
    if set(scopes) != set(SCOPES):
        raise Misfit(place, f"must name {', '.join(SCOPES)} and nothing else")
    return scopes


def _rules(value: Any, place: str) -> dict[str, str]:
    rules = mapping(text)(value, place)
    for rule, entry in rules.items():
        reason = entry.removeprefix(NOT_APPLICABLE).strip()
        is_excused = entry.startswith(NOT_APPLICABLE) and reason
        if entry != "required" and not is_excused:
            raise Misfit(f"{place}.{rule}", "must be `required` or `not_applicable: <reason>`")
    return rules


SIZE: Reader[Size] = record(Size, input_tokens=_at_least(1), output_tokens=_at_least(2))
FILE_HASH: Reader[FileHash] = record(FileHash, path=text, size=natural, sha256=sha256)
SOURCE: Reader[Any] = record(dict, name=text, commit=nullable(text), dirty=nullable(boolean))
PROFILE: Reader[Profile] = record(
    Profile,
    name=text,
    rounds=one_of(("restart", "same-service")),
    levels=_levels,
    attempts_max=_at_least(1),
    data_parallel_size=_at_least(1),
    served_name=text,
    warmup=SIZE,
    measured=SIZE,
    limits=record(Limits, send_skew_ns=natural, stall_ns=natural),
    scopes=_scopes,
    rules=_rules,
)
SERVICE: Reader[Service] = record(
    Service,
    argv=array(text),
    environment=mapping(text),
    inherit=array(text),
    expect=mapping(setting),
    startup_timeout_s=integer,
    stop_timeout_s=integer,
    port=nullable(integer),
    kv_tokens_min=integer,
)
FUNCTION: Reader[Function] = record(
    Function,
    long_prompt_tokens=_at_least(1),
    output_tokens=_at_least(1),
    abort_tokens=_at_least(1),
)
RUNSPEC: Reader[RunSpec] = record(
    RunSpec,
    schema=schema(SCHEMA),
    run_id=text,
    kind=one_of(("final", "candidate", "calibration")),
    created_utc=text,
    profile=PROFILE,
    service=SERVICE,
    http_timeout_ns=natural,
    barrier_timeout_ns=natural,
    limits_tpot_ns=mapping(ratio),
    targets=array(text),
    thresholds=nullable(mapping(ratio)),
    parent_tpot_ns=nullable(mapping(ratio)),
    candidate=SOURCE,
    parent=nullable(SOURCE),
    paths_claimed=array(text),
    workers=_at_least(1),
    register_head=sha256,
    function=nullable(FUNCTION),
    plan=array(text),
    versions=mapping(text),
    files=array(FILE_HASH),
    tools=array(FILE_HASH),
    model=array(FILE_HASH),
)
