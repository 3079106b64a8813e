"""The evidence of one attempt of one level, as plain values for the rules of `validity`.

The gate fills it from attempt.json, the parsed streams, differences of metrics and the proofs of
the service. Nothing has a default: None says "unknown", and whoever fills a record must say it.
Times are ns after the wave's origin; `origin_ns` is a decimal string, as in `records.Wave`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from acceptance.records import Record, RequestFigures, Wave

Setting = str | int | bool


class RequestEvidence(Record, frozen=True, kw_only=True):
    """One request. `codes` are the reason codes that its bytes gave (docs/run-directory.md);
    None where the bytes were not parsed. `rank` is the value of the header that was sent."""

    slot: int
    prompt_index: int
    prompt_sha256: str
    rank: int
    cache_salt: str
    outcome: str | None
    start_ns: int | None
    connected_ns: int | None
    sent_ns: int | None
    first_ns: int | None
    last_token_ns: int | None
    end_ns: int | None
    output_tokens: int | None
    codes: tuple[str, ...] | None


class WaveEvidence(Record, frozen=True, kw_only=True):
    """One wave. `aborted` says why it was broken off, "" where it was not."""

    kind: str
    origin_ns: str | None
    requests: tuple[RequestEvidence, ...]
    aborted: str | None
    barrier_wait_ns: int | None
    stall_ns_max: int | None


class EngineWindow(Record, frozen=True, kw_only=True):
    """What the counters of one engine (data-parallel rank) moved by in one window."""

    engine: int
    requests: int | None
    requests_failed: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    preemptions: int | None
    prefix_hit_tokens: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    graph_replays: int | None


class Window(Record, frozen=True, kw_only=True):
    """One wave as the service's counters saw it, read at its two edges only (P2.4a).

    `in_flight` holds the number of running and waiting requests at each edge.
    """

    kind: str
    engines: tuple[EngineWindow, ...]
    in_flight: tuple[int | None, int | None]


class Host(Record, frozen=True, kw_only=True):
    """P2.1: what else the host did. Load in thousandths, steal in parts per million."""

    load_milli: int | None
    steal_ppm: int | None
    throttle_events: int | None
    temperature_milli_c: int | None


class Expected(Record, frozen=True, kw_only=True):
    """What the RunSpec asks of this level. `waves` are the kinds of its waves in order: a second
    round on one service start has no warm-up (P3.1). `prompts` maps a wave to the SHA-256 of each
    slot's prompt. `settings` maps keys of the effective configuration to values, `identity` keys
    of the service's proof. `worker_count` is the number of workers that a path must run on."""

    concurrency: int
    waves: tuple[str, ...]
    input_tokens: int
    output_tokens: dict[str, int]
    data_parallel_size: int
    prompts: dict[str, tuple[str, ...]] | None
    http_timeout_ns: int
    barrier_timeout_ns: int
    send_skew_ns: int
    stall_ns: int
    kv_tokens_min: int
    settings: dict[str, Setting]
    identity: dict[str, str]
    worker_count: int


class LevelEvidence(Record, frozen=True, kw_only=True):
    """All that the rules read about one attempt.

    - `previous_valid`: whether the attempt before was valid; None for a first attempt.
    - `salts_before`: every cache salt of the service's earlier requests.
    - `process_starts`: start of the service's process as read at each edge, as text.
    - `kv_tokens`: KV capacity of each data-parallel rank in tokens.
    - `settings`: the effective configuration of the running service (P2.2).
    - `identity_before`, `identity_after`: proofs around the level (P4.1).
    - `is_healthy_after`: the service's health check after the level.
    - `edge_reads`, `window_reads`: reads of the service's counters at edges and inside windows.
    - `observer_cost_ns`: measured cost of one read.
    - `fused_mc2_calls`, `flashcomm_calls`: calls of the path in the measured window by name, for
      fused MC2 `target` and `draft`.
    - `paths_claimed`: paths that the candidate claims, () for a run without a candidate;
      `path_calls`: claimed path -> worker -> calls in the measured window (P7.3).
    - `deployed_differences`, `weights_differences`: files that differ from the RunSpec's hashes.
    - `device_problems`: what the device pre-flight found.
    """

    round: str
    level: str
    attempt: int
    previous_valid: bool | None
    previous: str | None
    previous_reason: str | None
    expected: Expected
    waves: tuple[WaveEvidence, ...] | None
    salts_before: tuple[str, ...] | None
    windows: tuple[Window, ...] | None
    process_starts: tuple[str | None, ...] | None
    kv_tokens: tuple[int | None, ...] | None
    settings: dict[str, Setting | None] | None
    identity_before: dict[str, str | None] | None
    identity_after: dict[str, str | None] | None
    is_healthy_after: bool | None
    edge_reads: int | None
    window_reads: int | None
    observer_cost_ns: int | None
    is_profiler_on: bool | None
    fused_mc2_calls: dict[str, int | None] | None
    flashcomm_calls: dict[str, int | None] | None
    paths_claimed: tuple[str, ...] | None
    path_calls: dict[str, dict[str, int | None]] | None
    deployed_differences: tuple[str, ...] | None
    weights_differences: tuple[str, ...] | None
    device_problems: tuple[str, ...] | None
    host: Host | None


