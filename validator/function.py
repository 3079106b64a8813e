"""The stored answers of the functional stage -> the verdict of its scope (P7.5)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import exposition
from .events import events, stream_json
from .files import load
from .framing import frame
from .runspec import Function, RunSpec
from .strict import Refused
from .verdicts import overall

DIRECTORY = "results/function"
STREAMS = ("completion-00", "chat-00", "chat-02")
PLAIN = ("completion-01", "completion-02", "completion-03", "completion-04", "chat-01", "chat-03")


@dataclass(frozen=True)
class Answer:
    """What one response says; everything None where it can't be read as an answer."""

    usage: dict[str, Any]
    ending: Any
    prompt: Any

    @property
    def cached(self) -> Any:
        """Prompt tokens that came from a cache."""
        details = self.usage.get("prompt_tokens_details")
        return details.get("cached_tokens") if isinstance(details, dict) else None


def function_scope(root: Path, runspec: RunSpec, path_ran: bool | None) -> dict[str, str]:
    """The scope as `figures.json` has it; only its reason is worded freely."""
    planned = runspec.profile.scopes["function"]
    if planned != "planned":
        return _scope("NOT_RUN", "P4.3", planned)
    if runspec.function is None or not (root / DIRECTORY / "function.json").is_file():
        return _scope("NOT_RUN", "P7.5", "the stage was not reached")
    answers = {name: _answer(root, name, name in STREAMS) for name in (*STREAMS, *PLAIN)}
    verdicts = [_judged(name, answers[name], runspec.function) for name in answers]
    verdicts += [_switch(answers), _abort(root)]
    verdict = overall(verdicts)
    if verdict == "PASS" and runspec.paths_claimed and path_ran is not True:
        verdict = "INCONCLUSIVE"
    return _scope(verdict, "P7.5", f"{verdicts.count('PASS')} of {len(verdicts)} checks passed")


def _scope(verdict: str, rule: str, reason: str) -> dict[str, str]:
    return {"scope": "function", "verdict": verdict, "rule": rule, "reason": reason}


def _bytes(root: Path, name: str) -> bytes | None:
    try:
        return load(root, f"{DIRECTORY}/{name}")
    except Refused:
        return None


def _answer(root: Path, name: str, is_stream: bool) -> Answer | bool | None:
    """None: it was not asked. False: not a whole, well-formed answer."""
    raw = _bytes(root, f"{name}.raw")
    if raw is None:
        return None
    response = frame(raw, [len(raw), 0] if raw else [0])
    if response.status != 200 or response.problem or response.end_read is None:
        return False
    try:
        values = _values(response.body, is_stream)
    except ValueError:
        return False
    if any(not isinstance(one, dict) or one.get("error") is not None for one in values):
        return False
    usages = [one["usage"] for one in values if isinstance(one.get("usage"), dict)]
    choices = [c for one in values for c in one.get("choices") or () if isinstance(c, dict)]
    endings = [c["finish_reason"] for c in choices if c.get("finish_reason") is not None]
    prompts = [x["prompt_token_ids"] for x in (*values, *choices) if x.get("prompt_token_ids")]
    if len(usages) != 1 or len(endings) != 1:
        return False
    return Answer(usages[0], endings[0], prompts[0] if prompts else None)


def _values(body: bytes, is_stream: bool) -> list[Any]:
    if not is_stream:
        return [stream_json(body)]
    found, is_cut = events(body)
    texts = [one.data for one in found]
    if is_cut or not texts or texts[-1] != b"[DONE]":
        raise ValueError("not a whole stream")
    return [stream_json(one) for one in texts[:-1]]


def _judged(name: str, answer: Answer | bool | None, asked: Function) -> str:
    if answer is None:
        return "INCONCLUSIVE"
    if isinstance(answer, bool):
        return "FAIL"
    made, cached = answer.usage.get("completion_tokens"), answer.cached
    if name.startswith("chat"):
        is_right = _is_count(made) and made != 0 and answer.ending in ("stop", "length")
        return "PASS" if is_right else "FAIL"
    is_right = made == asked.output_tokens and answer.ending == "length"
    if name == "completion-02":
        is_right = is_right and answer.usage.get("prompt_tokens") == asked.long_prompt_tokens
    if name == "completion-04":
        is_right = is_right and _is_count(cached) and cached != 0
    else:
        is_right = is_right and _is_count(cached) and cached == 0
    return "PASS" if is_right else "FAIL"


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _switch(answers: dict[str, Answer | bool | None]) -> str:
    """Thinking on and off give other prompts, each the same streamed or not."""
    prompts = [
        answer.prompt if isinstance(answer, Answer) else None
        for answer in (answers[f"chat-0{slot}"] for slot in range(4))
    ]
    if not all(isinstance(one, list) for one in prompts):
        return "INCONCLUSIVE"
    on, on_too, off, off_too = prompts
    return "PASS" if on == on_too and off == off_too and on != off else "FAIL"


def _abort(root: Path) -> str:
    """A stream was left in its middle, and nothing of it stayed in the service."""
    raw, metrics = _bytes(root, "abort.raw"), _bytes(root, "metrics-after-abort.txt")
    if raw is None or metrics is None:
        return "INCONCLUSIVE"
    is_begun = raw.startswith(b"HTTP/1.1 200") and b"data: {" in raw and b"[DONE]" not in raw
    try:
        left = exposition.in_flight(exposition.snapshot(metrics))
    except ValueError:
        return "INCONCLUSIVE"
    if not is_begun or left is None:
        return "INCONCLUSIVE"
    return "FAIL" if left else "PASS"
