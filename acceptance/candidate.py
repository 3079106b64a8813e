"""The table of candidates -> one candidate with its switches (P4.2, P7.3).

The product writes the table as a JSON file; nothing else of the product is known here.
"""

import difflib
from typing import Literal

import msgspec

from acceptance.errors import UsageError
from acceptance.records import Record

BASELINE = "baseline"
"""Name of the version with no candidate's switch on: the parent of a first candidate."""


class Candidate(Record, frozen=True, kw_only=True):
    """One change under test.

    - `parent`: name of the direct parent, `baseline` or another candidate that was retained;
      `parent_commit`: its version, null for the very tree with this candidate's switch off.
    - `switch`: environment variables that turn it on.
    - `eligibility`: where it may be taken, in words. `claim`: what it promises of its figures.
    - `paths`: names of path counters that must move (P7.3); `op.*/path` stands for every `op.N`.
    - `outcome`: what became of it so far, in words; `source`: where the idea comes from.
    """

    name: str
    hypothesis: str
    parent: str
    parent_commit: str | None
    targets: tuple[str, ...]
    switch: dict[str, str]
    eligibility: str
    claim: Literal["bit_exact", "tolerance"]
    tolerance: str | None
    paths: tuple[str, ...]
    outcome: str
    source: str


class Table(Record, frozen=True, kw_only=True):
    """The file."""

    schema: int
    candidates: tuple[Candidate, ...]


class Chosen(Record, frozen=True, kw_only=True):
    """A candidate as it is run: `switches` is its whole environment beside the profile's, its
    parents' included; `parent_switches` is the parent's."""

    candidate: Candidate
    switches: dict[str, str]
    parent_switches: dict[str, str]


def parse_table(data: bytes, source: str) -> Table:
    """The table. UsageError names the file and what is wrong with it."""
    try:
        table = msgspec.json.decode(data, type=Table)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: {error}") from None
    if table.schema != 1:
        raise UsageError(f"{source}: schema {table.schema} is not known here; this reads 1")
    names = [one.name for one in table.candidates]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{source}: {twice[0]} is there twice; a new try has a name of its own")
    if BASELINE in names:
        raise UsageError(f"{source}: {BASELINE!r} is the version without any candidate")
    return table


def choose(table: Table, name: str, levels: tuple[str, ...], source: str) -> Chosen:
    """The candidate of a name. UsageError where it is unknown or can't be judged on `levels`."""
    known = {one.name: one for one in table.candidates}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise UsageError(
            f"{source}: no candidate {name!r}; the nearest is {near[0] if near else 'none'}"
        )
    candidate = known[name]

    def refuse(what: str) -> None:
        raise UsageError(f"{source}: {name}: {what}")

    if not candidate.targets:
        refuse("no target level is set, and none may be chosen later (P4.2)")
    if unknown := [level for level in candidate.targets if level not in levels]:
        refuse(f"target {unknown[0]} is no level of the profile ({', '.join(levels)})")
    if not candidate.paths:
        refuse("no path counter is named, so nothing could show that it ran (P7.3)")
    if (candidate.claim == "tolerance") != (candidate.tolerance is not None):
        refuse("a tolerance is declared where the claim is `tolerance`, and only there (P7.1)")
    parents = _parents(known, candidate, source)
    inherited: dict[str, str] = {}
    for parent in reversed(parents):
        inherited |= parent.switch
    return Chosen(
        candidate=candidate,
        switches=inherited | candidate.switch,
        parent_switches=inherited,
    )


def _parents(
    known: dict[str, Candidate], candidate: Candidate, source: str
) -> tuple[Candidate, ...]:
    """The direct parent first, the first of the line last; `baseline` is none of them."""
    found: list[Candidate] = []
    name = candidate.parent
    while name != BASELINE:
        parent = known.get(name)
        if parent is None or parent in found or parent is candidate:
            raise UsageError(f"{source}: {candidate.name}: parent {name!r} leads to no baseline")
        found.append(parent)
        name = parent.parent
    return tuple(found)
