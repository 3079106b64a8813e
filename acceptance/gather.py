"""Files of an attempt -> the evidence that the validity rules read. Nothing else is asked."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from acceptance import metrics, probes
from acceptance.canonical import canonical, sha256
from acceptance.client import http_request
from acceptance.evidence import (
    Expected,
    LevelEvidence,
    WaveEvidence,
    Window,
    wave_evidence,
)
from acceptance.metrics import LevelExpectation, Limits
from acceptance.proof import PathCalls, Proof
from acceptance.protocol import CONCURRENCY, WAVES, completion_body, data_parallel_rank
from acceptance.records import Attempt, Request, RequestFigures
from acceptance.runspec import RunSpec
from acceptance.steps import waves

Load = Callable[[str], bytes]


def attempt_dir(run_dir: Path, attempt: Attempt) -> Path:
    """Where an attempt lies."""
    return run_dir / "results" / attempt.round / attempt.level / f"attempt-{attempt.attempt}"


def loader(run_dir: Path, attempt: Attempt) -> Load:
    """Bytes of a file of the attempt, by the name that its record gives."""
    directory = attempt_dir(run_dir, attempt)
    return lambda name: (directory / name).read_bytes()


def read_banks(run_dir: Path) -> dict[str, list[list[int]]]:
    """The two banks as they were frozen."""
    return {
        kind: json.loads((run_dir / f"plan/banks/{kind}.json").read_bytes())
        for kind in ("warmup", "measured")
    }


def request_bytes(
    runspec: RunSpec, port: int, kind: str, request: Request, prompt: list[int]
) -> bytes:
    """The bytes that a request must have had (P3.5, P3.6)."""
    body = completion_body(
        model=runspec.profile.served_name,
        prompt=prompt,
        output_tokens=getattr(runspec.profile, kind).output_tokens,
        cache_salt=request.cache_salt,
    )
    return http_request(
        host="127.0.0.1",
        port=port,
        path="/v1/completions",
        rank=data_parallel_rank(request.slot, runspec.profile.data_parallel_size),
        body=canonical(body),
    )


def level_expectation(
    run_dir: Path, runspec: RunSpec, attempt: Attempt, earlier: Sequence[Attempt]
) -> LevelExpectation:
    """What the attempt had to be, from the frozen files."""
    banks = read_banks(run_dir)
    port = _port(run_dir, attempt)
    return LevelExpectation(
        concurrency=CONCURRENCY[attempt.level],
        prompts=banks,
        output_tokens=_output_tokens(runspec),
        request=lambda kind, request: request_bytes(
            runspec, port, kind, request, banks[kind][request.slot]
        ),
        limits=Limits(
            send_skew_ns=runspec.profile.limits.send_skew_ns,
            stall_ns=runspec.profile.limits.stall_ns,
        ),
        waves=waves(runspec.profile.rounds, attempt.round),
        salts=_salts(earlier),
    )


def _output_tokens(runspec: RunSpec) -> dict[str, int]:
    return {kind: getattr(runspec.profile, kind).output_tokens for kind in WAVES}


def _port(run_dir: Path, attempt: Attempt) -> int:
    """The port of the service that the attempt ran on; 0, which no request has, if unknown."""
    try:
        is_shared = not (run_dir / "results" / attempt.round / "service").is_dir()
        owner = "B1" if is_shared else attempt.round
        path = run_dir / "results" / owner / "service/command.json"
        return int(json.loads(path.read_bytes())["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _salts(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    return tuple(r.cache_salt for a in attempts for wave in a.waves for r in wave.requests)


def level_evidence(
    run_dir: Path,
    runspec: RunSpec,
    attempt: Attempt,
    earlier: Sequence[Attempt],
    *,
    previous_valid: bool | None,
) -> LevelEvidence:
    """Everything that the rules read about one attempt; what no file says is None."""
    load = loader(run_dir, attempt)
    proofs = [_proof(load, name) for name in attempt.identity]
    known = [proof for proof in proofs if proof is not None]
    first, last = (known[0], known[-1]) if len(known) >= 2 else (None, None)
    calls = _path_calls(load, len(attempt.waves))
    claimed = probes.claimed(runspec.paths_claimed, calls)
    return LevelEvidence(
        round=attempt.round,
        level=attempt.level,
        attempt=attempt.attempt,
        previous_valid=previous_valid,
        previous=attempt.previous,
        previous_reason=attempt.reason,
        expected=_expected(run_dir, runspec, attempt),
        waves=_waves(run_dir, runspec, attempt, earlier),
        salts_before=_salts(earlier),
        windows=_windows(load, attempt),
        process_starts=tuple(proof.process_start for proof in known) or None,
        kv_tokens=last.kv_tokens if last else None,
        settings=dict(last.settings) if last and last.settings is not None else None,
        identity_before=first.identity if first else None,
        identity_after=last.identity if last else None,
        is_healthy_after=last.is_healthy if last else None,
        edge_reads=len(attempt.metrics),
        window_reads=0,
        observer_cost_ns=last.observer_cost_ns if last else None,
        is_profiler_on=last.is_profiler_on if last else None,
        fused_mc2_calls=None,
        flashcomm_calls=None,
        paths_claimed=tuple(claimed),
        path_calls={path: calls for path, calls in claimed.items() if calls} if calls else None,
        deployed_differences=last.deployed_differences if last else None,
        weights_differences=last.weights_differences if last else None,
        device_problems=last.device_problems if last else None,
        host=last.host if last else None,
    )


def _proof(load: Load, name: str) -> Proof | None:
    try:
        return msgspec.json.decode(load(name), type=Proof)
    except (OSError, msgspec.DecodeError):
        return None


def _path_calls(load: Load, waves: int) -> dict[str, dict[str, int | None]] | None:
    """Calls of every path in the measured window, which is the last one: between the counters at
    its two edges. None where one of them was not read."""
    try:
        before, after = (
            msgspec.json.decode(load(f"paths-{edge}.json"), type=PathCalls).calls
            for edge in (waves - 1, waves)
        )
    except (OSError, msgspec.DecodeError):
        return None
    return probes.path_difference(before, after)


def _expected(run_dir: Path, runspec: RunSpec, attempt: Attempt) -> Expected:
    profile = runspec.profile
    count = CONCURRENCY[attempt.level]
    prompts = {
        kind: tuple(sha256(canonical(prompt)) for prompt in bank[:count])
        for kind, bank in read_banks(run_dir).items()
    }
    return Expected(
        concurrency=count,
        waves=waves(profile.rounds, attempt.round),
        input_tokens=profile.measured.input_tokens,
        output_tokens=_output_tokens(runspec),
        data_parallel_size=profile.data_parallel_size,
        prompts=prompts,
        http_timeout_ns=runspec.http_timeout_ns,
        barrier_timeout_ns=runspec.barrier_timeout_ns,
        send_skew_ns=profile.limits.send_skew_ns,
        stall_ns=profile.limits.stall_ns,
        kv_tokens_min=runspec.service.kv_tokens_min,
        settings=runspec.service.expect,
        identity={},
        worker_count=runspec.workers,
    )


def _waves(
    run_dir: Path, runspec: RunSpec, attempt: Attempt, earlier: Sequence[Attempt]
) -> tuple[WaveEvidence, ...]:
    load = loader(run_dir, attempt)
    expected = level_expectation(run_dir, runspec, attempt, earlier)
    found = []
    for wave in attempt.waves:
        figures: dict[int, RequestFigures] = {}
        codes: dict[int, tuple[str, ...]] = {}
        for request in wave.requests:
            judged, reasons = metrics.judge_stored(wave.kind, request, load, expected)
            codes[request.slot] = tuple(sorted(reasons))
            if judged is not None:
                figures[request.slot] = judged
        found.append(wave_evidence(wave, figures, codes))
    return tuple(found)


def _windows(load: Load, attempt: Attempt) -> tuple[Window, ...] | None:
    """One window between each two neighbouring snapshots; None where none can be read."""
    try:
        snapshots = [probes.snapshot(load(name)) for name in attempt.metrics]
    except (OSError, ValueError):
        return None
    kinds = [wave.kind for wave in attempt.waves]
    edges = zip(kinds, snapshots, snapshots[1:], strict=False)
    return tuple(probes.window(kind, before, after) for kind, before, after in edges)
