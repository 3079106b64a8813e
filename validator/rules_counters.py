"""Rules on what the service's counters moved by in a window: P2.4 to P2.6, P3.6, P4.1.

Each gives (is something wrong, is something unknown).
"""

from collections import Counter
from collections.abc import Callable, Iterator

from .case import Case, Window
from .exposition import Counters

Finding = tuple[bool, bool]


def unread(case: Case) -> bool:
    """Whether a window, or an engine in one, was not read."""
    if case.windows is None:
        return True
    wanted = set(range(case.runspec.profile.data_parallel_size))
    for kind in case.kinds:
        windows = [window for window in case.windows if window.kind == kind]
        if len(windows) != 1 or set(windows[0].engines) != wanted:
            return True
    return False


def metrics(case: Case) -> Finding:
    """P2.4a: the counters were read at every edge."""
    return False, unread(case) or len(case.attempt.metrics) != len(case.kinds) + 1


def engines(case: Case) -> Iterator[tuple[Window, int, Counters]]:
    """(window, engine, what its counters moved by) of the whole attempt."""
    for window in case.windows or ():
        for engine, counters in window.engines.items():
            yield window, engine, counters


def moved(name: str, is_fine: Callable[[int], bool]) -> Callable[[Case], Finding]:
    """A rule on one counter of every engine in every window."""

    def check(case: Case) -> Finding:
        values = [getattr(counters, name) for _, _, counters in engines(case)]
        is_wrong = any(value is not None and not is_fine(value) for value in values)
        return is_wrong, None in values or unread(case)

    return check


def moved_total(window: Window, name: str) -> int | None:
    """A counter's sum over all engines; None where one does not tell."""
    values = [getattr(counters, name) for counters in window.engines.values()]
    return None if None in values else sum(values)


def foreign(case: Case) -> Finding:
    """P2.5: the service served exactly our requests, and none was in flight at an edge."""
    is_wrong, is_unknown = False, unread(case)
    for window in case.windows or ():
        total = moved_total(window, "requests")
        is_unknown = is_unknown or total is None or None in window.in_flight
        is_wrong = is_wrong or total not in (None, case.concurrency) or any(window.in_flight)
    return is_wrong, is_unknown


def tokens(case: Case) -> Finding:
    """P4.1: the service's own counts of tokens are those that we sent and got."""
    is_wrong, is_unknown = False, unread(case)
    profile = case.runspec.profile
    for window in case.windows or ():
        wanted = {
            "prompt_tokens": profile.measured.input_tokens,
            "output_tokens": profile.size(window.kind).output_tokens,
        }
        for name, each in wanted.items():
            total = moved_total(window, name)
            is_unknown = is_unknown or total is None
            is_wrong = is_wrong or total not in (None, each * case.concurrency)
    return is_wrong, is_unknown


def routing(case: Case) -> Finding:
    """P3.6: every engine served exactly the slots whose header named it."""
    size = case.runspec.profile.data_parallel_size
    ranks = Counter(slot % size for slot in range(case.concurrency))
    is_wrong, is_unknown = False, unread(case)
    for _, engine, counters in engines(case):
        is_unknown = is_unknown or counters.requests is None
        is_wrong = is_wrong or counters.requests not in (None, ranks[engine])
    return is_wrong, is_unknown


def drafts(case: Case) -> Finding:
    """P2.4: speculation was alive on every engine that served requests."""
    is_wrong, is_unknown = False, unread(case)
    for _, _, counters in engines(case):
        if counters.requests == 0:
            continue
        drafted, accepted = counters.draft_tokens, counters.accepted_tokens
        if drafted is None or accepted is None:
            is_unknown = True
        elif not 0 < accepted <= drafted:
            is_wrong = True
    return is_wrong, is_unknown


def replays(case: Case) -> Finding:
    """P2.4: graphs were replayed on every active engine in the measured window."""
    is_wrong, is_unknown = False, unread(case)
    for window, _, counters in engines(case):
        if window.kind == "measured" and counters.requests != 0:
            replays = counters.graph_replays
            is_unknown = is_unknown or replays is None
            is_wrong = is_wrong or (replays is not None and replays <= 0)
    return is_wrong, is_unknown
