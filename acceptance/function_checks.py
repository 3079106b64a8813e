"""Stored answers of the functional stage -> one verdict for each check (P7.5)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from acceptance.protocol import Verdict, worst
from acceptance.records import Record, ScopeVerdict
from acceptance.sse import frame_response, parse_json, split_events

COMPLETIONS = ("stream", "plain", "long-prompt", "prefix-first", "prefix-second")
CHATS = ("thinking-stream", "thinking-plain", "direct-stream", "direct-plain")
"""What is asked by the two waves, slot by slot: files `completion-NN.*` and `chat-NN.*`."""

ABORT = "abort"
ENDINGS = ("stop", "length")


class FunctionSpec(Record, frozen=True, kw_only=True):
    """`long_prompt_tokens` must span more than one prefill chunk. `output_tokens` of every
    completion; chats may end before. `abort_tokens` are asked for by the one that is left."""

    long_prompt_tokens: int
    output_tokens: int
    abort_tokens: int


class Check(Record, frozen=True, kw_only=True):
    """One check of the service."""

    name: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one response says; None is unknown. `problem` is the first thing wrong with it."""

    problem: str | None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish: str | None = None
    prompt_ids: tuple[int, ...] | None = None


def read_reply(raw: bytes, *, is_stream: bool) -> Reply:
    """Read a whole response of either form. Total: any bytes give a reply."""
    response = frame_response(raw, [len(raw), 0] if raw else [0])
    if response.status != 200:
        return Reply(problem=f"HTTP status {response.status}")
    if response.problem or response.end_read is None:
        return Reply(problem=response.problem or "early-eof")
    try:
        values = _events(response.body) if is_stream else [parse_json(response.body)]
    except ValueError as error:
        return Reply(problem=str(error))
    if any(not isinstance(v, dict) or v.get("error") is not None for v in values):
        return Reply(problem="an error, or something that is no answer")
    usages = [v["usage"] for v in values if isinstance(v.get("usage"), dict)]
    choices = [c for v in values for c in (v.get("choices") or ()) if isinstance(c, dict)]
    endings = [c["finish_reason"] for c in choices if c.get("finish_reason") is not None]
    if len(usages) != 1 or len(endings) != 1:
        return Reply(problem=f"{len(usages)} usages and {len(endings)} endings, one each is right")
    details = usages[0].get("prompt_tokens_details")
    echoes = [x["prompt_token_ids"] for x in (*values, *choices) if x.get("prompt_token_ids")]
    return Reply(
        problem=None,
        prompt_tokens=_count(usages[0].get("prompt_tokens")),
        output_tokens=_count(usages[0].get("completion_tokens")),
        cached_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else None,
        finish=endings[0] if isinstance(endings[0], str) else None,
        prompt_ids=tuple(echoes[0]) if echoes and isinstance(echoes[0], list) else None,
    )


def _events(body: bytes) -> list[Any]:
    events, is_unfinished = split_events(body)
    texts = [event.data for event in events]
    if is_unfinished or texts[-1:] != [b"[DONE]"]:
        raise ValueError("the stream does not end with [DONE]")
    return [parse_json(text) for text in texts[:-1]]


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def judge(
    load: Callable[[str], bytes | None], in_flight: int | None, spec: FunctionSpec
) -> tuple[Check, ...]:
    """Every check. `load` gives a stored file by its name or None; `in_flight` is the number of
    requests in the service after the abort, None where it could not be read."""
    replies = {
        name: _reply(load(f"{kind}-{slot:02d}.raw"), is_stream=not name.endswith("plain")
                     and name not in ("prefix-first", "prefix-second", "long-prompt"))
        for kind, names in (("completion", COMPLETIONS), ("chat", CHATS))
        for slot, name in enumerate(names)
    }  # fmt: skip
    return (
        *(_check(name, replies[name], _completion(name, spec)) for name in COMPLETIONS),
        *(_check(name, replies[name], _chat) for name in CHATS),
        _switch(replies),
        _abort(load(f"{ABORT}.raw"), in_flight),
    )


