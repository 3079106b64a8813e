"""One thing that is off with a host or a device, and the line that mends it (P2.1)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`what` is off, as it was `found`; `fix` is what to do about it. One line each."""

    what: str
    found: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}: {self.found}; {self.fix}"
