"""placeholder"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance.errors import UsageError


@dataclass(frozen=True)
class Options:
    profile: Path
    run_id: str | None = None


def find_profile(name: str) -> Path:
    raise UsageError("no profiles yet")


class GateSession:
    is_frozen = False
    console: Any = None

    def __init__(self, options: Options, plan: tuple[str, ...]) -> None: ...
