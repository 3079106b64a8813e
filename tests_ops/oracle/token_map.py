"""Tokenizer -> compressed ids of the Engram. 2.11, "token compression"."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

LONE_SPACE = "\ue000"
REPLACEMENT = "\ufffd"


def key_of(text: str, raw: str) -> str:
    """What two token ids must share to share a compressed id.

    `text`: the decoded single token; `raw`: its string in the vocabulary.
    """
    if REPLACEMENT in text:
        return raw
    return normalise(text) or text


def normalise(text: str) -> str:
    """NFKC, NFD, no accents, lower case, one space for blanks, strip (a lone space stays)."""
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(c for c in text if not unicodedata.category(c).startswith("M"))
    # Character by character: a final sigma keeps its plain lower case.
    text = "".join(c.lower() for c in text)
    text = re.sub(r"[ \t\r\n]+", " ", text)
    if text == " ":
        text = LONE_SPACE
    start, end = 0, len(text)
    while start < end and is_white(text[start]):
        start += 1
    while end > start and is_white(text[end - 1]):
        end -= 1
    return text[start:end].replace(LONE_SPACE, " ")


def is_white(c: str) -> bool:
    """The White_Space property; `str.isspace` also takes four separators that lack it."""
    return c.isspace() and c not in "\x1c\x1d\x1e\x1f"


def number_keys(keys: Iterable[str]) -> list[int]:
    """Ids in order of first appearance."""
    seen: dict[str, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def token_map(
    size: int, decode: Callable[[int], str], id_to_token: Callable[[int], str | None]
) -> list[int]:
    """Compressed id of every token id 0 .. size - 1."""
    return number_keys(key_of(decode(i), id_to_token(i) or "") for i in range(size))


def read_token_map(tokenizer_json: Path, expected: int) -> list[int]:
    """Map of a tokenizer file; ValueError if the count is not the config's (T-8)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    ids = token_map(
        tokenizer.get_vocab_size(with_added_tokens=True),
        lambda i: tokenizer.decode([i], skip_special_tokens=False),
        tokenizer.id_to_token,
    )
    count = len(set(ids))
    if count != expected:
        raise ValueError(
            f"{tokenizer_json}: {count} compressed ids, engram_compressed_vocab_size is {expected}"
        )
    return ids
