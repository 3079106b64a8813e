"""The records of a run directory: what is written, by whom, and with which units.

Rules for all of them (docs/run-directory.md): frozen, unknown keys refused, a schema number
in each file; times are integers of nanoseconds relative to the wave's origin; exact ratios
are strings "n/d"; unknown is null and is written; no floats.
"""

from typing import Literal

import msgspec

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything that touches a disk."""


class FileHash(Record, frozen=True, kw_only=True):
    """One file as it was: `path` is relative to what the list says, `size` in bytes."""

    path: str
    size: int
    sha256: str


class Request(Record, frozen=True, kw_only=True):
    """One request of a wave: what was sent, when, and where its raw bytes lie.

    Times are ns after the wave's origin. `start_ns` is taken immediately before connect(),
    `connected_ns` when the socket became writable, `sent_ns` after the last byte was handed to
    the kernel. `raw` holds the bytes as they came; `reads` is a JSON list of
    `[t_ns, byte_count]`, one per read, a count of 0 being the peer's FIN.
    """

    slot: int
    prompt_index: int
    prompt_sha256: str
    rank: int
    cache_salt: str
    start_ns: int | None
    connected_ns: int | None
    sent_ns: int | None
    outcome: Literal["fin", "timeout", "reset", "refused", "aborted", "client-died"]
    request: str
    raw: str
    reads: str


class ClientReport(Record, frozen=True, kw_only=True):
    """What the client says of itself for one wave: the evidence that it did not disturb."""

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


class Wave(Record, frozen=True, kw_only=True):
    """C requests that passed one barrier (P3.6). `origin_ns` is perf_counter_ns as a decimal
    string, because canonical JSON ends at 2^53-1."""

    kind: Literal["warmup", "measured"]
    origin_ns: str
    started_utc: str
    requests: tuple[Request, ...]
    client: ClientReport | None
    aborted: str | None


class Attempt(Record, frozen=True, kw_only=True):
    """One execution of a whole level, warm-up included: `attempt.json`.

    `metrics` names the snapshot files of /metrics at the window edges, in order: before the
    warm-up, before the measured wave, after it. `identity` names the proofs of the service
    before and after the level (P4.1).
    """

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


class RequestFigures(Record, frozen=True, kw_only=True):
    """P4.0 for one request. Exact: ns and rationals of ns."""

    slot: int
    ttft_ns: int
    e2e_ns: int
    output_tokens: int
    tpot_ns: str
    tpot_last_token_ns: str
    tpot_per_later_token_ns: str | None
    first_frame_tokens: int
    first_ns: int
    last_token_ns: int
    end_ns: int
    token_ids_sha256: str


class LevelFigures(Record, frozen=True, kw_only=True):
    """One level of one round, from its newest attempt. `invalid` holds reason codes, sorted."""

    round: str
    level: str
    attempt: int
    valid: bool
    invalid: tuple[str, ...]
    requests: tuple[RequestFigures, ...]
    mean_tpot_ns: str | None


class ScopeVerdict(Record, frozen=True, kw_only=True):
    """The verdict of one scope with the rule that decided it."""

    scope: Literal["performance", "accuracy", "function"]
    verdict: Literal["PASS", "FAIL", "INCONCLUSIVE", "NOT_RUN"]
    rule: str
    reason: str


class Figures(Record, frozen=True, kw_only=True):
    """`results/figures.json` (live) and `validator/recomputation.json` (recomputed).

    The two must agree in everything but the wording of `ScopeVerdict.reason`.
    `tpot_ns` maps a level to TPOT(C) of P4.0 as "n/d" nanoseconds per token.
    """

    schema: int
    run_id: str
    runspec_sha256: str
    levels: tuple[LevelFigures, ...]
    tpot_ns: dict[str, str]
    scopes: tuple[ScopeVerdict, ...]
    verdict: Literal["PASS", "FAIL", "INCONCLUSIVE", "NOT_RUN"]


class Manifest(Record, frozen=True, kw_only=True):
    """`manifest.json`: every file of the archive but itself and `manifest.sha256`."""

    schema: int
    run_id: str
    runspec_sha256: str
    files: tuple[FileHash, ...]
