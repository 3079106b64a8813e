"""Stored greedy outputs of the oracle, and what a served output may differ in.

A served output equals its golden token for token. Where it first diverges, the oracle's own
top-1/top-2 gap at that step must be below 1e-4 (the two sums are then equally good answers),
and no more than 1 output in 200 may diverge at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEAR_TIE = 1e-4
OUTPUTS_PER_DIVERGENCE = 200
SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Golden:
    """One prompt (token ids), the oracle's greedy tokens and its gap at each of them."""

    id: str
    prompt: list[int]
    tokens: list[int]
    gaps: list[float]


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The first step at which a served output left its golden."""

    id: str
    step: int
    expected: int | None
    served: int | None
    gap: float | None

    @property
    def excusable(self) -> bool:
        """Both tokens exist and the oracle itself could hardly tell them apart."""
        return (
            self.expected is not None
            and self.served is not None
            and self.gap is not None
            and self.gap < NEAR_TIE
        )

    def __str__(self) -> str:
        return (
            f"{self.id}: step {self.step} expected {self.expected}, served {self.served}, "
            f"oracle gap {self.gap}"
        )


def first_divergence(golden: Golden, served: Sequence[int]) -> Divergence | None:
    """None when equal; a shorter or longer output diverges where it ends."""
    for step in range(max(len(golden.tokens), len(served))):
        expected = golden.tokens[step] if step < len(golden.tokens) else None
        got = served[step] if step < len(served) else None
        if expected != got:
            gap = golden.gaps[step] if step < len(golden.gaps) else None
            return Divergence(id=golden.id, step=step, expected=expected, served=got, gap=gap)
    return None


def faults(goldens: Sequence[Golden], served: Mapping[str, Sequence[int]]) -> list[str]:
    """Why the served outputs (by golden id) are not the oracle's; empty when they are.

    Every golden must be served. Excusable divergences count against 1 in 200.
    """
    missing = [f"{g.id}: not served" for g in goldens if g.id not in served]
    found = [
        d
        for g in goldens
        if g.id in served and (d := first_divergence(g, served[g.id])) is not None
    ]
    wrong = [str(d) for d in found if not d.excusable]
    if len(found) * OUTPUTS_PER_DIVERGENCE > len(goldens) and not wrong:
        wrong = [f"{d} (near tie, but more than 1 in 200 diverge)" for d in found]
    return missing + wrong


def read(path: Path) -> list[Golden]:
    """Goldens of a file; ValueError on another schema."""
    record: dict[str, Any] = json.loads(path.read_text())
    if record.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {record.get('schema')}, this reads {SCHEMA}")
    return [
        Golden(id=p["id"], prompt=p["prompt"], tokens=p["tokens"], gaps=p["gaps"])
        for p in record["prompts"]
    ]


def checkpoint_files(path: Path) -> dict[str, str]:
    """File name -> sha256 of the checkpoint that a golden file was made from."""
    found: dict[str, str] = json.loads(path.read_text())["checkpoint"]
    return found
