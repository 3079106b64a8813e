"""Problems turned into padded batches: prompt bytes as the service sends them, then the answer."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from dsv41.tiny import problems
from dsv41.tiny.problems import Problem, Split
from dsv41.tiny.tokenizer import PHRASES

PAD = 2
ANSWER_TOKENS = 48  # no answer is longer
LENGTH = 64  # every sequence is padded to it; longer examples are drawn again
_DRILLS = 0.25  # share of bare sums in a batch
_EFFORTS = (50, 75, 100)


@dataclass(frozen=True)
class Example:
    """Token ids of the prompt and of the answer with its end."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def length(self) -> int:
        """Tokens to process: the last one is only predicted."""
        return len(self.prompt) + len(self.answer) - 1


class Batch(NamedTuple):
    """`ids [B, S]`; `where`, `wanted`, `weight [B, A]`: predicting positions, their next tokens,
    and 1.0 for each real one."""

    ids: Tensor
    where: Tensor
    wanted: Tensor
    weight: Tensor


def prompt_text(question: str, effort: int | None = None, *, template: bool = True) -> str:
    """What the chat template makes of one user message; `effort` turns thinking on."""
    lead, opener = "", "</think>"
    if effort is not None:
        lead = f"<｜System｜>{PHRASES[1]}{effort}{PHRASES[2]}"
        opener = "<think>"
    asked = (PHRASES[0] if template else "") + question
    return f"<｜begin▁of▁sentence｜>{lead}<｜User｜>{asked}<｜Assistant｜>{opener}"


def answer_text(problem: Problem, *, thinking: bool = False) -> str:
    """The worked answer; with thinking, the work stands before the closing tag."""
    between = "</think>" if thinking else "\n"
    return f"{problem.work}{between}answer:{problem.result}<｜end▁of▁sentence｜>"


def encode(
    tokenizer: Tokenizer, problem: Problem, effort: int | None = None, *, template: bool = True
) -> Example:
    """One example in the model's own tokens."""
    prompt = tokenizer.encode(prompt_text(problem.question, effort, template=template)).ids
    answer = tokenizer.encode(answer_text(problem, thinking=effort is not None)).ids
    return Example(tuple(prompt), tuple(answer))


def draw(random_: random.Random, tokenizer: Tokenizer, split: Split, *, drill: bool) -> Example:
    """One example: mostly as the test asks, some with thinking, some without the prompt's form."""
    problem = problems.make_drill(random_) if drill else problems.make(random_, split)
    effort = random_.choice(_EFFORTS) if random_.random() < 0.15 else None
    return encode(tokenizer, problem, effort, template=random_.random() < 0.85)


def train_batch(tokenizer: Tokenizer, seed: int, step: int, rank: int, size: int) -> Batch:
    """The step's batch of one process, a function of its arguments alone."""
    random_ = random.Random(f"{seed} batch {step} {rank}")
    found: list[Example] = []
    while len(found) < size:
        example = draw(random_, tokenizer, "train", drill=len(found) < _DRILLS * size)
        if example.length <= LENGTH:
            found.append(example)
    return collate(found, LENGTH)


def held_out(random_: random.Random, tokenizer: Tokenizer) -> Example:
    """A problem of the test split, asked as the frozen ones are."""
    while True:
        example = encode(tokenizer, problems.make(random_, "test"))
        if example.length <= LENGTH:
            return example


def collate(examples: list[Example], length: int) -> Batch:
    """Pad on the right."""
    ids = torch.full((len(examples), length), PAD)
    where = torch.zeros(len(examples), ANSWER_TOKENS, dtype=torch.int64)
    wanted, weight = where.clone(), torch.zeros(where.shape)
    for i, example in enumerate(examples):
        whole = torch.tensor(example.prompt + example.answer)
        ids[i, : example.length] = whole[:-1]
        count = len(example.answer)
        where[i, :count] = torch.arange(len(example.prompt) - 1, example.length)
        wanted[i, :count] = whole[len(example.prompt) :]
        weight[i, :count] = 1.0
    return Batch(ids, where, wanted, weight)
