"""Specs of fake services for tests, and patience: a condition waited for, never a time."""

import time
from collections.abc import Callable
from pathlib import Path

from acceptance.service import ServiceSpec
from acceptance.service.spec import Setting


def fake_spec(
    folder: Path,
    *options: str,
    expect: dict[str, Setting] | None = None,
    port: int | None = None,
    startup_timeout_s: float = 60,
    stop_timeout_s: float = 20,
) -> ServiceSpec:
    """A service that is `testing/fake_service.py`, with a checkpoint directory in `folder`."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    program = ("{python}", "-m", "acceptance.testing.fake_service")
    return ServiceSpec(
        argv=(*program, "--model", "{model}", "--port", "{port}", *options),
        environment={"FAKE": "1"},
        inherit=("PATH",),
        model=str(model),
        served_name="fake",
        data_parallel_size=1,
        startup_timeout_s=startup_timeout_s,
        stop_timeout_s=stop_timeout_s,
        expect=expect or {},
        port=port,
    )


def eventually(holds: Callable[[], bool], within_s: float = 60) -> bool:
    """Whether it holds before the time is up; the time only bounds a failing test."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