def wave_evidence(
    wave: Wave, figures: Mapping[int, RequestFigures], codes: Mapping[int, tuple[str, ...]]
) -> WaveEvidence:
    """attempt.json's wave, with the figures and reason codes of each slot -> WaveEvidence.

    A slot that `codes` does not know was not parsed; one without figures has unknown times.
    """
    requests = []
    for request in wave.requests:
        known = figures.get(request.slot)
        requests.append(
            RequestEvidence(
                slot=request.slot,
                prompt_index=request.prompt_index,
                prompt_sha256=request.prompt_sha256,
                rank=request.rank,
                cache_salt=request.cache_salt,
                outcome=request.outcome,
                start_ns=request.start_ns,
                connected_ns=request.connected_ns,
                sent_ns=request.sent_ns,
                first_ns=known.first_ns if known else None,
                last_token_ns=known.last_token_ns if known else None,
                end_ns=known.end_ns if known else None,
                output_tokens=known.output_tokens if known else None,
                codes=codes.get(request.slot),
            )
        )
    return WaveEvidence(
        kind=wave.kind,
        origin_ns=wave.origin_ns,
        requests=tuple(requests),
        aborted=wave.aborted or "",
        barrier_wait_ns=wave.client.barrier_wait_ns if wave.client else None,
        stall_ns_max=wave.client.stall_ns_max if wave.client else None,
    )


class Outcome(StrEnum):
    """Of one rule on one attempt. Unknown is never valid."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a rule found. `codes` are reason codes of docs/run-directory.md."""

    outcome: Outcome
    reason: str
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One validity rule: `reads` names the fields of LevelEvidence that it looks at.

    `decides` is "level" where the attempt becomes invalid, "candidate" where only the verdict on
    the candidate does (P7.3). `is_recomputable`: raw files of the attempt are enough to apply it.
    """

    id: str
    rule: str
    reads: tuple[str, ...]
    decides: str
    is_recomputable: bool
    meaning: str
    check: Callable[[LevelEvidence], Checked]


def rule(
    id: str, number: str, reads: str, *, recomputable: bool = False, decides: str = "level"
) -> Callable[[Callable[[LevelEvidence], Checked]], Rule]:
    """Make a check into a Rule; its docstring is the meaning that reports show."""

    def make(check: Callable[[LevelEvidence], Checked]) -> Rule:
        return Rule(
            id=id,
            rule=number,
            reads=tuple(reads.split()),
            decides=decides,
            is_recomputable=recomputable,
            meaning=" ".join((check.__doc__ or "").split()),
            check=check,
        )

    return make


def settle(
    invalid: list[str],
    unknown: list[str],
    fine: str,
    codes: tuple[str, ...] = (),
    *,
    unknown_codes: tuple[str, ...] = (),
) -> Checked:
    """Invalid wins over unknown, unknown over valid. At most three reasons are spelled out.

    `codes` are for an invalid outcome, `unknown_codes` for an unknown one.
    """
    if invalid:
        return Checked(outcome=Outcome.INVALID, reason=_first_three(invalid), codes=codes)
    if unknown:
        return Checked(outcome=Outcome.UNKNOWN, reason=_first_three(unknown), codes=unknown_codes)
    return Checked(outcome=Outcome.VALID, reason=fine)


def _first_three(reasons: list[str]) -> str:
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + more
