"""Banks: exact, distinct, disjoint, the same everywhere (P3.4)."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from acceptance import prompts
from acceptance.canonical import canonical, sha256
from acceptance.errors import UsageError


@pytest.fixture(scope="module")
def tokenizer():
    """One token per byte of ASCII."""
    made = Tokenizer(models.BPE(vocab={chr(i): i for i in range(32, 127)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return made


@pytest.mark.rule("P3.4")
def test_banks_have_the_exact_length_and_64_distinct_prompts(tokenizer):
    warmup, measured = prompts.make_banks(prompts.seeded_text(7), tokenizer, 100)

    assert (32, 32) == (len(warmup), len(measured))
    assert {100} == {len(prompt) for prompt in warmup + measured}
    assert 64 == len({tuple(prompt) for prompt in warmup + measured})


def test_the_same_seed_gives_the_same_bank_and_another_seed_another(tokenizer):
    def digest(seed):
        return prompts.bank_hash(prompts.make_banks(prompts.seeded_text(seed), tokenizer, 50)[1])

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda w, m: (w[:31], m), "31 and 32", id="short-bank"),
        pytest.param(lambda w, m: (w, [*m[:31], m[31][:-1]]), "lengths", id="short-prompt"),
        pytest.param(lambda w, m: (w, [*m[:31], w[0]]), "not all distinct", id="shared-prompt"),
    ],
)
def test_a_faulty_bank_is_refused(tokenizer, change, says):
    banks = prompts.make_banks(prompts.seeded_text(7), tokenizer, 40)

    with pytest.raises(UsageError, match=says):
        prompts.check_banks(*change(*banks), 40)


def test_a_source_that_ends_is_refused(tokenizer):
    with pytest.raises(UsageError, match="ends after 2 prompts"):
        prompts.make_banks(iter(["x" * 40, "y" * 40]), tokenizer, 40)


def test_subsets_are_the_first_prompts(tokenizer):
    _, bank = prompts.make_banks(prompts.seeded_text(7), tokenizer, 40)

    assert sha256(canonical(bank[:4])) == prompts.bank_hash(bank).subsets["C4"]


def test_a_release_whose_bank_was_edited_is_refused(tokenizer):
    warmup, measured = prompts.make_banks(prompts.seeded_text(7), tokenizer, 40)
    release = prompts.Release(
        schema=1, source="seeded", seed=7, tokenizer_sha256="-",
        warmup=prompts.bank_hash(warmup), measured=prompts.bank_hash(measured),
        generator=prompts.FileHash(path="p", size=0, sha256="-"), client=(),
    )  # fmt: skip
    prompts.check_release(release, warmup, measured)
    measured[5][3] += 1

    with pytest.raises(UsageError, match="bank measured"):
        prompts.check_release(release, warmup, measured)