def _reply(raw: bytes | None, *, is_stream: bool) -> Reply | None:
    return None if raw is None else read_reply(raw, is_stream=is_stream)


def _check(name: str, reply: Reply | None, look: Callable[[Reply], str | None]) -> Check:
    if reply is None:
        return Check(name=name, verdict=Verdict.INCONCLUSIVE, reason="it was not asked")
    problem = reply.problem or look(reply)
    return Check(
        name=name,
        verdict=Verdict.FAIL if problem else Verdict.PASS,
        reason=problem or "as it should be",
    )


def _completion(name: str, spec: FunctionSpec) -> Callable[[Reply], str | None]:
    def look(reply: Reply) -> str | None:
        if (reply.output_tokens, reply.finish) != (spec.output_tokens, "length"):
            return f"{reply.output_tokens} tokens, ended by {reply.finish}"
        if name == "long-prompt" and reply.prompt_tokens != spec.long_prompt_tokens:
            return f"a prompt of {reply.prompt_tokens} tokens, {spec.long_prompt_tokens} were sent"
        if name == "prefix-second" and not reply.cached_tokens:
            return f"cached_tokens is {reply.cached_tokens}: the prefix was not found again"
        if name != "prefix-second" and reply.cached_tokens != 0:
            return f"cached_tokens is {reply.cached_tokens}: nothing can have been there"
        return None

    return look


def _chat(reply: Reply) -> str | None:
    if not reply.output_tokens or reply.finish not in ENDINGS:
        return f"{reply.output_tokens} tokens, ended by {reply.finish}"
    return None


def _switch(replies: Mapping[str, Reply | None]) -> Check:
    """Thinking on and off must give the model other prompts, streamed or not."""
    name = "thinking-switch"
    prompts = {one: (reply.prompt_ids if reply else None) for one, reply in replies.items()}
    known = [prompts[one] for one in CHATS]
    if None in known:
        return Check(name=name, verdict=Verdict.INCONCLUSIVE, reason="a prompt is not echoed")
    thinking, direct = set(known[:2]), set(known[2:])
    is_right = len(thinking) == len(direct) == 1 and thinking != direct
    return Check(
        name=name,
        verdict=Verdict.PASS if is_right else Verdict.FAIL,
        reason="as it should be" if is_right else "the switch does not decide on the prompt",
    )


def _abort(raw: bytes | None, in_flight: int | None) -> Check:
    """The stream had begun when its client left, and the service let go of it."""
    begun = raw is not None and raw.startswith(b"HTTP/1.1 200") and b"data: {" in raw
    if not begun or in_flight is None or (raw is not None and b"[DONE]" in raw):
        reason = "no stream was left in its middle, or the counters could not be read"
        return Check(name=ABORT, verdict=Verdict.INCONCLUSIVE, reason=reason)
    return Check(
        name=ABORT,
        verdict=Verdict.FAIL if in_flight else Verdict.PASS,
        reason=f"{in_flight} requests in the service afterwards",
    )


def scope(checks: tuple[Check, ...], *, path_ran: bool | None, has_claim: bool) -> ScopeVerdict:
    """P7.5: the worst of the checks; a candidate's path must be proved on all workers (P7.3)."""
    verdict = worst([check.verdict for check in checks])
    bad = next((check for check in checks if check.verdict is verdict), None)
    reason = f"{len(checks)} checks" if verdict is Verdict.PASS or bad is None else (
        f"{bad.name}: {bad.reason}"
    )  # fmt: skip
    if verdict is Verdict.PASS and has_claim and path_ran is not True:
        verdict, reason = Verdict.INCONCLUSIVE, "the candidate's path is not proved"
    return ScopeVerdict(scope="function", verdict=verdict.value, rule="P7.5", reason=reason)
