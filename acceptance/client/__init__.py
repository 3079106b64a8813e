"""The measuring client: sends a wave, and keeps every byte and stamp (P3.6, P4.0)."""

from acceptance.client.parent import WaveClient, run_wave
from acceptance.client.progress import Progress, SlotProgress
from acceptance.client.spec import (
    PERFORMANCE_PATH,
    WaveRequest,
    WaveSpec,
    http_request,
    prompt_sha256,
)

__all__ = [
    "PERFORMANCE_PATH",
    "Progress",
    "SlotProgress",
    "WaveClient",
    "WaveRequest",
    "WaveSpec",
    "http_request",
    "prompt_sha256",
    "run_wave",
]
