"""Questions -> prompt bytes, and answers -> a verdict, exactly as AISBench counts them (P5).

Pure: the caller reads files, sends requests and writes records. The scorer repeats the native
evaluator's rules with its faults, a lost thousands separator included: the threshold was anchored
to a count made with them. What an engineer would rather count stands in `accuracy/taxonomy.py`.
"""

import enum
import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from acceptance.protocol import Verdict
from acceptance.records import ScopeVerdict

REVISION: Final = "3101c7d5072418e28b9008a6636bde82a006892c"
"""P5.2: git revision of the public grade-school-math repository."""

TEST_LINES: Final = 1319
TEST_SHA256: Final = "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"
SUBSET_SIZE: Final = 300
SUBSET_SEED: Final = 42
SUBSET_SHA256: Final = "ad6bc9a92ac8716846871d881e1442d97a2546aeafb75bfbfd6d09b90c591e26"
"""SHA-256 of the original bytes of the 300 lines, each with its newline, in order."""

INDICES_SHA256: Final = "375d872200392b94db477c5be383b944fc970df2f3215fbefc292f9feedc60da"
"""SHA-256 of the 300 indices as compact JSON without a newline."""

PROMPTS_SHA256: Final = "5ad4a8f9ebef3a2b6b7d987405b05e0d21519135e452b8f96936e0d9a9655970"
"""SHA-256 over the 300 prompts in order, UTF-8, each followed by NUL."""

THRESHOLD: Final = 292
"""P5.4: anchored to the first 295 of 300, for ever."""

TEMPLATE: Final = (
    "Answer the following question.The last line of the response should follow this format: "
    '"answer:$ANSWER" (without quotes), where ANSWER is a number. Let\'s think step by step.\n\n'
    "Question: {question}"
)
"""`gsm8k_gen_0_shot_cot_chat_prompt`, one user message. No space after the first full stop."""

TEMPLATE_SHA256: Final = "da11364642ac6e0ad4223d97d7003cb8671aa2752b54a625052723fcd1f3fc75"

NO_NUMBER: Final = "NULL"
"""What the native extraction returns when it finds no number."""

Stage = Literal["native", "chat_pipeline"]


class Evaluator(enum.Enum):
    """The two public versions of the native evaluator; the value is the git blob of its file.

    They differ in one thing: PR360, never merged, removes commas from the prediction too.
    """

    RELEASED = "1e44190dfd0976d8bb049cb97902da1c45187497"
    PR360 = "cc84932e27280b67c80dd303a886d1d6ad69e341"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One scored answer. Where the evaluator raises, `correct` is None and `error` its class."""

    extracted_pred: str
    extracted_gold: str | None
    correct: bool | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the judge needs of one question of a run.

    `question` is the position in the question set; `failed` holds the reasons why the request
    counts as failed (P5.4), none for a valid one; `correct` is the native score.
    """

    question: int
    failed: tuple[str, ...]
    correct: bool


def select(total: int, count: int, seed: int = SUBSET_SEED) -> tuple[int, ...]:
    """P5.2: 0-based line numbers of the questions, in the order in which they are asked."""
    return tuple(sorted(random.Random(seed).sample(range(total), count)))


def render(template: str, question: str) -> str:
    """The prompt of a question: plain replacement, so braces in a question stay as they are."""
    return template.replace("{question}", question)


