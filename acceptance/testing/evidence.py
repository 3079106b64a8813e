"""A clean attempt as evidence, for tests that then change one thing about it.

C4 on two data-parallel engines; times in ns, every request alike: start 10, connected 20, sent 30,
first 1000, last token 8000, end 9000.
"""

from typing import Any

from acceptance.evidence import (
    EngineWindow,
    Expected,
    Host,
    LevelEvidence,
    RequestEvidence,
    WaveEvidence,
    Window,
)
from acceptance.validity import RULES

OUTPUT_TOKENS = {"warmup": 16, "measured": 64}
ORIGINS = {"warmup": str(10**12), "measured": str(10**12 + 10**6)}


def required() -> dict[str, str]:
    """A table that requires every rule, like that of `ascend-910c`."""
    return {rule.id: "required" for rule in RULES}


def request(kind: str, slot: int, **changes: Any) -> RequestEvidence:
    """A complete request."""
    fields: dict[str, Any] = {
        "slot": slot,
        "prompt_index": slot,
        "prompt_sha256": f"{kind[0]}{slot}",
        "rank": slot % 2,
        "cache_salt": f"{kind}-{slot}",
        "outcome": "fin",
        "start_ns": 10,
        "connected_ns": 20,
        "sent_ns": 30,
        "first_ns": 1000,
        "last_token_ns": 8000,
        "end_ns": 9000,
        "output_tokens": OUTPUT_TOKENS[kind],
        "codes": (),
    }
    return RequestEvidence(**(fields | changes))


def wave(kind: str) -> WaveEvidence:
    """A complete wave of four."""
    return WaveEvidence(
        kind=kind,
        origin_ns=ORIGINS[kind],
        requests=tuple(request(kind, slot) for slot in range(4)),
        aborted="",
        barrier_wait_ns=5,
        stall_ns_max=7,
    )


def engine(kind: str, number: int, **changes: Any) -> EngineWindow:
    """What one of two engines counts for its two requests of 128 tokens in."""
    fields: dict[str, Any] = {
        "engine": number,
        "requests": 2,
        "requests_failed": 0,
        "prompt_tokens": 256,
        "output_tokens": 2 * OUTPUT_TOKENS[kind],
        "preemptions": 0,
        "prefix_hit_tokens": 0,
        "draft_tokens": 100,
        "accepted_tokens": 60,
        "graph_replays": 40,
    }
    return EngineWindow(**(fields | changes))


def window(kind: str) -> Window:
    """A window of both engines."""
    engines = (engine(kind, 0), engine(kind, 1))
    return Window(kind=kind, engines=engines, in_flight=(0, 0))


def evidence(**changes: Any) -> LevelEvidence:
    """A first attempt of level C4 against which no rule has anything."""
    identity = {"pid": "7", "source": "abc"}
    fields: dict[str, Any] = {
        "round": "B1",
        "level": "C4",
        "attempt": 1,
        "previous_valid": None,
        "previous": None,
        "previous_reason": None,
        "expected": Expected(
            concurrency=4,
            waves=("warmup", "measured"),
            input_tokens=128,
            output_tokens=OUTPUT_TOKENS,
            data_parallel_size=2,
            prompts={kind: tuple(f"{kind[0]}{slot}" for slot in range(4)) for kind in ORIGINS},
            http_timeout_ns=100_000,
            barrier_timeout_ns=600,
            send_skew_ns=50,
            stall_ns=70,
            kv_tokens_min=1000,
            settings={"block_size": 128, "enable_fused_mc2": 1, "prefix_caching": True},
            identity={"source": "abc"},
            worker_count=2,
        ),
        "waves": (wave("warmup"), wave("measured")),
        "salts_before": (),
        "windows": (window("warmup"), window("measured")),
        "process_starts": ("77", "77", "77"),
        "kv_tokens": (1000, 1128),
        "settings": {"block_size": 128, "enable_fused_mc2": 1, "prefix_caching": True, "x": None},
        "identity_before": identity,
        "identity_after": dict(identity),
        "is_healthy_after": True,
        "edge_reads": 3,
        "window_reads": 0,
        "observer_cost_ns": 2_000_000,
        "is_profiler_on": False,
        "fused_mc2_calls": {"target": 9, "draft": 3},
        "flashcomm_calls": {"target": 9},
        "paths_claimed": ("row_mask",),
        "path_calls": {"row_mask": {"worker-0": 3, "worker-1": 3}},
        "deployed_differences": (),
        "weights_differences": (),
        "device_problems": (),
        "host": Host(load_milli=900, steal_ppm=0, throttle_events=0, temperature_milli_c=55_000),
    }
    return LevelEvidence(**(fields | changes))
