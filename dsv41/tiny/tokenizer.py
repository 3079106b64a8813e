"""The small model's tokenizer and chat template: bytes, single digits, and the problems' words.

Any text encodes: what is no whole word of the vocabulary falls back to its bytes.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from dsv41.model.byte_tokenizer import SPECIAL_TOKENS
from dsv41.model.config import ConfigError, ModelConfig
from dsv41.model.vocabulary import TokenMap, compressed_ids
from dsv41.tiny import problems

VOCAB_SIZE = 512
# One token each: the fixed parts of the question's prompt and of the effort line.
PHRASES = (
    "Answer the following question.The last line of the response should follow this format: "
    '"answer:$ANSWER" (without quotes), where ANSWER is a number. Let\'s think step by step.\n\n'
    "Question: ",
    "Reasoning Effort: ",
    " (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
)
# They are text to a reasoning parser, so decoding must not hide them.
_VISIBLE = ("<think>", "</think>")
_PIECES = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s"

# Frozen.  Thinking is off unless asked for; effort: low 50, high 75 (default), max 100, a number.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% set effort = reasoning_effort | default('high') %}"
    "{% set think = ((thinking | default(false)) or (enable_thinking | default(false)))"
    " and effort != 'none' %}"
    "{% if think %}<｜System｜>Reasoning Effort: "
    "{{ {'low': 50, 'medium': 75, 'high': 75, 'xhigh': 75, 'max': 100}.get(effort, effort) }}"
    " (range 1-100, the higher the value, the more thorough the reasoning)\n\n{% endif %}"
    "{% for m in messages %}"
    "{% if m['role'] == 'system' %}"
    "{% if not (think and loop.first) %}<｜System｜>{% endif %}{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}<｜User｜>{{ m['content'] }}"
    "{% else %}<｜Assistant｜></think>{{ m['content'] }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜>"
    "{% if think %}<think>{% else %}</think>{% endif %}{% endif %}"
)


def build_tokenizer() -> Tokenizer:
    """Specials, the 256 bytes, whole words, phrases, and reserves up to `VOCAB_SIZE`."""
    tokens = [*SPECIAL_TOKENS, *_byte_symbols(), *words()]
    reserved = [f"<｜reserved▁{i}｜>" for i in range(VOCAB_SIZE - len(tokens) - len(PHRASES))]
    tokens += [*PHRASES, *reserved]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(t, special=True, normalized=False)
            for t in (*SPECIAL_TOKENS, *reserved)
            if t not in _VISIBLE
        ]
    )
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in (*_VISIBLE, *PHRASES)])
    return tokenizer


def ngram_map(tokenizer: Tokenizer, config: ModelConfig) -> TokenMap:
    """The ids that the n-gram hash sees; ConfigError unless the config counts them right."""
    ids = compressed_ids(tokenizer)
    if max(ids) + 1 != config.engram_compressed_vocab_size:
        raise ConfigError(
            f"engram_compressed_vocab_size is {config.engram_compressed_vocab_size}, but the"
            f" tokenizer compresses to {max(ids) + 1} ids"
        )
    return TokenMap(torch.tensor(ids), ids[config.engram_pad_token_id])


def words() -> list[str]:
    """Whole words of the problems as the tokenizer spells them, `Ġ` being a leading space."""
    texts = [re.sub(r"\{[a-z]+\}", "1", text) for text in problems.all_sentences()]
    texts += [*problems.NAMES, *problems.ITEMS]
    # A word may open a text, or follow a space.
    texts = ["answer:1", *texts, *(f" {text}" for text in texts)]
    found = {w for text in texts for w in re.findall(r" ?[A-Za-z]+", text) if len(w) > 1}
    return sorted(w.replace(" ", "Ġ") for w in found)


def tokenizer_settings(max_length: int) -> dict[str, Any]:
    """Contents of `tokenizer_config.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[0],
        "eos_token": SPECIAL_TOKENS[1],
        "pad_token": SPECIAL_TOKENS[2],
        "model_max_length": max_length,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def _byte_symbols() -> list[str]:
    """The printable character that byte-level tokenizers use for each byte 0..255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [table[b] for b in range(256)]
