"""Text of /metrics -> the counters that a verdict needs, per engine.

A counter that is not there is None, never 0. Values are written as floats; a verdict takes those
that are exact counts, and a snapshot with any other is no snapshot.
"""

import re
from dataclasses import dataclass, fields
from fractions import Fraction

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]*\{(.*)\})?[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?")
LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
COUNT_MAX = 1 << 53
FAILED = ("error", "abort")

FINISHED = "vllm:request_success_total"
COUNTERS = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "output_tokens": ("vllm:generation_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_hit_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "graph_replays": ("dsv41:graph_replays_total",),
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
}
"""Our name -> names in the text, the first that an engine has counts."""

OTHERS = {
    "vllm:gpu_prefix_cache_queries_total",
    "vllm:prefix_cache_queries_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "vllm:spec_decode_num_drafts_total",
}
"""Read only to see which engines there are."""

NAMED = {FINISHED, *OTHERS, *(name for names in COUNTERS.values() for name in names)}


@dataclass(frozen=True)
class Counters:
    """What one engine counted, or what that moved by; None is unknown. `running` and `waiting`
    are states."""

    requests: int | None = None
    requests_failed: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    preemptions: int | None = None
    prefix_hit_tokens: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    graph_replays: int | None = None
    running: int | None = None
    waiting: int | None = None


STATES = ("running", "waiting")


def snapshot(data: bytes) -> dict[int, Counters]:
    """Engine -> what it counted. ValueError if this is no answer of /metrics."""
    series: dict[int, dict[str, list[tuple[str, int]]]] = {}
    for line in data.decode("utf-8").split("\n"):
        sample = _sample(line.strip(" \t\r"))
        if sample is not None and sample[0] in NAMED:
            name, labels, text = sample
            engine = labels.get("engine", "0")
            if not re.fullmatch(r"[0-9]{1,6}", engine):
                raise ValueError(f"engine {engine[:40]!r} is no number")
            values = series.setdefault(int(engine), {}).setdefault(name, [])
            values.append((labels.get("finished_reason", ""), _count(name, text)))
    return {engine: _counters(found) for engine, found in series.items()}


def _sample(line: str) -> tuple[str, dict[str, str], str] | None:
    if not line or line.startswith("#"):
        return None
    found = SAMPLE.fullmatch(line)
    if found is None or not (NUMBER.fullmatch(found[3]) or found[3] in ("NaN", "+Inf", "-Inf")):
        raise ValueError(f"{line[:60]!r} is no sample")
    return found[1], _labels(found[2] or ""), found[3]


def _labels(text: str) -> dict[str, str]:
    labels, at = {}, 0
    while text[at:].strip():
        found = LABEL.match(text, at)
        if found is None:
            raise ValueError(f"{text[:60]!r} are no labels")
        labels[found[1]] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], found[2])
        at = found.end()
    return labels


def _count(name: str, text: str) -> int:
    value = Fraction(text) if NUMBER.fullmatch(text) else Fraction(-1)
    if value.denominator != 1 or not 0 <= value <= COUNT_MAX:
        raise ValueError(f"{name} is {text[:40]}: no count")
    return int(value)


def _counters(found: dict[str, list[tuple[str, int]]]) -> Counters:
    known: dict[str, int | None] = {}
    if FINISHED in found:
        known["requests"] = sum(value for _, value in found[FINISHED])
        known["requests_failed"] = sum(v for why, v in found[FINISHED] if why in FAILED)
    for field, names in COUNTERS.items():
        name = next((one for one in names if one in found), None)
        known[field] = None if name is None else sum(value for _, value in found[name])
    return Counters(**known)


def moved(before: dict[int, Counters], after: dict[int, Counters]) -> dict[int, Counters]:
    """What each engine's counters moved by; unknown where one of the two snapshots lacks it."""
    return {
        engine: _less(after.get(engine, Counters()), before.get(engine, Counters()))
        for engine in before.keys() | after.keys()
    }


def _less(new: Counters, old: Counters) -> Counters:
    result: dict[str, int | None] = {}
    for name in (field.name for field in fields(Counters)):
        a, b = getattr(new, name), getattr(old, name)
        result[name] = a if name in STATES else None if a is None or b is None else a - b
    return Counters(**result)


def in_flight(now: dict[int, Counters]) -> int | None:
    """Requests inside the service; None where an engine does not say."""
    states = [getattr(one, name) for one in now.values() for name in STATES]
    return None if not states or None in states else sum(states)
