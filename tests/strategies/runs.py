"""A small complete run directory as a draft that can be spoiled, then written.

    draft = run_draft()
    draft.attempt("B1", "C4").wave("measured").requests[2].raw = b"..."
    run_dir = seal(write(draft, tmp_path))

Everything is made by hand from docs/run-directory.md; nothing of `acceptance` is used.
"""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.strategies import wire

ROOT = Path(__file__).resolve().parent.parent.parent
CONCURRENCY = {"C1": 1, "C4": 4, "C16": 16}
INPUT_TOKENS = 3
OUTPUT_TOKENS = {"warmup": 2, "measured": 5}
SECOND = 1_000_000_000
PLAN = ["tests_service/test_made_up.py::test_rounds", "tests_service/test_made_up.py::test_all"]
SETTINGS = {"cache_config.block_size": 32, "additional_config.enable_fused_mc2": 1}
HOST = {"load_milli": 1, "steal_ppm": 0, "throttle_events": None, "temperature_milli_c": None}
REQUIRED = """wave-count wave-order wave-complete prompt-order salts rank-header request-bytes
barrier send-skew client-stall transport timeouts stream-framing error-frame prompt-echo
output-length usage finish-reason cached-tokens clock metrics foreign-traffic token-counters
rank-routing preemptions prefix-hits service-errors restarts attempt deployment weights
effective-config kv-capacity service-identity observer profiler-off host-load candidate-path"""
EXCUSED = """draft-acceptance graph-replay device-preflight fused-mc2 flashcomm host-throttling"""


