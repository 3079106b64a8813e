"""Bytes of a service: events, chunks, responses. Written by hand here, so that neither the gate's
nor the validator's own idea of them is in the tests."""

import json
from collections.abc import Sequence
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
CLOSE = HEAD + b"connection: close\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    """One event with a JSON value."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def tokens(
    ids: Sequence[int], finish: str | None = None, echo: Sequence[int] | None = None
) -> dict[str, Any]:
    """The value of a token frame."""
    choice = {
        "index": 0,
        "text": "x",
        "finish_reason": finish,
        "token_ids": list(ids),
        "prompt_token_ids": None if echo is None else list(echo),
    }
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice]}


def usage(prompt: int, completion: int, cached: int | None = 0) -> dict[str, Any]:
    """The value of the usage frame."""
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    counts = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "choices": [],
        "usage": {**counts, **details},
    }


def stream(prompt: Sequence[int], frames: Sequence[Sequence[int]]) -> list[bytes]:
    """Events of a complete answer: token frames, usage, `[DONE]`."""
    last = len(frames) - 1
    events = [
        event(tokens(ids, "length" if n == last else None, prompt if n == 0 else None))
        for n, ids in enumerate(frames)
    ]
    return [*events, event(usage(len(prompt), sum(map(len, frames)))), DONE]


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def chunked(events: Sequence[bytes]) -> bytes:
    """A whole chunked response, one chunk per event."""
    return CHUNKED + b"".join(map(chunk, events)) + END
