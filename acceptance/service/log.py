"""A server's log -> the one line that says why it ended, and the settings it announced."""

import ast
import re

PREFIX = re.compile(
    r"^(?:\((?:APIServer|EngineCore|Worker)[^)]*\)\s*)?"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d [\d:]+ \[[^\]]*\]\s?)?"
)
"""What vLLM puts before a line: the process, then level, time and place."""

ERROR = re.compile(r"^(?:[\w.]*(?:Error|Exception|Exit|Interrupt)\b: ?\S|[\w./-]+: error: \S)")
SECONDHAND = re.compile(r"Engine core initialization failed|EngineDeadError|EngineCore encountered")
"""Errors that only report another one: the cause stands above them."""

ENGINE_CONFIG = re.compile(r"Initializing a V1 LLM engine \([^)]*\) with config: (.*)")
LINE_CHARS_MAX = 300

LOG_NAMES = {
    "model_config.max_model_len": "max_seq_len",
    "model_config.enforce_eager": "enforce_eager",
    "model_config.dtype": "dtype",
    "model_config.seed": "seed",
    "model_config.served_model_name": "served_model_name",
    "model_config.quantization": "quantization",
    "model_config.tokenizer_mode": "tokenizer_mode",
    "parallel_config.tensor_parallel_size": "tensor_parallel_size",
    "parallel_config.pipeline_parallel_size": "pipeline_parallel_size",
    "parallel_config.data_parallel_size": "data_parallel_size",
    "cache_config.cache_dtype": "kv_cache_dtype",
    "cache_config.enable_prefix_caching": "enable_prefix_caching",
    "scheduler_config.enable_chunked_prefill": "enable_chunked_prefill",
}
"""Settings that the engine announces in its log, by their name in the configuration."""


def last_error(text: str) -> str | None:
    """The error that ended the server: the first-hand one that came last; else the last line."""
    lines = [PREFIX.sub("", line).strip() for line in text.splitlines()]
    errors = [line for line in lines if ERROR.match(line)]
    first_hand = [line for line in errors if not SECONDHAND.search(line)]
    # A line that is drawn, a progress bar or blank says nothing.
    spoken = [line for line in lines if re.search(r"[A-Za-z]{3}", line) and "it/s]" not in line]
    for candidates in (first_hand, errors, spoken):
        if candidates:
            return candidates[-1][:LINE_CHARS_MAX]
    return None


def engine_settings(text: str) -> dict[str, str | int | bool]:
    """Settings from the engine's first log line, under the names of `LOG_NAMES`; {} without one."""
    found = ENGINE_CONFIG.search(text)
    if not found:
        return {}
    announced = dict(re.findall(r"(?:^|, )(\w+)=([^,(\[{]*)(?=, \w+=|$|[(\[{])", found.group(1)))
    return {
        name: _value(announced[short]) for name, short in LOG_NAMES.items() if short in announced
    }


def _value(text: str) -> str | int | bool:
    if text == "None":
        return "null"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, str | int) else text
