"""A scored reply -> why it was lost, or why it was lucky (P5.5). Beside the verdict, never in it.

Every wrong answer gets exactly one cause, in this order, so that the causes add up to the errors:

| cause | meaning |
|---|---|
| `truncation` | the reply ended at the token limit |
| `empty` | no final content |
| `comma` | right once thousands separators are read as such |
| `extraction` | no number found, a `Question:` cut it off, or the last `answer:` line was right
  but the evaluator took another number |
| `arithmetic` | a number was given and it is wrong |
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from acceptance import gsm8k

Cause = Literal["truncation", "empty", "comma", "extraction", "arithmetic"]
CAUSES: Final = ("truncation", "empty", "comma", "extraction", "arithmetic")

Luck = Literal["truncated", "reasoning-only", "comma"]

DISPUTED: Final = {
    119: "reads '30 percent higher' as '30 % less than'; the other reading gives 99076.92",
    454: "an open upstream change wants 240 instead of 150",
}
"""Line numbers of GSM8K's test split whose gold is disputed in public. Marked, never re-scored."""

_THOUSANDS = re.compile(r"(?<=\d)(?:\{?,\}?|\\,|['_ \u00a0\u202f])(?=\d{3}(?!\d))")
_ANSWER_LINE = re.compile(r"answer\s*:(.*)", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A scored reply as the taxonomy reads it. `gold` is the extracted gold, without commas;
    `correct` the native score; `is_truncated` the finish reason `length`."""

    reasoning: str
    content: str
    gold: str
    correct: bool
    is_truncated: bool


def cause(reply: Reply) -> Cause | None:
    """Why the native score counts this reply as wrong; None for a right one."""
    if reply.correct:
        return None
    if reply.is_truncated:
        return "truncation"
    if not reply.content.strip():
        return "empty"
    if is_right_with_commas(reply.content, reply.gold):
        return "comma"
    cut, marker, _ = reply.content.partition("Question:")
    found = gsm8k.extract_prediction(gsm8k.strip_reasoning(reply.content))
    is_cut = bool(marker) and gsm8k.extract_prediction(cut) == gsm8k.NO_NUMBER
    if found == gsm8k.NO_NUMBER or is_cut or anchored_is_right(reply.content, reply.gold):
        return "extraction"
    return "arithmetic"


def lucks(reply: Reply) -> tuple[Luck, ...]:
    """Why a reply counted as right may owe it to chance. The score is not changed."""
    if not reply.correct:
        return ()
    found: list[Luck] = []
    if reply.is_truncated:
        found.append("truncated")
    if not reply.content.strip():
        found.append("reasoning-only")
    elif "," in reply.content and not is_right_with_commas(reply.content, reply.gold):
        found.append("comma")
    return tuple(found)


def content_is_correct(content: str, gold: str) -> bool:
    """The native score of the final content alone, without any reasoning (P5.5)."""
    pred = gsm8k.extract_prediction(gsm8k.strip_reasoning(content))
    return gsm8k.is_correct(pred, gold)


def is_right_with_commas(content: str, gold: str) -> bool:
    """The native score once separators of thousands (`1,430`, `9{,}500`, `1 450 000`) are gone."""
    joined = _THOUSANDS.sub("", gsm8k.strip_reasoning(content))
    return gsm8k.is_correct(gsm8k.extract_prediction(joined), gold)


def anchored(content: str) -> str | None:
    """The second scorer's reading: the first number on the last `answer:` line, separators
    removed; None where there is no such line or no number on it."""
    lines = _ANSWER_LINE.findall(gsm8k.strip_reasoning(content))
    numbers = _NUMBER.findall(_THOUSANDS.sub("", lines[-1])) if lines else []
    return numbers[0] if numbers else None


def anchored_is_right(content: str, gold: str) -> bool:
    """The second scorer: a diagnosis that never enters a verdict."""
    pred = anchored(content)
    return pred is not None and gsm8k.is_correct(pred, gold)
