"""Stored bytes of one chat completion -> what it says, and what is wrong with it (P5.4)."""

from dataclasses import dataclass, field
from typing import Any

from .events import events, stream_json
from .framing import frame
from .strict import INTEGER_MAX

ENDINGS = ("stop", "length")


@dataclass
class Reply:
    """One reply. faults: reason codes; texts hold what came, also of a faulty reply."""

    faults: set[str] = field(default_factory=set)
    names: list[str | None] = field(default_factory=list)
    reasoning: str = ""
    content: str = ""
    endings: list[str] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str | None:
        """The service's id of the response; None unless every frame carries the same."""
        return self.names[0] if len(set(self.names)) == 1 else None

    def count(self, which: str) -> int | None:
        """A count of the newest usage, if it is one."""
        value = self.usages[-1].get(f"{which}_tokens") if self.usages else None
        return value if type(value) is int and 0 <= value <= INTEGER_MAX else None


def read_reply(raw: bytes, outcome: str, max_tokens: int) -> Reply:
    """Read a stored response. Total: any bytes give a reply."""
    reply = Reply()
    if outcome != "fin":
        reply.faults.add(f"outcome-{outcome}")
    response = frame(raw, ([len(raw)] if raw else []) + ([0] if outcome == "fin" else []))
    if response.status not in (None, 200):
        reply.faults.add("http-status")
    if response.problem or response.end_read is None:
        reply.faults.add(response.problem or "early-eof")
    found, is_cut = events(response.body)
    if is_cut or not _is_utf8(response.body):
        reply.faults.add("sse-malformed")
    texts = [event.data for event in found]
    done = texts.index(b"[DONE]") if b"[DONE]" in texts else None
    if done is None:
        reply.faults.add("no-done")
    elif done < len(texts) - 1:
        reply.faults.add("after-done")
    for data in texts[:done]:
        _hear(reply, data)
    _close(reply, max_tokens)
    return reply


def _is_utf8(data: bytes) -> bool:
    try:
        return bool(data.decode("utf-8")) or True
    except UnicodeDecodeError:
        return False


def _hear(reply: Reply, data: bytes) -> None:
    try:
        value = stream_json(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        reply.faults.add("sse-malformed")
        return
    if value.get("object") == "error" or value.get("error") is not None:
        reply.faults.add("error-frame")
        return
    name = value.get("id")
    reply.names.append(name if _is_text(name) else None)
    usage, choices = value.get("usage"), value.get("choices")
    if isinstance(usage, dict):
        reply.usages.append(usage)
    if not isinstance(choices, list) or not (usage is None or isinstance(usage, dict)):
        reply.faults.add("sse-malformed")
    if isinstance(choices, list) and len(choices) > 1:
        reply.faults.add("choice")
    elif isinstance(choices, list) and choices:
        _choose(reply, choices[0])


def _choose(reply: Reply, choice: Any) -> None:
    if not isinstance(choice, dict) or not isinstance(choice.get("delta"), dict):
        reply.faults.add("sse-malformed")
        return
    delta = choice["delta"]
    if choice.get("index") != 0 or delta.get("tool_calls"):
        reply.faults.add("choice")
    thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
    said = delta.get("content") or ""
    if not _is_text(thought) or not _is_text(said):
        reply.faults.add("sse-malformed")
    thought, said = (one if _is_text(one) else "" for one in (thought, said))
    if (thought or said) and reply.endings:
        reply.faults.add("finish-reason")
    reply.reasoning += thought
    reply.content += said
    ending = choice.get("finish_reason")
    if ending is not None:
        reply.endings.append(ending if ending in ENDINGS else "other")


def _is_text(value: Any) -> bool:
    """A string that UTF-8 can hold."""
    if not isinstance(value, str):
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _close(reply: Reply, max_tokens: int) -> None:
    """What must hold of the whole reply."""
    if reply.name is None:
        reply.faults.add("response-id")
    if reply.endings not in (["stop"], ["length"]):
        reply.faults.add("finish-reason")
    if len(reply.usages) != 1:
        reply.faults.add("usage-missing")
        return
    prompt, completion, total = (reply.count(one) for one in ("prompt", "completion", "total"))
    # A reply that was cut before the limit had less room than was asked for.
    is_cut = reply.endings[:1] == ["length"] and completion != max_tokens
    is_sum = completion is not None and prompt is not None and total == prompt + completion
    if not prompt or completion is None or not is_sum or is_cut or completion > max_tokens:
        reply.faults.add("usage-mismatch")
