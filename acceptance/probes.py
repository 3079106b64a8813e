"""Snapshots of /metrics and lines of a log -> counters per engine and what they moved by.

vLLM renames its metrics from version to version; `NAMES` is the one place that knows. A counter
that is not there is None, never 0: whether a service does not count something or counted none of
it are two things (P2.4a).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction

from prometheus_client.parser import text_string_to_metric_families

from acceptance.evidence import EngineWindow, Window

FAILED = ("error", "abort")
"""Reasons of `request_success_total` that are no success."""

EXACT_MAX = 1 << 53
"""Samples are floats: above this an integer is no longer exact."""

Labels = Mapping[str, str]

NAMES: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "output_tokens": ("vllm:generation_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_query_tokens": (
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
    ),
    "prefix_hit_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "graph_replays": ("dsv41:graph_replays_total",),
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
}
"""Our name -> vLLM's names, the newest first; the first one that is there counts."""

REQUESTS = "vllm:request_success_total"
ACCEPTED_PER_POSITION = (
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos",
)
KV_TOKENS = re.compile(r"\b(?:GPU|CPU|NPU) KV cache size: ([\d,]+) tokens")
ENGINE = re.compile(r"\((?:EngineCore|Worker)(?:_?(?:DP)?(\d+))?\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What one engine (data-parallel rank) counted, or by how much that moved; None is unknown.

    `requests` are finished ones of any reason, `requests_failed` those that ended by error or
    abort. `drafts` counts verify steps with a draft, `accepted_per_position` accepted tokens by
    their place in the draft. `running` and `waiting` are states, not counters.
    """

    requests: int | None = None
    requests_failed: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    preemptions: int | None = None
    prefix_query_tokens: int | None = None
    prefix_hit_tokens: int | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_per_position: tuple[int, ...] | None = None
    graph_replays: int | None = None
    running: int | None = None
    waiting: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One read of /metrics: the counters of each engine that it names."""

    engines: Mapping[int, Counters] = field(default_factory=dict)


class _Samples:
    """Samples by metric name and engine; an engine's series are added up."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, dict[int, list[tuple[Labels, int]]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in _WANTED:
                    engine = int(sample.labels.get("engine", "0"))
                    value = _integer(sample.name, sample.value)
                    by_engine = self.values.setdefault(sample.name, {})
                    by_engine.setdefault(engine, []).append((sample.labels, value))

    def engines(self) -> list[int]:
        """All that any metric names."""
        return sorted({engine for by_engine in self.values.values() for engine in by_engine})

    def of(self, engine: int, names: Iterable[str]) -> list[tuple[Labels, int]] | None:
        """The engine's samples under the first name that is there."""
        for name in names:
            if engine in self.values.get(name, {}):
                return self.values[name][engine]
        return None


_WANTED = {
    REQUESTS,
    *ACCEPTED_PER_POSITION,
    *(name for names in NAMES.values() for name in names),
}


def _integer(name: str, value: float) -> int:
    if not 0 <= value <= EXACT_MAX or value != int(value):
        raise ValueError(f"{name} is {value}: not a count")
    return int(value)


def snapshot(text: str | bytes) -> Snapshot:
    """The counters in an answer of /metrics. ValueError if it is no such answer."""
    samples = _Samples(text.decode() if isinstance(text, bytes) else text)
    return Snapshot(engines={engine: _counters(samples, engine) for engine in samples.engines()})


def _counters(samples: _Samples, engine: int) -> Counters:
    def total(names: Iterable[str]) -> int | None:
        found = samples.of(engine, names)
        return None if found is None else sum(value for _, value in found)

    finished = samples.of(engine, (REQUESTS,))
    return Counters(
        requests=total((REQUESTS,)),
        requests_failed=None
        if finished is None
        else sum(value for labels, value in finished if labels.get("finished_reason") in FAILED),
        accepted_per_position=_per_position(samples.of(engine, ACCEPTED_PER_POSITION)),
        **{name: total(names) for name, names in NAMES.items()},
    )


def _per_position(found: list[tuple[Labels, int]] | None) -> tuple[int, ...] | None:
    """Positions 0, 1, 2...; None if one is missing in between."""
    if found is None:
        return None
    counts: dict[int, int] = {}
    for labels, value in found:
        position = int(labels.get("position", "-1"))
        counts[position] = counts.get(position, 0) + value
    if set(counts) != set(range(len(counts))):
        return None
    return tuple(counts[position] for position in range(len(counts)))


def difference(before: Snapshot, after: Snapshot) -> dict[int, Counters]:
    """By how much each engine's counters moved; negative where a process was replaced.

    An engine that only one snapshot knows has unknown differences. `running` and `waiting` are
    those of `after`.
    """
    return {
        engine: _moved(
            before.engines.get(engine, Counters()), after.engines.get(engine, Counters())
        )
        for engine in sorted({*before.engines, *after.engines})
    }


def _moved(before: Counters, after: Counters) -> Counters:
    def less(a: int | None, b: int | None) -> int | None:
        return None if a is None or b is None else a - b

    plain = {
        f.name: less(getattr(after, f.name), getattr(before, f.name))
        for f in fields(Counters)
        if f.name not in ("accepted_per_position", "running", "waiting")
    }
    old, new = before.accepted_per_position, after.accepted_per_position
    positions = (
        None
        if old is None or new is None or len(old) != len(new)
        else tuple(a - b for a, b in zip(new, old, strict=True))
    )
    return Counters(
        **plain, accepted_per_position=positions, running=after.running, waiting=after.waiting
    )


def acceptance_length(moved: Counters) -> Fraction | None:
    """Tokens per verify step: 1 + accepted / drafts. None if unknown or nothing was drafted."""
    if moved.accepted_tokens is None or moved.drafts is None or moved.drafts <= 0:
        return None
    return 1 + Fraction(moved.accepted_tokens, moved.drafts)


def acceptance_by_position(moved: Counters) -> tuple[Fraction, ...] | None:
    """The share of drafts whose token was accepted, for each position of the draft."""
    if moved.accepted_per_position is None or moved.drafts is None or moved.drafts <= 0:
        return None
    return tuple(Fraction(accepted, moved.drafts) for accepted in moved.accepted_per_position)


def window(kind: str, before: Snapshot, after: Snapshot) -> Window:
    """What the validity rules read of one wave (P2.4a, P2.5, P2.6)."""
    return Window(
        kind=kind,
        engines=tuple(
            EngineWindow(
                engine=engine,
                **{
                    name: getattr(moved, name)
                    for name in EngineWindow.__struct_fields__
                    if name != "engine"
                },
            )
            for engine, moved in difference(before, after).items()
        ),
        in_flight=(in_flight(before), in_flight(after)),
    )


def in_flight(now: Snapshot) -> int | None:
    """Requests running and waiting on all engines; None if one engine does not tell."""
    counts = [n for c in now.engines.values() for n in (c.running, c.waiting)]
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def kv_tokens(log: str, data_parallel_size: int) -> tuple[int | None, ...]:
    """KV capacity of each engine in tokens, as it said itself in the log (P2.3).

    /metrics can't tell: its `num_gpu_blocks` is the sum over all engines. Where an engine's
    workers said different capacities, the smallest one counts.
    """
    found: dict[int, int] = {}
    for line in log.splitlines():
        said = KV_TOKENS.search(line)
        if not said:
            continue
        where = ENGINE.search(line)
        engine = int(where.group(1) or 0) if where else 0
        if not where and data_parallel_size > 1:
            continue
        tokens = int(said.group(1).replace(",", ""))
        found[engine] = min(found.get(engine, tokens), tokens)
    return tuple(found.get(engine) for engine in range(data_parallel_size))


def path_calls(files: Mapping[str, bytes]) -> dict[str, dict[str, int]]:
    """Files of path counters by name -> path -> file's name without its suffix -> calls.

    One file is one process of the service (`<pid>.json`); a path that a process never took is
    0 there, because the process did count. ValueError for a file of another form.
    """
    by_worker: dict[str, dict[str, int]] = {}
    for name, data in sorted(files.items()):
        try:
            paths = json.loads(data)["paths"]
            worker = name.rpartition("/")[2].removesuffix(".json")
            by_worker[worker] = {path: int(count["calls"]) for path, count in paths.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{name}: no path counters: {error!r}") from None
    every = sorted({path for paths in by_worker.values() for path in paths})
    return {
        path: {worker: paths.get(path, 0) for worker, paths in by_worker.items()} for path in every
    }


def path_difference(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int | None]]:
    """Calls between two edges by path and worker. A worker that was not there at the first edge,
    or whose counter went back, is unknown; a path that it had not taken yet stood at 0."""
    workers = {worker for calls in before.values() for worker in calls}
    return {
        path: {
            worker: None
            if worker not in workers or calls[worker] < before.get(path, {}).get(worker, 0)
            else calls[worker] - before.get(path, {}).get(worker, 0)
            for worker in calls
        }
        for path, calls in after.items()
    }


def claimed(
    claims: Iterable[str], calls: Mapping[str, Mapping[str, int | None]] | None
) -> dict[str, dict[str, int | None]]:
    """What a candidate claims -> calls by path and worker; a path without workers has no counter.

    `op.*/path` stands for `op.N/path` of every `op.N` that counted anything, whichever path it
    took. A worker that counted the operation but never this path stands at 0: it was not taken.
    """
    known = calls or {}
    counted: dict[str, dict[str, int | None]] = {}
    for name, workers in known.items():
        zeros = dict.fromkeys(workers, 0)
        counted.setdefault(name.rpartition("/")[0], {}).update(zeros)
    found: dict[str, dict[str, int | None]] = {}
    for claim in claims:
        operation, _, path = claim.rpartition("/")
        family = operation.removesuffix("*")
        of_family = [o for o in sorted(counted) if family != operation and o.startswith(family)]
        for one in of_family or [operation]:
            name = f"{one}/{path}"
            found[name] = {**counted.get(one, {}), **known.get(name, {})}
    return found
