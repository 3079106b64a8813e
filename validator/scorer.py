"""Answer text and gold -> what AISBench's native evaluator for GSM8K says of it (P5.2).

Its faults are part of it: a thousands separator in an answer is lost, and a number after the answer
wins. The threshold was anchored to a count made with them.
"""

import re
from dataclasses import dataclass

RELEASED = "1e44190dfd0976d8bb049cb97902da1c45187497"
UNMERGED = "cc84932e27280b67c80dd303a886d1d6ad69e341"
EVALUATORS = (RELEASED, UNMERGED)
"""Git blobs of the evaluator's file; the second, never released, drops commas of answers too."""

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
GOLD = "#### "


@dataclass(frozen=True)
class Score:
    """What was extracted, and whether it counts. gold: None where the marker is missing.
    error: name of what the evaluator raises, and then nothing is correct."""

    pred: str
    gold: str | None
    correct: bool
    error: str | None = None


def stored(reasoning: str, content: str) -> str:
    """The text that AISBench keeps of a reply; without content it is the reasoning, untagged."""
    if content and reasoning:
        return reasoning + "</think>" + content
    return content if content else reasoning


def without_reasoning(text: str) -> str:
    """The model-level step of its chat models."""
    opening, closing = "<think>", "</think>"
    if closing in text and opening not in text:
        return text[text.rindex(closing) + len(closing) :].strip()
    kept, at = [], 0
    while (start := text.find(opening, at)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        kept.append(text[at:start])
        at = end + len(closing)
    return ("".join(kept) + text[at:]).strip()


def prediction(text: str, evaluator: str) -> str:
    """The last number before the first `Question:`; `NULL` without one."""
    kept = text.split("Question:", 1)[0]
    if evaluator == UNMERGED:
        kept = kept.replace(",", "")
    numbers = NUMBER.findall(kept)
    return numbers[-1] if numbers else "NULL"


def score(text: str, answer: str, evaluator: str, *, is_chat: bool) -> Score:
    """Score one stored text against one worked answer. Total."""
    pred = prediction(without_reasoning(text) if is_chat else text, evaluator)
    parts = answer.split(GOLD)
    if len(parts) < 2:
        return Score(pred, None, False, "IndexError")
    gold = parts[1].replace(",", "")
    if pred == gold:
        return Score(pred, gold, True)
    try:
        return Score(pred, gold, abs(float(pred) - int(gold)) < 1e-6)
    except OverflowError:
        return Score(pred, gold, False, "OverflowError")
    except ValueError:
        return Score(pred, gold, False)
