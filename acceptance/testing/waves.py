"""Builders of waves and of what judges them; a test sets only what matters to it."""

from collections.abc import Sequence
from typing import Any

from acceptance.canonical import canonical
from acceptance.client.spec import WaveRequest, WaveSpec, prompt_sha256
from acceptance.protocol import completion_body
from acceptance.records import ClientReport, Request, Wave

PROMPT = (11, 12, 13)


def prompts(count: int) -> tuple[tuple[int, ...], ...]:
    """Distinct short prompts."""
    return tuple((*PROMPT, 100 + number) for number in range(count))


def wave_request(slot: int, prompt: Sequence[int], output_tokens: int, salt: str) -> WaveRequest:
    """The performance request of a slot, all ranks 0."""
    body = completion_body(
        model="model", prompt=list(prompt), output_tokens=output_tokens, cache_salt=salt
    )
    return WaveRequest(
        slot=slot,
        prompt_index=slot,
        prompt_sha256=prompt_sha256(list(prompt)),
        rank=0,
        cache_salt=salt,
        body=canonical(body),
    )


def wave_spec(port: int, count: int = 1, *, output_tokens: int = 4, **changes: Any) -> WaveSpec:
    """A measured wave of `count` requests to 127.0.0.1."""
    given: dict[str, Any] = {
        "kind": "measured",
        "host": "127.0.0.1",
        "port": port,
        "requests": tuple(
            wave_request(slot, prompt, output_tokens, f"salt-{slot}")
            for slot, prompt in enumerate(prompts(count))
        ),
        "http_timeout_ns": 60 * 10**9,
        "barrier_timeout_ns": 60 * 10**9,
        "priority": 0,
    }
    return WaveSpec(**{**given, **changes})


def request_record(**changes: Any) -> Request:
    """A request that was sent at once and ended with FIN."""
    given: dict[str, Any] = {
        "slot": 0,
        "prompt_index": 0,
        "prompt_sha256": prompt_sha256(list(PROMPT)),
        "rank": 0,
        "cache_salt": "salt-0",
        "start_ns": 10,
        "connected_ns": 20,
        "sent_ns": 30,
        "outcome": "fin",
        "request": "measured-00.request",
        "raw": "measured-00.raw",
        "reads": "measured-00.reads",
    }
    return Request(**{**given, **changes})


def client_report(**changes: Any) -> ClientReport:
    """A client that disturbed nothing."""
    given: dict[str, Any] = {
        "pid": 1,
        "scheduler": "SCHED_FIFO:10",
        "nice": 0,
        "affinity": (0,),
        "gc_collections": 0,
        "ticks": 1,
        "tick_ns": 5_000_000,
        "stall_ns_max": 0,
        "read_ns_max": 0,
        "barrier_wait_ns": 0,
    }
    return ClientReport(**{**given, **changes})


def wave_record(requests: Sequence[Request], **changes: Any) -> Wave:
    """A measured wave that ended by itself."""
    given: dict[str, Any] = {
        "kind": "measured",
        "origin_ns": "1000",
        "started_utc": "2026-01-01T00:00:00.000000Z",
        "requests": tuple(requests),
        "client": client_report(),
        "aborted": None,
    }
    return Wave(**{**given, **changes})
