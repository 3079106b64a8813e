"""Prompts from GSM8K's train split, on a small file of the same form."""

import json
from itertools import islice

import pytest

from acceptance.prompts import train_text


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.jsonl"
    lines = [{"question": f"How many are {n}?", "answer": f"secret {n}"} for n in range(20)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.rule("P3.4")
def test_the_text_goes_on_in_another_order_and_holds_no_answer(train):
    found = list(islice(train_text(train, 5), 40))

    assert sorted(found[:20]) == sorted(found[20:])
    assert found[:20] != found[20:]
    assert not any("secret" in text for text in found)


def test_the_seed_decides_the_order(train):
    first, again, other = (list(islice(train_text(train, seed), 20)) for seed in (5, 5, 6))

    assert first == again
    assert first != other
