"""A profile: everything that differs between a laptop and an NPU host, as one frozen record.

The TOML file is read by `parse_profile`; unknown keys are refused and the nearest known key is
named, so that a typo can't silently fall back to a default.
"""

import difflib
import re
import tomllib
from fractions import Fraction
from typing import Any, Literal

import msgspec

from acceptance.accuracy.records import AccuracyProfile
from acceptance.errors import UsageError
from acceptance.function_checks import FunctionSpec
from acceptance.protocol import BANK_SIZE, CONCURRENCY
from acceptance.records import Record

MS = 1_000_000


class Model(Record, frozen=True, kw_only=True):
    """The checkpoint that is served.

    `build` makes it where it is missing (empty: it must exist); it may hold {python} and {model}.
    The name of a built directory carries the hash of the command and of `build_sources`, so that
    a checkpoint never outlives the script that made it.
    """

    served_name: str
    directory: str
    build: tuple[str, ...] = ()
    build_sources: tuple[str, ...] = ()


class PathCounters(Record, frozen=True, kw_only=True):
    """P7.3: `variable` names the folder where each worker keeps `<pid>.json` with its counters;
    `method` is the worker's method, called over /collective_rpc, that writes them down at once."""

    variable: str
    method: str


class Service(Record, frozen=True, kw_only=True):
    """How the service is started. `argv` may hold {python}, {model} and {port}.

    `environment` is all that the service gets, beside the variables named in `inherit`.
    `expect` maps a key of the effective configuration to its value (P2.2). `port`: a fixed one
    for hosts that want it; else a free one is chosen. `kv_tokens_min`: of each rank (P2.3).
    `workers`: processes that a candidate's path must run on (P7.3).
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    inherit: tuple[str, ...]
    data_parallel_size: int
    startup_timeout_s: int
    stop_timeout_s: int
    kv_tokens_min: int
    expect: dict[str, str | int | bool]
    port: int | None = None
    workers: int = 1
    path_counters: PathCounters | None = None


class Size(Record, frozen=True, kw_only=True):
    """Tokens in and out of one request."""

    input_tokens: int
    output_tokens: int


class Banks(Record, frozen=True, kw_only=True):
    """P3.4: where the prompts come from, and the SHA-256 that each bank must have."""

    source: Literal["seeded", "gsm8k-train"]
    seed: int
    warmup_sha256: str | None = None
    measured_sha256: str | None = None


class Load(Record, frozen=True, kw_only=True):
    """P3.2, P3.3: levels and sizes. `attempts_max` counts attempts of one level (P3.7)."""

    levels: tuple[str, ...]
    attempts_max: int
    warmup: Size
    measured: Size
    banks: Banks


class Timeouts(Record, frozen=True, kw_only=True):
    """P3.6, frozen in the RunSpec."""

    http_s: int
    barrier_s: int


class Limits(Record, frozen=True, kw_only=True):
    """Above these the client itself spoils a level; declared before, never loosened."""

    send_skew_ns: int
    stall_ns: int


class Preflight(Record, frozen=True, kw_only=True):
    """P2.1: what the machine must show before a service starts; null is not looked at.

    Load is per CPU, a foreign process is heavy from `task_ppm_max` of one CPU on. `npu_dies`: that
    many, healthy and idle, are looked for with npu-smi.
    """

    load_milli_per_cpu_max: int | None = None
    steal_ppm_max: int | None = None
    memory_available_bytes_min: int | None = None
    frequency_ppm_min: int | None = None
    task_ppm_max: int | None = None
    npu_dies: int | None = None
    npu_temperature_c_max: int | None = None


class Scopes(Record, frozen=True, kw_only=True):
    """`planned`, or why this profile does not claim the scope."""

    performance: str
    accuracy: str
    function: str


class Profile(Record, frozen=True, kw_only=True):
    """One kind of machine and one load. See the fields' own records for units.

    `plan` names the file in `acceptance/plans/` with the tests that the profile's claim needs,
    `candidates` the product's table of candidates, relative to the repository; `function` sizes
    the functional stage (P7.5).
    """

    schema: int
    name: str
    plan: str
    machine: Literal["cpu", "ascend"]
    rounds: Literal["restart", "same-service"]
    notes: tuple[str, ...]
    model: Model
    service: Service
    load: Load
    timeouts: Timeouts
    limits: Limits
    targets_ms: dict[str, str]
    scopes: Scopes
    rules: dict[str, str]
    preflight: Preflight = Preflight()
    candidates: str | None = None
    function: FunctionSpec | None = None
    accuracy: AccuracyProfile | None = None

    def targets_ns(self) -> dict[str, Fraction]:
        """P4.4: the absolute target of each level in ns per token, exact."""
        return {level: Fraction(text) * MS for level, text in self.targets_ms.items()}


def parse_profile(text: str, source: str) -> Profile:
    """TOML text -> Profile. UsageError names the file, the place and the nearest known key."""
    try:
        data = tomllib.loads(text)
        profile = msgspec.convert(data, Profile)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {_explain(str(error), data)}") from None
    _check(profile, source)
    return profile


def _explain(message: str, data: dict[str, Any]) -> str:
    found = re.match(r"Object contains unknown field `(.+?)`(?: - at `\$\.?(.*)`)?", message)
    if not found:
        return message
    key, place = found.group(1), found.group(2) or ""
    record: Any = Profile
    for part in filter(None, place.split(".")):
        record = {f.name: f.type for f in msgspec.structs.fields(record)}.get(part)
    known = [f.name for f in msgspec.structs.fields(record)] if record else []
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    where = f" in [{place}]" if place else ""
    return f"unknown key `{key}`{where}; the nearest known key is `{near[0] if near else '?'}`"


def _check(profile: Profile, source: str) -> None:
    def refuse(what: str) -> None:
        raise UsageError(f"{source}: {what}")

    if not profile.plan.replace("-", "").isalnum():
        refuse(f"plan {profile.plan!r}: the name of a file in acceptance/plans/, nothing else")
    if profile.schema != 1:
        refuse(f"schema {profile.schema} is not known here; this version reads 1")
    unknown = [level for level in profile.load.levels if level not in CONCURRENCY]
    if unknown or not profile.load.levels:
        refuse(f"load.levels must be some of {', '.join(CONCURRENCY)}, got {unknown or 'none'}")
    for level in profile.load.levels:
        if level not in profile.targets_ms:
            refuse(f"targets_ms has no target for {level}")
    try:
        if any(target <= 0 for target in profile.targets_ns().values()):
            refuse("targets_ms must be positive")
    except (ValueError, ZeroDivisionError):
        refuse("targets_ms must be exact decimals or ratios in quotes, like '25' or '51/2'")
    sizes = (profile.load.warmup, profile.load.measured)
    if any(size.input_tokens < 1 or size.output_tokens < 2 for size in sizes):
        refuse("input_tokens must be >= 1 and output_tokens >= 2: TPOT divides by tokens - 1")
    if sizes[0].input_tokens != sizes[1].input_tokens:
        refuse("warmup and measured input_tokens must be equal (P3.3)")
    if profile.load.attempts_max < 1:
        refuse("load.attempts_max must be >= 1")
    if profile.scopes.function == "planned" and profile.function is None:
        refuse("function is planned, but [function] is missing (P7.5)")
    if profile.service.workers < profile.service.data_parallel_size:
        refuse("service.workers must be at least one for each data-parallel rank")
    if not 1 <= profile.service.data_parallel_size <= BANK_SIZE:
        refuse("service.data_parallel_size must be between 1 and 32")
