"""Text -> the two frozen banks of raw-token prompts and their release file (P3.4).

A prompt is exactly `input_tokens` IDs, all 64 are distinct, and the same seed, text and tokenizer
give the same bytes everywhere.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from acceptance.canonical import canonical, sha256
from acceptance.errors import UsageError
from acceptance.protocol import BANK_SIZE, CONCURRENCY
from acceptance.records import SCHEMA, FileHash, Record
from acceptance.settings import gsm8k_dirs

Bank = list[list[int]]

NAMES = ("Ada", "Ben", "Chloe", "Dmitri", "Elif", "Femi", "Grace", "Hiro", "Ines", "Jonas")
THINGS = ("apples", "books", "candles", "drums", "eggs", "flags", "globes", "hats", "inks", "jars")
PLACES = ("market", "school", "station", "garden", "library", "harbour", "bakery", "museum")


class BankHash(Record, frozen=True, kw_only=True):
    """Hash of a whole bank and of the subset (its first C prompts) of each level."""

    sha256: str
    prompts: int
    input_tokens: int
    subsets: dict[str, str]


class Release(Record, frozen=True, kw_only=True):
    """`plan/release.json`: inputs and client form one release, whose references are checked."""

    schema: int
    source: str
    seed: int
    tokenizer_sha256: str
    warmup: BankHash
    measured: BankHash
    generator: FileHash
    client: tuple[FileHash, ...]


def seeded_text(seed: int) -> Iterator[str]:
    """Endless made-up grade-school questions; no download, no test answers."""
    rng = random.Random(seed)
    while True:
        name, other = rng.sample(NAMES, 2)
        thing, place = rng.choice(THINGS), rng.choice(PLACES)
        a, b, c = (rng.randrange(2, 1000) for _ in range(3))
        yield (
            f"{name} took {a} {thing} to the {place} and met {other}, who had {b} more. "
            f"They sold {c} of them on the way. How many {thing} are left? "
        )


def train_text(path: Path, seed: int) -> Iterator[str]:
    """Questions of GSM8K's train split, endless: shuffled by seed, and anew for each pass, because
    one pass is shorter than 64 prompts of 8192 tokens. Answers are never used."""
    lines = path.read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] + "\n" for line in lines]
    rng = random.Random(seed)
    while questions:
        rng.shuffle(questions)
        yield from questions


def find_train() -> Path:
    """GSM8K's train split: $GSM8K_DIR/train.jsonl, or beside the repository."""
    places = gsm8k_dirs()
    for place in places:
        if (place / "train.jsonl").is_file():
            return place / "train.jsonl"
    raise UsageError(
        "GSM8K's train.jsonl not found; set GSM8K_DIR to the folder of the public "
        "grade-school-math data that holds it"
    )


def make_banks(text: Iterator[str], tokenizer: Tokenizer, input_tokens: int) -> tuple[Bank, Bank]:
    """(warm-up bank, measured bank): 32 prompts each, cut to exactly `input_tokens` IDs."""
    prompts: Bank = []
    while len(prompts) < 2 * BANK_SIZE:
        ids: list[int] = []
        while len(ids) < input_tokens:
            piece = next(text, None)
            if piece is None:
                raise UsageError(
                    f"the question text ends after {len(prompts)} prompts of {input_tokens} tokens;"
                    f" {2 * BANK_SIZE} are needed: give a larger source"
                )
            ids += tokenizer.encode(piece, add_special_tokens=False).ids
        prompts.append(ids[:input_tokens])
    check_banks(prompts[:BANK_SIZE], prompts[BANK_SIZE:], input_tokens)
    return prompts[:BANK_SIZE], prompts[BANK_SIZE:]


def check_banks(warmup: Bank, measured: Bank, input_tokens: int) -> None:
    """P3.4: 32 and 32 prompts, each of the exact length, all 64 distinct."""
    both = warmup + measured
    if (len(warmup), len(measured)) != (BANK_SIZE, BANK_SIZE):
        raise UsageError(f"P3.4: banks hold {len(warmup)} and {len(measured)} prompts, not 32")
    lengths = {len(prompt) for prompt in both}
    if lengths != {input_tokens}:
        raise UsageError(f"P3.4: prompt lengths {sorted(lengths)}, expected {input_tokens} only")
    if len(set(map(tuple, both))) != 2 * BANK_SIZE:
        raise UsageError("P3.4: the 64 prompts are not all distinct; take another seed or length")


def bank_hash(bank: Bank) -> BankHash:
    """Hashes as stored: canonical JSON of the list and of its first C entries."""
    return BankHash(
        sha256=sha256(canonical(bank)),
        prompts=len(bank),
        input_tokens=len(bank[0]),
        subsets={level: sha256(canonical(bank[:c])) for level, c in CONCURRENCY.items()},
    )


def check_release(release: Release, warmup: Bank, measured: Bank) -> None:
    """Every reference of the release is recomputed before use."""
    if release.schema != SCHEMA:
        raise UsageError(f"release.json: schema {release.schema} is not known here")
    for name, bank in (("warmup", warmup), ("measured", measured)):
        if getattr(release, name) != bank_hash(bank):
            raise UsageError(f"release.json: bank {name} does not have the released hashes")
