"""Path counters at the edges of an attempt -> whether the claimed paths ran (P7.3)."""

from typing import Any

from .case import Case
from .strict import Misfit, Reader, Refused, mapping, natural, parse, record, schema

SCHEMA = 1
CALLS: Reader[dict[str, Any]] = record(dict, schema=schema(SCHEMA), calls=mapping(mapping(natural)))

Calls = dict[str, dict[str, int | None]]


def ran(case: Case) -> bool | None:
    """Whether every claimed path was taken by every worker inside the measured window, which is
    the last one. None where no counter says so, or where the profile asks for none."""
    runspec = case.runspec
    if not runspec.profile.is_required("candidate-path"):
        return None
    if not runspec.paths_claimed:
        return True
    calls = _window(case)
    if calls is None:
        return None
    is_unknown = False
    for counts in _claimed(runspec.paths_claimed, calls).values():
        known = [one for one in counts.values() if one is not None]
        if any(one <= 0 for one in known):
            return False
        is_unknown = is_unknown or len(known) < max(len(counts), runspec.workers)
    return None if is_unknown else True


def _window(case: Case) -> Calls | None:
    """Calls by path and worker between the two edges of the last wave."""
    waves = len(case.attempt.waves)
    edges = [_edge(case, number) for number in (waves - 1, waves)]
    before, after = edges
    if before is None or after is None:
        return None
    there = {worker for counts in before.values() for worker in counts}
    moved: Calls = {}
    for path, counts in after.items():
        moved[path] = {}
        for worker, now in counts.items():
            then = before.get(path, {}).get(worker, 0)
            moved[path][worker] = now - then if worker in there and now >= then else None
    return moved


def _edge(case: Case, number: int) -> dict[str, dict[str, int]] | None:
    name = f"paths-{number}.json"
    try:
        data = case.context.load(name)
    except Refused:
        return None
    try:
        found = CALLS(parse(data, name), "")
    except Misfit as error:
        raise Refused(f"{case.context.where}/{name}", error.place, error.reason) from None
    calls: dict[str, dict[str, int]] = found["calls"]
    return calls


def _claimed(claims: tuple[str, ...], calls: Calls) -> dict[str, dict[str, int | None]]:
    """Claimed path -> calls by worker. `op.*/path` stands for every `op.N` that was counted at
    all; an operation that always took another path took this one 0 times."""
    by_operation: dict[str, set[str]] = {}
    for name, counts in calls.items():
        by_operation.setdefault(name.rpartition("/")[0], set()).update(counts)
    found = {}
    for claim in claims:
        operation, _, path = claim.rpartition("/")
        head = operation.removesuffix("*")
        is_family = operation.endswith("*")
        matching = [one for one in by_operation if is_family and one.startswith(head)]
        for one in matching or [operation]:
            zeros: dict[str, int | None] = dict.fromkeys(by_operation.get(one, ()), 0)
            found[f"{one}/{path}"] = zeros | calls.get(f"{one}/{path}", {})
    return found
