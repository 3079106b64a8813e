"""Token ids compressed for the n-gram hash: ids whose text normalises alike share one number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, normalizers
from torch import Tensor

from dsv41.model.config import ConfigError, ModelConfig

_LONE_SPACE = "\ue000"  # stands in for a single space while others are stripped


@dataclass(frozen=True)
class TokenMap:
    """`ids [vocab]` int64 gives each token's compressed id; `pad` stands before the start."""

    ids: Tensor
    pad: int


def token_map(config: ModelConfig, directory: str | Path) -> TokenMap:
    """The map that the tokenizer in `directory` implies, checked against the config's count.

    A different tokenizer would silently rehash the tables, so a wrong count is an error.
    """
    path = Path(directory) / "tokenizer.json"
    if not path.is_file():
        return modulo_map(config)
    tokenizer = Tokenizer.from_file(str(path))
    ids = compressed_ids(tokenizer)
    count = max(ids) + 1
    if count != config.engram_compressed_vocab_size:
        raise ConfigError(
            f"{path}: compresses to {count} ids, but engram_compressed_vocab_size is"
            f" {config.engram_compressed_vocab_size}; use the tokenizer of this checkpoint"
        )
    if len(ids) < config.vocab_size:
        # Rows of the embedding that no token has: they never occur in a text.
        ids = ids + [ids[config.engram_pad_token_id]] * (config.vocab_size - len(ids))
    return _map(ids[: config.vocab_size], config)


def modulo_map(config: ModelConfig) -> TokenMap:
    """The map of a model without a tokenizer: id modulo the compressed vocabulary."""
    return _map([i % config.engram_compressed_vocab_size for i in range(config.vocab_size)], config)


def _map(ids: list[int], config: ModelConfig) -> TokenMap:
    return TokenMap(ids=torch.tensor(ids), pad=ids[config.engram_pad_token_id])


def compressed_ids(tokenizer: Tokenizer) -> list[int]:
    """Compressed id of every token id, numbered in order of first appearance."""
    seen: dict[str, int] = {}
    return [
        seen.setdefault(_key(tokenizer, i), len(seen))
        for i in range(tokenizer.get_vocab_size(with_added_tokens=True))
    ]


def _key(tokenizer: Tokenizer, token_id: int) -> str:
    text = tokenizer.decode([token_id], skip_special_tokens=False)
    if "\ufffd" in text:
        return tokenizer.id_to_token(token_id)
    return normalise(text) or text


def normalise(text: str) -> str:
    """NFKC, NFD, no accents, lower case, single spaces, stripped; one lone space survives."""
    return _normaliser().normalize_str(text)


@lru_cache(maxsize=1)
def _normaliser() -> normalizers.Normalizer:
    # The library's own steps: they differ from Python's on final sigma and on some marks.
    return normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
            normalizers.Replace(Regex(r"^ $"), _LONE_SPACE),
            normalizers.Strip(),
            normalizers.Replace(_LONE_SPACE, " "),
        ]
    )
