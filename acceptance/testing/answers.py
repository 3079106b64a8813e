"""Scripted chat streams and a client that answers from them, for tests of the accuracy stage."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.archive import write_once
from acceptance.canonical import canonical
from acceptance.client.spec import WaveSpec
from acceptance.records import Request, Wave

SSE_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\n\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a scripted service says to one question. `tokens` None: one per character."""

    content: str
    reasoning: str = "so"
    finish_reason: str = "stop"
    tokens: int | None = None
    prompt_tokens: int = 9


def frames(reply: Reply, name: str) -> list[dict[str, Any]]:
    """The frames of a stream as the service sends them: role, texts in pieces, finish, usage."""

    def frame(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {"id": name, "object": "chat.completion.chunk", "choices": [choice]}

    def pieces(text: str) -> list[str]:
        return [text[start : start + 7] for start in range(0, len(text), 7)]

    tokens = reply.tokens
    if tokens is None:
        tokens = len(reply.reasoning) + len(reply.content)
    usage = {
        "prompt_tokens": reply.prompt_tokens,
        "total_tokens": reply.prompt_tokens + tokens,
        "completion_tokens": tokens,
    }
    return [
        frame({"role": "assistant", "content": ""}),
        *(frame({"reasoning": piece}) for piece in pieces(reply.reasoning)),
        *(frame({"content": piece}) for piece in pieces(reply.content)),
        frame({}, finish=reply.finish_reason),
        {"id": name, "object": "chat.completion.chunk", "choices": [], "usage": usage},
    ]


def stream(reply: Reply, name: str) -> bytes:
    """A whole response: head, one chunk per event, `[DONE]`, the end of the body."""
    events = [*map(json.dumps, frames(reply, name)), "[DONE]"]
    return response(f"data: {event}\n\n".encode() for event in events)


def response(chunks: Any) -> bytes:
    """A 200 with the chunks as its chunked body."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return SSE_HEAD.encode() + body + b"0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedClient:
    """Stores a wave as the real client does, with answers from `reply(question)`; no socket.

    `change` may spoil the list of records before it becomes the wave.
    """

    reply: Callable[[int], Reply | bytes]
    change: Callable[[list[Request]], Sequence[Request]] = list
    aborted: str | None = None

    def __call__(self, spec: WaveSpec, directory: Path) -> Wave:
        records = []
        for request in spec.requests:
            slot = request.slot
            said = self.reply(request.prompt_index)
            raw = said if isinstance(said, bytes) else stream(said, f"chatcmpl-{slot}")
            reads = [[2000 + slot, len(raw)], [3000 + slot, 0]]
            write_once(directory / spec.file_name(slot, "request"), spec.request_bytes(request))
            write_once(directory / spec.file_name(slot, "raw"), raw)
            write_once(directory / spec.file_name(slot, "reads"), canonical(reads))
            records.append(
                Request(
                    slot=slot,
                    prompt_index=request.prompt_index,
                    prompt_sha256=request.prompt_sha256,
                    rank=request.rank,
                    cache_salt=request.cache_salt,
                    start_ns=slot,
                    connected_ns=slot + 1,
                    sent_ns=slot + 2,
                    outcome="fin",
                    request=spec.file_name(slot, "request"),
                    raw=spec.file_name(slot, "raw"),
                    reads=spec.file_name(slot, "reads"),
                )
            )
        return Wave(
            kind="measured",
            origin_ns="1000",
            started_utc="2026-12-01T00:00:00+00:00",
            requests=tuple(self.change(records)),
            client=None,
            aborted=self.aborted,
        )
