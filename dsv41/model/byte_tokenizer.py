"""A byte-level tokenizer with DeepSeek's special tokens: no training, no download."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

# Ids 0, 1, 2 are bos, eos and pad as in the release; 3 is the drafts' noise token.
SPECIAL_TOKENS = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "<｜System｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜latest_reminder｜>",
    "<｜deepseek_image｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
)
VOCAB_SIZE = 288  # specials, 256 bytes, and reserved tokens up to a multiple of 32

# Frozen: thinking off by default here, `thinking=true` or `enable_thinking=true` turns it on.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% set think = (thinking or enable_thinking) | default(false) %}"
    "{% if think %}<｜System｜>Reasoning Effort: 75 (range 1-100, the higher the value, the more"
    " thorough the reasoning)\n\n{% endif %}"
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
    """Specials first, then the 256 byte symbols in the order of their bytes, then reserves."""
    # The byte alphabet's own order is that of its printable stand-ins; bytes are clearer.
    symbols = _byte_symbols()
    reserved = [f"<｜reserved▁{i}｜>" for i in range(VOCAB_SIZE - len(SPECIAL_TOKENS) - 256)]
    tokens = [*SPECIAL_TOKENS, *symbols, *reserved]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in (*SPECIAL_TOKENS, *reserved)]
    )
    return tokenizer


def _byte_symbols() -> list[str]:
    """The printable character that byte-level tokenizers use for each byte 0..255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [table[b] for b in range(256)]


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
