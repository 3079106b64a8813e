"""Environment variables of the plugin, read when asked for; each has one meaning and a default."""

from __future__ import annotations

import os


def fork_engine() -> bool:
    """`DSV41_FORK=1`: start the engine process by fork on the CPU, about 8 s sooner.

    vLLM's CPU platform asks for spawn; use fork for small test models only.
    """
    return os.environ.get("DSV41_FORK", "0") == "1"


def rounding() -> bool:
    """`DSV41_ROUNDING=1`: round activations and cached rows as the released model does."""
    return os.environ.get("DSV41_ROUNDING", "0") == "1"


def decoder_replay() -> bool:
    """`DSV41_DECODER_REPLAY=1`: after the last kv source, prefill only each chunk's last window.

    An approximation: exact for chunks of up to one window, slightly different logits beyond.
    """
    return os.environ.get("DSV41_DECODER_REPLAY", "0") == "1"


def attend() -> str:
    """`DSV41_ATTEND`: how attention is computed, `plain` (default), `fused` or `sink-after`."""
    return os.environ.get("DSV41_ATTEND") or "plain"


def paths_directory() -> str | None:
    """`DSV41_PATHS_DIR`: where each process keeps `<pid>.json` with its path counters."""
    return os.environ.get("DSV41_PATHS_DIR") or None
