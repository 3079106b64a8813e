"""The RunSpec: what is to be done and the SHA-256 of everything it stands on, frozen before
the first request (P4.2, P6.1)."""

from typing import Literal

from acceptance.function_checks import FunctionSpec
from acceptance.profile import Profile, Size
from acceptance.records import FileHash, Record


class RunLimits(Record, frozen=True, kw_only=True):
    """Limits of the client's own disturbance, ns."""

    send_skew_ns: int
    stall_ns: int


class RunProfile(Record, frozen=True, kw_only=True):
    """The part of the profile that a verdict depends on; the whole is `plan/profile.toml`."""

    name: str
    rounds: Literal["restart", "same-service"]
    levels: tuple[str, ...]
    attempts_max: int
    data_parallel_size: int
    served_name: str
    warmup: Size
    measured: Size
    limits: RunLimits
    scopes: dict[str, str]
    rules: dict[str, str]


class ServiceCommand(Record, frozen=True, kw_only=True):
    """How each service is started: argv with placeholders, its whole environment, and its port
    (None: a free one)."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    inherit: tuple[str, ...]
    expect: dict[str, str | int | bool]
    startup_timeout_s: int
    stop_timeout_s: int
    port: int | None
    kv_tokens_min: int


class Source(Record, frozen=True, kw_only=True):
    """Identity of a version of the product: commit, and whether the tree differs from it."""

    name: str
    commit: str | None
    dirty: bool | None


class RunSpec(Record, frozen=True, kw_only=True):
    """`plan/runspec.json`. Lists of files: `files` relative to the run directory, `tools` to the
    repository, `model` to the checkpoint directory. Times in ns, ratios as "n/d".
    `paths_claimed` must have run on all `workers` (P7.3); a calibration and a final run claim
    none. `register_head` is the hash of the last line of the record of runs (P6.3)."""

    schema: int
    run_id: str
    kind: Literal["final", "candidate", "calibration"]
    created_utc: str
    profile: RunProfile
    service: ServiceCommand
    http_timeout_ns: int
    barrier_timeout_ns: int
    limits_tpot_ns: dict[str, str]
    targets: tuple[str, ...]
    thresholds: dict[str, str] | None
    parent_tpot_ns: dict[str, str] | None
    candidate: Source
    parent: Source | None
    paths_claimed: tuple[str, ...]
    workers: int
    register_head: str
    function: FunctionSpec | None
    plan: tuple[str, ...]
    versions: dict[str, str]
    files: tuple[FileHash, ...]
    tools: tuple[FileHash, ...]
    model: tuple[FileHash, ...]


def run_profile(profile: Profile, kind: str) -> RunProfile:
    """What the RunSpec keeps of a profile. A calibration claims no answers and no functions."""
    none = "a calibration measures times alone" if kind == "calibration" else None
    return RunProfile(
        name=profile.name,
        rounds=profile.rounds,
        levels=profile.load.levels,
        attempts_max=profile.load.attempts_max,
        data_parallel_size=profile.service.data_parallel_size,
        served_name=profile.model.served_name,
        warmup=profile.load.warmup,
        measured=profile.load.measured,
        limits=RunLimits(
            send_skew_ns=profile.limits.send_skew_ns, stall_ns=profile.limits.stall_ns
        ),
        scopes={
            "performance": profile.scopes.performance,
            "accuracy": none or profile.scopes.accuracy,
            "function": none or profile.scopes.function,
        },
        rules=profile.rules,
    )
