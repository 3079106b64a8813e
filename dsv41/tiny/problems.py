"""Generated grade-school word problems, worked step by step; train and test share no problem.

They are disjoint in two ways at once.  By number pairs: an eighth of all unordered pairs belongs
to the test set, no arithmetic step of a training problem uses one, and the first step of each test
problem does.  By phrasing: a phrasing is the combination of the sentences that make a question;
an eighth of the combinations belongs to the test set alone, though their sentences are known.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "test"]
Step = tuple[int, str, int, int]  # a, operator, b, result

NAMES = ("Sam", "Mia", "Tom", "Ana", "Ben", "Eva", "Leo", "Zoe", "Max", "Ida", "Jon", "Kim")
ITEMS = ("apples", "pens", "books", "coins", "cards", "stamps", "shells", "stones", "cakes",
         "balls", "eggs", "toys")  # fmt: skip
OPENINGS = (
    "{n} has {a} {i}.",
    "{n} owns {a} {i}.",
    "{n} keeps {a} {i} in a box.",
    "{n} starts with {a} {i}.",
    "In the morning {n} counts {a} {i}.",
    "There are {a} {i} on the table of {n}.",
)
GROUPS = (
    "{n} has {k} boxes with {a} {i} in each.",
    "{n} fills {k} bags with {a} {i} each.",
    "There are {k} shelves of {a} {i} each in the shop of {n}.",
    "{n} carries {k} baskets and each holds {a} {i}.",
)
GAINS = (
    "{n} buys {b} more.",
    "{m} gives {n} {b} more {i}.",
    "Then {n} finds {b} {i}.",
    "After lunch {b} more {i} arrive.",
    "{n} wins {b} {i} in a game.",
    "Later {n} picks up {b} more.",
)
LOSSES = (
    "{n} gives {b} to {m}.",
    "Then {n} loses {b} {i}.",
    "{n} sells {b} {i}.",
    "{m} takes {b} of the {i}.",
    "After dinner {b} {i} break.",
    "Later {n} throws {b} away.",
)
QUESTIONS = (
    "How many {i} does {n} have now?",
    "How many {i} are there in the end?",
    "What is the number of {i} at the end?",
    "Find how many {i} {n} has.",
    "Count the {i} of {n} now.",
)
COMPARISONS = ("{m} has {b} more {i} than {n}.", "{m} has {b} fewer {i} than {n}.")
TOTALS = (
    "How many {i} do they have together?",
    "What is the number of {i} of both?",
    "Find how many {i} {n} and {m} have in total.",
)
DRILL = "What is {sum}?"
_SHARE = 8  # one in so many pairs and phrasings is kept for the test


@dataclass(frozen=True)
class Problem:
    """One question with its worked steps; `phrasing` names the combination of its sentences."""

    question: str
    steps: tuple[Step, ...]
    phrasing: str

    @property
    def result(self) -> int:
        return self.steps[-1][3]

    @property
    def work(self) -> str:
        return "\n".join(f"{a}{op}{b}={c}" for a, op, b, c in self.steps)


def is_test_pair(a: int, b: int) -> bool:
    """Whether the unordered pair belongs to the test set."""
    return _digest(f"pair {min(a, b)} {max(a, b)}") % _SHARE == 0


def is_test_phrasing(phrasing: str) -> bool:
    """Whether the combination of sentences belongs to the test set."""
    return _digest(f"phrasing {phrasing}") % _SHARE == 0


def make(random_: random.Random, split: Split) -> Problem:
    """Draw until a problem belongs to the split; every number lies in 1..99."""
    while True:
        problem = _draw(random_)
        if problem is not None and belongs(problem, split):
            return problem


def belongs(problem: Problem, split: Split) -> bool:
    """The rule of the split, for one problem."""
    if split == "test":
        a, _, b, _ = problem.steps[0]
        return is_test_pair(a, b) and is_test_phrasing(problem.phrasing)
    clean = not any(is_test_pair(a, b) for a, _, b, _ in problem.steps)
    return clean and not is_test_phrasing(problem.phrasing)


def make_drill(random_: random.Random) -> Problem:
    """A bare sum of two to four operations, for training only; its steps avoid test pairs."""
    while True:
        value = random_.randint(2, 98)
        expression, steps = str(value), []
        for _ in range(random_.choice((2, 3, 4, 4))):
            step = _step(value, random_.choice("+-"), random_.randint(2, 97))
            if step is None or is_test_pair(step[0], step[2]):
                break
            steps.append(step)
            expression += f"{step[1]}{step[2]}"
            value = step[3]
        else:
            return Problem(DRILL.replace("{sum}", expression), tuple(steps), "drill")


def all_sentences() -> Sequence[str]:
    """Every sentence with its places filled in by letters, for the vocabulary."""
    return (*OPENINGS, *GROUPS, *GAINS, *LOSSES, *QUESTIONS, *COMPARISONS, *TOTALS, DRILL)


def _draw(random_: random.Random) -> Problem | None:
    """A problem of a random family, or None where its numbers leave 1..99."""
    family = random_.choice(("change", "change", "change", "groups", "compare", "one"))
    n, m = random_.sample(NAMES, 2)
    places = {"n": n, "m": m, "i": random_.choice(ITEMS)}
    if family == "groups":
        return _groups(random_, places)
    a = random_.randint(2, 97)
    opening = random_.randrange(len(OPENINGS))
    first = OPENINGS[opening].format(a=a, **places)
    if family == "compare":
        return _compare(random_, places, first, a, opening)
    texts, steps, key, value = [first], [], f"o{opening}", a
    for _ in range(1 if family == "one" else 2):
        text, step, part = _event(random_, places, value)
        if step is None:
            return None
        texts.append(text)
        steps.append(step)
        key += part
        value = step[3]
    return _finish(random_, places, texts, steps, key)


def _groups(random_: random.Random, places: dict[str, str]) -> Problem | None:
    k, a = random_.randint(2, 4), random_.randint(2, 45)
    opening = random_.randrange(len(GROUPS))
    texts = [GROUPS[opening].format(a=a, k=k, **places)]
    steps, value = [], a
    for _ in range(k - 1):
        step = _step(value, "+", a)
        if step is None:
            return None
        steps.append(step)
        value = step[3]
    key = f"g{opening}"
    if k < 4 and random_.random() < 0.7:
        text, step, part = _event(random_, places, value)
        if step is None:
            return None
        texts.append(text)
        steps.append(step)
        key += part
    return _finish(random_, places, texts, steps, key)


def _compare(
    random_: random.Random, places: dict[str, str], first: str, a: int, opening: int
) -> Problem | None:
    b, kind = random_.randint(2, 60), random_.randrange(2)
    question = random_.randrange(len(TOTALS))
    step = _step(a, "+-"[kind], b)
    total = None if step is None else _step(a, "+", step[3])
    if step is None or total is None:
        return None
    texts = (first, COMPARISONS[kind].format(b=b, **places), TOTALS[question].format(**places))
    return Problem(" ".join(texts), (step, total), f"o{opening}c{kind}t{question}")


def _event(
    random_: random.Random, places: dict[str, str], value: int
) -> tuple[str, Step | None, str]:
    is_gain, b = random_.random() < 0.5, random_.randint(2, 90)
    sentences = GAINS if is_gain else LOSSES
    number = random_.randrange(len(sentences))
    step = _step(value, "+" if is_gain else "-", b)
    return sentences[number].format(b=b, **places), step, f"{'+' if is_gain else '-'}{number}"


def _finish(
    random_: random.Random,
    places: dict[str, str],
    texts: list[str],
    steps: list[Step],
    key: str,
) -> Problem:
    question = random_.randrange(len(QUESTIONS))
    text = " ".join([*texts, QUESTIONS[question].format(**places)])
    return Problem(text, tuple(steps), f"{key}q{question}")


def _step(a: int, operator: str, b: int) -> Step | None:
    result = a + b if operator == "+" else a - b
    return (a, operator, b, result) if 1 <= result <= 99 else None


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:8], "big")