def prompts_sha256(prompts: Iterable[str]) -> str:
    """SHA-256 over prompts in order, UTF-8, each followed by NUL."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(prompt.encode("utf-8") + b"\0")
    return digest.hexdigest()


def find_evaluator(name: str) -> Evaluator:
    """An evaluator by its name, or by its blob or at least 7 digits of it. KeyError if unknown."""
    for evaluator in Evaluator:
        is_blob = len(name) >= 7 and evaluator.value.startswith(name.lower())
        if is_blob or name.lower() == evaluator.name.lower():
            return evaluator
    raise KeyError(name)


_NUMBER = re.compile(r"\-?\d+\.\d+|\-?\d+")
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)


def stored_prediction(reasoning: str, content: str) -> str:
    """What AISBench stores of a chat reply: without content, the bare reasoning and no tag."""
    if reasoning and content:
        return f"{reasoning}</think>{content}"
    return reasoning or content


def strip_reasoning(text: str) -> str:
    """The model-level step `extract_non_reasoning_content`. An unclosed `<think>` stays."""
    if "<think>" not in text and "</think>" in text:
        return text.rpartition("</think>")[2].strip()
    return _THOUGHT.sub("", text).strip()


def extract_prediction(text: str, evaluator: Evaluator = Evaluator.RELEASED) -> str:
    """The last number before the first `Question:`, as a string, or `NULL`.

    RELEASED keeps commas, so that `1,430` gives `430`.
    """
    kept = text.partition("Question:")[0]
    if evaluator is Evaluator.PR360:
        kept = kept.replace(",", "")
    return next(reversed(_NUMBER.findall(kept)), NO_NUMBER)


def extract_gold(answer: str) -> str:
    """What stands between the first `#### ` and the next or the end, without commas.

    IndexError, as in AISBench, where the marker is missing: the evaluation stops there.
    """
    _, marker, rest = answer.partition("#### ")
    if not marker:
        raise IndexError("no '#### ' in the gold answer")
    return rest.partition("#### ")[0].replace(",", "")


def is_correct(pred: str, gold: str) -> bool:
    """Equal as strings, or closer than 1e-6 with the prediction as float and the gold as int.

    OverflowError, as in AISBench, for a gold that no float can hold.
    """
    if pred == gold:
        return True
    try:
        return abs(float(pred) - int(gold)) < 1e-6
    except ValueError:
        return False


def score(
    prediction: str,
    gold_raw: str,
    *,
    stage: Stage = "native",
    evaluator: Evaluator = Evaluator.RELEASED,
) -> Score:
    """Score one answer. Total: whatever the texts, it returns.

    `native` scores the text as it is, `chat_pipeline` removes the reasoning first, as AISBench
    does for its chat models.
    """
    scored = strip_reasoning(prediction) if stage == "chat_pipeline" else prediction
    pred = extract_prediction(scored, evaluator)
    gold: str | None = None
    try:
        gold = extract_gold(gold_raw)
        correct = is_correct(pred, gold)
    except (IndexError, OverflowError) as error:
        return Score(
            extracted_pred=pred,
            extracted_gold=gold,
            correct=None,
            error=type(error).__name__,
        )
    return Score(extracted_pred=pred, extracted_gold=gold, correct=correct, error=None)


def invalid_reasons(answers: Sequence[Answer], *, count: int) -> tuple[str, ...]:
    """P5.4: why a run is no valid one; empty for `count` distinct questions in order, none failed.

    The order is part of the frozen set (P5.2), so a swap is as invalid as a gap.
    """
    asked = [answer.question for answer in answers]
    reasons = []
    if missing := sorted(set(range(count)) - set(asked)):
        reasons.append(f"{len(missing)} of {count} questions missing: {_some(missing)}")
    if doubled := sorted(n for n, times in Counter(asked).items() if times > 1):
        reasons.append(f"{len(doubled)} questions asked more than once: {_some(doubled)}")
    if foreign := sorted(set(asked) - set(range(count))):
        reasons.append(f"{len(foreign)} questions not in the set: {_some(foreign)}")
    if not reasons and asked != list(range(count)):
        reasons.append("the questions are not in the frozen order")
    if failed := [answer for answer in answers if answer.failed]:
        first = ", ".join(f"{answer.question} ({answer.failed[0]})" for answer in failed[:5])
        rest = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        reasons.append(f"{len(failed)} of {len(answers)} requests failed: {first}{rest}")
    return tuple(reasons)


def judge(answers: Sequence[Answer], *, count: int, threshold: int) -> ScopeVerdict:
    """The accuracy verdict, from integers alone (P5.4)."""
    if reasons := invalid_reasons(answers, count=count):
        return _say(Verdict.INCONCLUSIVE, "; ".join(reasons))
    correct = sum(answer.correct for answer in answers)
    verdict = Verdict.PASS if correct >= threshold else Verdict.FAIL
    return _say(verdict, f"{correct}/{count} (threshold {threshold})")


def _say(verdict: Verdict, reason: str) -> ScopeVerdict:
    return ScopeVerdict(scope="accuracy", verdict=verdict.value, rule="P5.4", reason=reason)


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"
