"""The frozen test set: 300 problems of the test split, drawn once; their bytes never change.

    python -m dsv41.tiny.questions

rebuilds the file's bytes from the generator and says whether they are the frozen ones.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from dsv41.tiny import data, problems
from dsv41.tiny.tokenizer import build_tokenizer

PATH = Path(__file__).with_name("test300.jsonl")
SHA256 = "6c51fb10e79c492b2e7c3f64cc664ed24b1d6695317b2adedbd6f6087d5c9140"
COUNT = 300
_SEED = "frozen test of 300"


@dataclass(frozen=True)
class Question:
    """A question and its worked answer, the gold after `#### `."""

    question: str
    answer: str

    @property
    def gold(self) -> int:
        return int(self.answer.rpartition("#### ")[2])


def load(path: Path = PATH) -> tuple[Question, ...]:
    """The frozen questions in order; ValueError where a byte differs."""
    raw = path.read_bytes()
    found = hashlib.sha256(raw).hexdigest()
    if found != SHA256:
        raise ValueError(f"{path}: SHA-256 {found}, frozen is {SHA256}")
    return tuple(Question(**json.loads(line)) for line in raw.decode("utf-8").splitlines())


def build() -> bytes:
    """The file's bytes, from the generator."""
    random_, tokenizer = random.Random(_SEED), build_tokenizer()
    lines: dict[str, str] = {}
    while len(lines) < COUNT:
        problem = problems.make(random_, "test")
        if data.encode(tokenizer, problem).length <= data.LENGTH:
            row = {
                "question": problem.question,
                "answer": f"{problem.work}\n#### {problem.result}",
            }
            lines.setdefault(problem.question, json.dumps(row) + "\n")
    return "".join(lines.values()).encode("utf-8")


def main() -> int:
    found = hashlib.sha256(build()).hexdigest()
    if found == SHA256 == hashlib.sha256(PATH.read_bytes()).hexdigest():
        sys.stdout.write(f"{PATH.name}: {COUNT} questions, SHA-256 {SHA256}, as generated\n")
        return 0
    sys.stderr.write(f"questions: generated SHA-256 {found}, frozen is {SHA256}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
