"""Text chat messages -> prompt string. Section 7, without tools, images and response formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK = "<think>", "</think>"
EFFORTS = {"low": 50, "high": 75, "xhigh": 75, "max": 100}

Message = Mapping[str, str]  # role, content, and for an assistant perhaps reasoning


def encode(
    messages: Sequence[Message],
    *,
    thinking: bool = True,
    effort: str | int = "high",
    drop_thinking: bool = True,
) -> str:
    """The prompt, BOS included; ends where the model goes on."""
    turns = merge_users(messages)
    asking = [i for i, t in enumerate(turns) if t["role"] == "user" or (i and _is_system(t))]
    last_user = max(asking, default=-1)
    out = BOS + lead(turns, thinking, effort)
    for i in range(len(turns)):
        out += body(turns, i, thinking, not drop_thinking or i > last_user)
        if expects_answer(turns, i):
            opened = thinking and (not drop_thinking or i >= last_user)
            out += ASSISTANT + (THINK if opened else END_THINK)
    return out


def _is_system(turn: Message) -> bool:
    return turn["role"] == "system"


def merge_users(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Consecutive user messages become one, joined by an empty line."""
    merged: list[dict[str, str]] = []
    for message in messages:
        if merged and message["role"] == merged[-1]["role"] == "user":
            merged[-1]["content"] += "\n\n" + message["content"]
        else:
            merged.append(dict(message))
    return merged


def lead(turns: Sequence[Message], thinking: bool, effort: str | int) -> str:
    """System tag, effort line (thinking only); the content of message 0 follows in its turn."""
    if not thinking:
        return ""
    n = EFFORTS[effort] if isinstance(effort, str) else effort
    scale = "range 1-100, the higher the value, the more thorough the reasoning"
    return f"{SYSTEM}Reasoning Effort: {n} ({scale})\n\n"


def body(turns: Sequence[Message], i: int, thinking: bool, keep_reasoning: bool) -> str:
    """One turn without its assistant header."""
    turn = turns[i]
    if turn["role"] == "assistant":
        reasoning = turn.get("reasoning", "") + END_THINK if thinking and keep_reasoning else ""
        return reasoning + turn["content"] + EOS
    if turn["role"] == "system":
        return ("" if i == 0 and thinking else SYSTEM) + turn["content"]
    return USER + turn["content"]


def expects_answer(turns: Sequence[Message], i: int) -> bool:
    """An assistant header follows a user or mid-conversation system turn before an answer."""
    if turns[i]["role"] == "assistant" or (i == 0 and turns[i]["role"] == "system"):
        return False
    return i + 1 == len(turns) or turns[i + 1]["role"] == "assistant"