def canonical(value: Any) -> bytes:
    """Compact JSON with sorted keys, which is canonical for the ASCII keys used here."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class RequestDraft:
    """One request: its record, and the bytes and reads that its files will hold."""

    record: dict[str, Any]
    sent: bytes
    raw: bytes
    reads: list[list[int]]


@dataclass
class WaveDraft:
    """One wave: its record without requests, and its requests."""

    record: dict[str, Any]
    requests: list[RequestDraft]


@dataclass
class AttemptDraft:
    """One attempt. metrics: counters by engine for each edge, or the bytes of the file."""

    record: dict[str, Any]
    waves: list[WaveDraft]
    metrics: list[dict[int, dict[str, int]] | bytes]
    proofs: list[dict[str, Any]]

    def wave(self, kind: str) -> WaveDraft:
        return next(one for one in self.waves if one.record["kind"] == kind)

    @property
    def path(self) -> str:
        record = self.record
        return f"results/{record['round']}/{record['level']}/attempt-{record['attempt']}"


@dataclass
class RunDraft:
    """A whole run before it is written. files: more files, or other bytes for a path."""

    runspec: dict[str, Any]
    banks: dict[str, list[list[int]]]
    commands: dict[str, dict[str, Any]]
    attempts: list[AttemptDraft]
    files: dict[str, bytes] = field(default_factory=dict)

    def attempt(self, round_name: str, level: str, number: int = 1) -> AttemptDraft:
        wanted = (round_name, level, number)
        return next(
            one
            for one in self.attempts
            if (one.record["round"], one.record["level"], one.record["attempt"]) == wanted
        )


class _Clock:
    """One clock for the run: every wave begins ten seconds after the one before it."""

    def __init__(self) -> None:
        self.now_ns = 5 * 10**15

    def next(self) -> int:
        self.now_ns += 10 * SECOND
        return self.now_ns


def run_draft(
    *,
    levels: tuple[str, ...] = ("C1", "C4"),
    rounds: str = "restart",
    kind: str = "final",
    ranks: int = 1,
    tpot_ns: dict[tuple[str, str], int] | None = None,
    limits_ns: dict[str, str] | None = None,
    repeated: tuple[tuple[str, str], ...] = (),
) -> RunDraft:
    """A valid run. tpot_ns: (round, level) -> ns per token of each of its requests, 1000 where
    not given. repeated: (round, level) that get a second attempt after a first, aborted one."""
    runspec = _runspec(levels, rounds, kind, ranks, limits_ns)
    banks = {
        name: [[base, base + number, 7] for number in range(32)]
        for name, base in (("warmup", 100), ("measured", 1000))
    }
    commands = {"B1": _command("aa", 8001), "B2": _command("bb", 8002)}
    if rounds == "same-service":
        del commands["B2"]
    draft = RunDraft(runspec, banks, commands, [])
    clock = _Clock()
    counters = {rank: _counters() for rank in range(ranks)}
    for round_name in ("B1", "B2"):
        if round_name == "B2" and rounds == "restart":
            counters = {rank: _counters() for rank in range(ranks)}
        for level in levels:
            step = (tpot_ns or {}).get((round_name, level), 1000)
            again = (round_name, level) in repeated
            first = _attempt(draft, round_name, level, 1, step, clock, counters)
            draft.attempts.append(first)
            if again:
                first.waves[-1].record["aborted"] = "made up"
                second = _attempt(draft, round_name, level, 2, step, clock, counters)
                second.record.update(previous="attempt-1", reason="wave-aborted")
                draft.attempts.append(second)
    if kind == "candidate":
        for attempt in draft.attempts:
            draft.files |= path_files(attempt, ranks)
    return draft


def path_files(attempt: AttemptDraft, workers: int, step: int = 7) -> dict[str, bytes]:
    """Path counters at each edge of an attempt: the new path moved by `step` in each wave."""
    return {
        f"{attempt.path}/paths-{edge}.json": canonical(
            {
                "schema": 1,
                "calls": {"attend/new": {str(40 + one): edge * step for one in range(workers)}},
            }
        )
        for edge in range(len(attempt.waves) + 1)
    }


def _runspec(
    levels: tuple[str, ...], rounds: str, kind: str, ranks: int, limits_ns: dict[str, str] | None
) -> dict[str, Any]:
    rules = {**dict.fromkeys(REQUIRED.split(), "required")}
    rules |= dict.fromkeys(EXCUSED.split(), "not_applicable: made up")
    sizes = {
        name: {"input_tokens": INPUT_TOKENS, "output_tokens": count}
        for name, count in OUTPUT_TOKENS.items()
    }
    profile = {
        "name": "made-up",
        "rounds": rounds,
        "levels": list(levels),
        "attempts_max": 2,
        "data_parallel_size": ranks,
        "served_name": "model",
        **sizes,
        "limits": {"send_skew_ns": 1_000_000, "stall_ns": 1_000_000},
        "scopes": {
            "performance": "planned",
            "accuracy": "no trained checkpoint",
            "function": "not planned",
        },
        "rules": rules,
    }
    source = {"name": "tree", "commit": "c0ffee", "dirty": False}
    return {
        "schema": 1,
        "run_id": "made-up-1",
        "kind": kind,
        "created_utc": "2026-12-01T00:00:00+00:00",
        "profile": profile,
        "service": {
            "argv": ["{python}", "-m", "made.up"],
            "environment": {"A": "1"},
            "inherit": ["PATH"],
            "expect": dict(SETTINGS),
            "startup_timeout_s": 10,
            "stop_timeout_s": 10,
            "port": None,
            "kv_tokens_min": 64,
        },
        "http_timeout_ns": 5 * SECOND,
        "barrier_timeout_ns": 60 * SECOND,
        "limits_tpot_ns": limits_ns or dict.fromkeys(levels, "2000/1"),
        "targets": list(levels),
        "thresholds": dict.fromkeys(levels, "1/50") if kind == "candidate" else None,
        "parent_tpot_ns": dict.fromkeys(levels, "1100/1") if kind == "candidate" else None,
        "candidate": source,
        "parent": source if kind == "candidate" else None,
        "paths_claimed": ["attend/new"] if kind == "candidate" else [],
        "workers": ranks,
        "register_head": "0" * 64,
        "function": None,
        "plan": PLAN,
        "versions": {"python": "3.11.0"},
        "files": [],
        "tools": [],
        "model": [],
    }


def _command(name: str, port: int) -> dict[str, Any]:
    return {
        "schema": 1,
        "service_id": name * 8,
        "argv": ["/usr/bin/python3", "-m", "made.up", "--port", str(port)],
        "environment": {"A": "1"},
        "directory": "/tmp",
        "port": port,
        "expect": dict(SETTINGS),
    }


def _counters() -> dict[str, int]:
    names = ("requests", "failed", "prompt_tokens", "output_tokens", "preemptions", "hits")
    return {**dict.fromkeys(names, 0), "running": 0, "waiting": 0}


def _attempt(
    draft: RunDraft,
    round_name: str,
    level: str,
    number: int,
    step_ns: int,
    clock: _Clock,
    counters: dict[int, dict[str, int]],
) -> AttemptDraft:
    is_shared = draft.runspec["profile"]["rounds"] == "same-service"
    command = draft.commands["B1" if is_shared else round_name]
    kinds = ["measured"] if is_shared and round_name == "B2" else ["warmup", "measured"]
    metrics: list[dict[int, dict[str, int]] | bytes] = [_copy(counters)]
    waves = []
    for kind in kinds:
        waves.append(_wave(draft, command["port"], kind, level, step_ns, clock, number))
        for slot in range(CONCURRENCY[level]):
            engine = counters[slot % len(counters)]
            engine["requests"] += 1
            engine["prompt_tokens"] += INPUT_TOKENS
            engine["output_tokens"] += OUTPUT_TOKENS[kind]
        metrics.append(_copy(counters))
    record = {
        "schema": 1,
        "run_id": draft.runspec["run_id"],
        "round": round_name,
        "level": level,
        "attempt": number,
        "service_id": command["service_id"],
        "previous": None,
        "reason": None,
    }
    return AttemptDraft(record, waves, metrics, [_proof(command, len(counters)) for _ in range(2)])


def _copy(counters: dict[int, dict[str, int]]) -> dict[int, dict[str, int]]:
    return {engine: dict(values) for engine, values in counters.items()}


def _proof(command: dict[str, Any], ranks: int) -> dict[str, Any]:
    return {
        "schema": 1,
        "service_id": command["service_id"],
        "identity": {
            "service_id": command["service_id"],
            "port": str(command["port"]),
            "process": "made.up",
            "processes": "42/77",
            "processes_gone": "",
            "port_owners": "42",
            "foreign_listeners": "0",
            "command_sha256": sha256(canonical(command["argv"])),
            "environment_sha256": sha256(canonical(command["environment"])),
            "differences": "",
        },
        "process_start": "77",
        "is_healthy": True,
        "settings": dict(SETTINGS),
        "kv_tokens": [4096] * ranks,
        "is_profiler_on": False,
        "deployed_differences": [],
        "weights_differences": [],
        "device_problems": None,
        "host": dict(HOST),
        "observer_cost_ns": 5000,
    }


def _wave(
    draft: RunDraft, port: int, kind: str, level: str, step_ns: int, clock: _Clock, number: int
) -> WaveDraft:
    origin_ns = clock.next()
    requests = [
        request_draft(draft, port, kind, slot, step_ns, f"salt-{origin_ns}-{slot}")
        for slot in range(CONCURRENCY[level])
    ]
    client = {
        "pid": 9,
        "scheduler": "SCHED_OTHER",
        "nice": 0,
        "affinity": [0],
        "gc_collections": 0,
        "ticks": 3,
        "tick_ns": 5_000_000,
        "stall_ns_max": 1000,
        "read_ns_max": 1000,
        "barrier_wait_ns": 1000,
    }
    record = {
        "kind": kind,
        "origin_ns": str(origin_ns),
        "started_utc": "2026-12-01T00:00:00Z",
        "client": client,
        "aborted": None,
    }
    return WaveDraft(record, requests)


def body_bytes(draft: RunDraft, kind: str, prompt: list[int], salt: str) -> bytes:
    """The body of P3.5."""
    size = draft.runspec["profile"][kind]["output_tokens"]
    return canonical(
        {
            "model": draft.runspec["profile"]["served_name"],
            "prompt": prompt,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "echo": False,
            "add_special_tokens": False,
            "ignore_eos": True,
            "temperature": 0,
            "top_p": 1,
            "seed": 0,
            "n": 1,
            "min_tokens": size,
            "max_tokens": size,
            "cache_salt": salt,
        }
    )


def request_draft(
    draft: RunDraft, port: int, kind: str, slot: int, step_ns: int, salt: str
) -> RequestDraft:
    """A request that went well: first token 1 ms after its start, EOF `step_ns` per later token
    after that, so that its TPOT is exactly `step_ns`."""
    prompt = draft.banks[kind][slot]
    rank = slot % draft.runspec["profile"]["data_parallel_size"]
    body = body_bytes(draft, kind, prompt, salt)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"X-data-parallel-rank: {rank}\r\nConnection: close\r\n\r\n"
    )
    count = OUTPUT_TOKENS[kind]
    frames = [[10], list(range(11, 10 + count))]
    events = wire.stream(prompt, frames)
    first, rest = wire.CHUNKED + wire.chunk(events[0]), b"".join(map(wire.chunk, events[1:]))
    start = 10 * slot
    first_ns = start + 1_000_000
    end_ns = first_ns + step_ns * (count - 1)
    reads = [[first_ns, len(first)], [end_ns, len(rest + wire.END)], [end_ns + 5, 0]]
    name = f"{kind}-{slot:02d}"
    record = {
        "slot": slot,
        "prompt_index": slot,
        "prompt_sha256": sha256(canonical(prompt)),
        "rank": rank,
        "cache_salt": salt,
        "start_ns": start,
        "connected_ns": start + 3,
        "sent_ns": start + 5,
        "outcome": "fin",
        "request": f"{name}.request",
        "raw": f"{name}.raw",
        "reads": f"{name}.reads",
    }
    return RequestDraft(record, head.encode() + body, first + rest + wire.END, reads)


def metrics_text(counters: dict[int, dict[str, int]]) -> bytes:
    """/metrics as vLLM writes it, as far as a verdict needs it."""
    lines = ["# HELP vllm:num_requests_running made up", "# TYPE vllm:num_requests_running gauge"]
    for engine, count in counters.items():
        label = f'engine="{engine}",model_name="model"'
        ok = count["requests"] - count["failed"]
        lines += [
            f"vllm:num_requests_running{{{label}}} {count['running']}.0",
            f"vllm:num_requests_waiting{{{label}}} {count['waiting']}.0",
            f'vllm:request_success_total{{{label},finished_reason="length"}} {ok}.0',
            f'vllm:request_success_total{{{label},finished_reason="stop"}} 0.0',
            f'vllm:request_success_total{{{label},finished_reason="abort"}} {count["failed"]}.0',
            f'vllm:request_success_total{{{label},finished_reason="error"}} 0.0',
            f"vllm:prompt_tokens_total{{{label}}} {count['prompt_tokens']}.0",
            f"vllm:generation_tokens_total{{{label}}} {count['output_tokens']}.0",
            f"vllm:num_preemptions_total{{{label}}} {count['preemptions']}.0",
            f"vllm:prefix_cache_queries_total{{{label}}} {count['prompt_tokens']}.0",
            f"vllm:prefix_cache_hits_total{{{label}}} {count['hits']}.0",
        ]
    return "\n".join([*lines, ""]).encode()


def write(draft: RunDraft, root: Path) -> Path:
    """Write the run directory below `root`; without figures, without a seal."""
    run_dir = root / draft.runspec["run_id"]
    run_dir.mkdir(parents=True)
    for kind, bank in draft.banks.items():
        _put(run_dir, f"plan/banks/{kind}.json", canonical(bank))
    _put(run_dir, "plan/protocol.md", b"the protocol\n")
    plan = "".join(f"{test}\n" for test in draft.runspec["plan"])
    _put(run_dir, "plan/plan.txt", f"# made up\n{plan}! test_npu no such machine\n".encode())
    for path, data in draft.files.items():
        if path.startswith(("plan/", "validator/", "patch/")):
            _put(run_dir, path, data)
    copy_validator(run_dir)
    runspec = dict(draft.runspec)
    runspec["files"] = runspec["files"] or [
        file_hash(run_dir, path) for path in paths_below(run_dir)
    ]
    _put(run_dir, "plan/runspec.json", canonical(runspec))
    runspec_sha256 = sha256((run_dir / "plan/runspec.json").read_bytes())
    for name, command in draft.commands.items():
        _put(run_dir, f"results/{name}/service/command.json", canonical(command))
    for attempt in draft.attempts:
        _write_attempt(run_dir, attempt, runspec_sha256)
    for path, data in draft.files.items():
        if not path.startswith(("plan/", "validator/", "patch/")):
            _put(run_dir, path, data)
    return run_dir


def _write_attempt(run_dir: Path, attempt: AttemptDraft, runspec_sha256: str) -> None:
    record: dict[str, Any] = {"runspec_sha256": runspec_sha256, **attempt.record}
    files: dict[str, bytes] = {}
    for number, counters in enumerate(attempt.metrics):
        is_text = isinstance(counters, bytes)
        files[f"metrics-{number}.txt"] = counters if is_text else metrics_text(counters)
    for number, proof in enumerate(attempt.proofs):
        files[f"identity-{number}.json"] = canonical(proof)
    record.setdefault("metrics", [n for n in files if n.startswith("metrics")])
    record.setdefault("identity", [n for n in files if n.startswith("identity")])
    record["waves"] = []
    for wave in attempt.waves:
        for one in wave.requests:
            files[one.record["request"]] = one.sent
            files[one.record["raw"]] = one.raw
            files[one.record["reads"]] = canonical(one.reads)
        record["waves"].append({**wave.record, "requests": [r.record for r in wave.requests]})
    files["attempt.json"] = canonical(record)
    for name, data in files.items():
        _put(run_dir, f"{attempt.path}/{name}", data)


def _put(run_dir: Path, path: str, data: bytes) -> None:
    file = run_dir / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def paths_below(run_dir: Path) -> list[str]:
    """All files, relative, sorted."""
    found = (path for path in run_dir.rglob("*") if path.is_file())
    return sorted(path.relative_to(run_dir).as_posix() for path in found)


def file_hash(run_dir: Path, path: str) -> dict[str, Any]:
    data = (run_dir / path).read_bytes()
    return {"path": path, "size": len(data), "sha256": sha256(data)}


def copy_validator(run_dir: Path) -> None:
    """Put the validator into the archive, as the gate does."""
    for source in sorted((ROOT / "validator").glob("*.py")):
        _put(run_dir, f"validator/{source.name}", source.read_bytes())


def seal(run_dir: Path, figures: dict[str, Any] | None = None) -> Path:
    """Write both records of figures and what the run ended with, then the manifest and its hash.

    figures: what the live side is said to have found; else the ones recomputed here.
    """
    import validator

    found = figures if figures is not None else validator.recompute(run_dir)
    _put(run_dir, "results/figures.json", canonical(found))
    _put(run_dir, "validator/recomputation.json", canonical(found))
    verdict = found["verdict"]
    cases = [f"{PLAN[0]}[B1]", f"{PLAN[0]}[B2]", PLAN[1]]
    outcomes = [{"test": test, "verdict": verdict, "reason": ""} for test in cases]
    claim = {
        "schema": 1,
        "run_id": found["run_id"],
        "verdict": verdict,
        "reason": "",
        "line": f"{verdict} {found['run_id']} made up",
    }
    _put(run_dir, "results/outcomes.json", canonical(outcomes))
    _put(run_dir, "results/verdict.json", canonical(claim))
    reseal(run_dir)
    return run_dir


def reseal(run_dir: Path) -> None:
    """A manifest that fits whatever lies there now."""
    for name in ("manifest.json", "manifest.sha256"):
        (run_dir / name).unlink(missing_ok=True)
    runspec = (run_dir / "plan/runspec.json").read_bytes()
    manifest = canonical(
        {
            "schema": 1,
            "run_id": json.loads(runspec)["run_id"],
            "runspec_sha256": sha256(runspec),
            "files": [file_hash(run_dir, path) for path in paths_below(run_dir)],
        }
    )
    _put(run_dir, "manifest.json", manifest)
    _put(run_dir, "manifest.sha256", f"{sha256(manifest)}\n".encode())


def clone(run_dir: Path, target: Path) -> Path:
    """A copy of a written run that may be spoiled."""
    return Path(shutil.copytree(run_dir, target))


def mean(values: list[int]) -> Fraction:
    """Arithmetic mean, exact."""
    return Fraction(sum(values), len(values))
