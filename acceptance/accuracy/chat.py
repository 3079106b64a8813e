"""Raw bytes of one streamed chat completion -> reasoning, content, finish reason, usage, faults.

Pure. Reasoning and content stay apart; AISBench's joined text is `gsm8k.stored_prediction`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from acceptance.sse import DONE, frame_response, parse_json, split_events

FINISHED = ("stop", "length")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What one response says. `failed`: sorted reason codes, none for a valid request.

    Texts hold what arrived, also of a failed request; tokens are None where usage is missing.
    `finish_reason` is `stop`, `length`, `other`, or None where there was none; `id` is the
    service's name of the response, None unless all frames carry the same.
    """

    id: str | None
    reasoning: str
    content: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    failed: tuple[str, ...]


def chat_body(
    *, model: str, prompt: str, max_tokens: int, generation_kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The body of one question, keys and order as AISBench's stream chat client builds it (P5.3).

    `stop` is absent although its configuration names a stop word: for API models it isn't sent.
    """
    body: dict[str, Any] = {
        "stream": True,
        "messages": [{"content": prompt, "role": "user"}],
        "stream_options": {"include_usage": True},
    }
    return body | generation_kwargs | {"max_tokens": max_tokens, "model": model}


def body_bytes(body: dict[str, Any]) -> bytes:
    """The wire form: JSON with the separators and ASCII escapes of AISBench's HTTP client."""
    return json.dumps(body).encode("ascii")


def parse_reply(raw: bytes, *, outcome: str, max_tokens: int) -> ChatReply:
    """Response bytes -> reply. Total: any bytes give a reply, with the reasons in `failed`.

    `outcome` is how the connection ended, `fin` being the only good end.
    """
    faults = set() if outcome == "fin" else {f"outcome-{outcome}"}
    body = _http_body(raw, faults, is_ended=outcome == "fin")
    state = _State(faults=faults)
    for data in _events(body, faults):
        _take(state, data)
    if not state.is_done:
        faults.add("no-done")
    _check_end(state, max_tokens)
    name = next(iter(state.ids)) if len(state.ids) == 1 else None
    if not isinstance(name, str):
        faults.add("response-id")
    return ChatReply(
        id=name if isinstance(name, str) else None,
        reasoning="".join(state.reasoning),
        content="".join(state.content),
        finish_reason=state.finish[0] if state.finish else None,
        prompt_tokens=_count(state, "prompt_tokens"),
        completion_tokens=_count(state, "completion_tokens"),
        failed=tuple(sorted(faults)),
    )


def check_reads(reads: Sequence[tuple[int, int]], raw_size: int) -> bool:
    """The reads (ns, bytes) add up to the raw bytes and their times never run backwards."""
    times = [time for time, _ in reads]
    return times == sorted(times) and sum(size for _, size in reads) == raw_size


@dataclass(slots=True)
class _State:
    faults: set[str]
    ids: set[str | None] = field(default_factory=set)
    reasoning: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)
    is_done: bool = False


def _http_body(raw: bytes, faults: set[str], *, is_ended: bool) -> bytes:
    counts = [len(raw)] if raw else []
    response = frame_response(raw, [*counts, 0] if is_ended else counts)
    if response.status is not None and response.status != 200:
        faults.add("http-status")
    if response.problem is not None:
        faults.add(response.problem)
    elif response.end_read is None:
        faults.add("early-eof")
    return response.body


def _events(body: bytes, faults: set[str]) -> list[bytes]:
    events, is_unfinished = split_events(body)
    if is_unfinished or not _is_utf8(body):
        faults.add("sse-malformed")
    return [event.data for event in events]


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _take(state: _State, data: bytes) -> None:
    if state.is_done:
        state.faults.add("after-done")
        return
    if data == DONE:
        state.is_done = True
        return
    try:
        frame = parse_json(data)
    except ValueError:
        frame = None
    if not isinstance(frame, dict):
        state.faults.add("sse-malformed")
        return
    if frame.get("error") is not None or frame.get("object") == "error":
        state.faults.add("error-frame")
        return
    name = frame.get("id")
    state.ids.add(name if isinstance(name, str) and _is_text(name) else None)
    usage, choices = frame.get("usage"), frame.get("choices")
    if isinstance(usage, dict):
        state.usages.append(usage)
    elif usage is not None:
        state.faults.add("sse-malformed")
    if not isinstance(choices, list):
        state.faults.add("sse-malformed")
    elif len(choices) > 1:
        state.faults.add("choice")
    elif choices:
        _take_choice(state, choices[0])


def _take_choice(state: _State, choice: Any) -> None:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    if not isinstance(delta, dict):
        state.faults.add("sse-malformed")
        return
    if choice.get("index") != 0 or delta.get("tool_calls"):
        state.faults.add("choice")
    # vLLM renamed `reasoning_content` to `reasoning`; AISBench reads the older name first.
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    for part, texts in ((reasoning, state.reasoning), (delta.get("content"), state.content)):
        if not part:
            continue
        if not isinstance(part, str) or not _is_text(part):
            state.faults.add("sse-malformed")
        else:
            texts.append(part)
            if state.finish:
                state.faults.add("finish-reason")
    if (reason := choice.get("finish_reason")) is not None:
        state.finish.append(reason if reason in FINISHED else "other")


def _is_text(part: str) -> bool:
    """False for a lone surrogate: JSON can spell it, UTF-8 can't store it."""
    try:
        part.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _count(state: _State, name: str) -> int | None:
    value = state.usages[-1].get(name) if state.usages else None
    # Canonical JSON ends at 2^53-1; a count beyond it is no count.
    return value if type(value) is int and 0 <= value < 2**53 else None


def _check_end(state: _State, max_tokens: int) -> None:
    if len(state.finish) != 1 or state.finish[0] not in FINISHED:
        state.faults.add("finish-reason")
    if len(state.usages) != 1:
        state.faults.add("usage-missing")
        return
    prompt, completion = _count(state, "prompt_tokens"), _count(state, "completion_tokens")
    if prompt is None or completion is None:
        state.faults.add("usage-mismatch")
        return
    is_total = _count(state, "total_tokens") == prompt + completion
    # `length` below the cap means that the context was too small: the question had less room.
    is_full = state.finish[:1] != ["length"] or completion == max_tokens
    if not (prompt > 0 and is_total and is_full and completion <= max_tokens):
        state.faults.add("usage-mismatch")
