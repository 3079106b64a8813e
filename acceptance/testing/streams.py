"""Values -> the bytes that a service sends: frames, events, HTTP responses, reads."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

DONE = b"data: [DONE]\n\n"
ERROR = {
    "error": {"message": "EngineCore encountered an issue", "type": "InternalServerError"},
}


def event(value: Any) -> bytes:
    """One Server-Sent Event with a JSON object, as vLLM writes it."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def token_event(
    token_ids: Sequence[int],
    *,
    finish: str | None = None,
    prompt: Sequence[int] | None = None,
    text: str = "x",
    index: int = 0,
) -> bytes:
    """A frame with generated IDs; `prompt` is echoed in the first one only."""
    choice: dict[str, Any] = {
        "index": index,
        "text": text,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": None,
        "token_ids": list(token_ids),
        "prompt_token_ids": None if prompt is None else list(prompt),
    }
    return event({"id": "cmpl-1", "object": "text_completion", "choices": [choice]})


def usage_event(prompt_tokens: int, completion_tokens: int, cached_tokens: int | None = 0) -> bytes:
    """The frame with usage alone; `cached_tokens` None leaves the details out."""
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return event({"id": "cmpl-1", "object": "text_completion", "choices": [], "usage": usage})


def completion_events(prompt: Sequence[int], frames: Sequence[Sequence[int]]) -> list[bytes]:
    """A complete stream: token frames, usage, `[DONE]`."""
    last = len(frames) - 1
    events = [
        token_event(
            token_ids,
            finish="length" if number == last else None,
            prompt=prompt if number == 0 else None,
        )
        for number, token_ids in enumerate(frames)
    ]
    return [*events, usage_event(len(prompt), sum(map(len, frames))), DONE]


def head(framing: str = "chunked", status: str = "200 OK", length: int = 0) -> bytes:
    """The head of a response. framing: "chunked", "close" or "length"."""
    lines = [f"HTTP/1.1 {status}", "content-type: text/event-stream; charset=utf-8"]
    if framing == "chunked":
        lines.append("transfer-encoding: chunked")
    elif framing == "length":
        lines.append(f"content-length: {length}")
    lines.append("connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; an empty one ends it."""
    return b"%x\r\n" % len(data) + data + b"\r\n"


END = chunk(b"")


def response(events: Iterable[bytes], framing: str = "chunked", status: str = "200 OK") -> bytes:
    """A whole response, one chunk per event."""
    parts = list(events)
    if framing == "chunked":
        return head(framing, status) + b"".join(map(chunk, parts)) + END
    body = b"".join(parts)
    return head(framing, status, len(body)) + body
