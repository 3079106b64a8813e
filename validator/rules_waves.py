"""Rules on what was sent and how it ended: P3, P4.0 and P4.1 on requests and waves.

Each gives (is something wrong, is something unknown).
"""

from collections import Counter
from collections.abc import Callable

from .case import Case

Finding = tuple[bool, bool]


def is_empty(case: Case) -> bool:
    """Nothing was sent: then nothing is known."""
    return not case.attempt.waves


def said() -> Callable[[Case], Finding]:
    """A rule on the streams: its codes stand already; without a wave nothing is known."""
    return lambda case: (False, is_empty(case))


def wave_count(case: Case) -> Finding:
    """P3.2: each wave of the round holds the slots 0 to C-1, once each."""
    for kind in case.kinds:
        waves = [wave for wave in case.attempt.waves if wave.kind == kind]
        slots = Counter(request.slot for wave in waves for request in wave.requests)
        if slots != Counter(range(case.concurrency)):
            return True, False
    return False, False


def wave_order(case: Case) -> Finding:
    """P3.2: the warm-up wave was over before the measured one began."""
    waves = case.attempt.waves
    if tuple(wave.kind for wave in waves) != case.kinds:
        return True, False
    if len(waves) == 1:
        return False, False
    ends = [case.figures.get((0, one.slot)) for one in waves[0].requests]
    starts = [one.start_ns for one in waves[1].requests]
    known_ends = [one.end_ns for one in ends if one is not None]
    known_starts = [one for one in starts if one is not None]
    is_unknown = not ends or not starts or None in ends or None in starts
    is_wrong = bool(known_ends and known_starts) and (
        waves[1].origin_ns + min(known_starts) < waves[0].origin_ns + max(known_ends)
    )
    return is_wrong, is_unknown


def wave_complete(case: Case) -> Finding:
    """P3.7: no wave was broken off."""
    return any(wave.aborted for wave in case.attempt.waves), is_empty(case)


def prompts(case: Case) -> Finding:
    """Slot i sends prompt i of its bank, and no prompt is sent twice in an attempt."""
    hashes = [request.prompt_sha256 for _, _, request in case.requests]
    is_wrong = len(set(hashes)) < len(hashes)
    for _, wave, request in case.requests:
        bank = case.prompt_hashes[wave.kind][: case.concurrency]
        wanted = bank[request.slot] if 0 <= request.slot < len(bank) else None
        if request.prompt_index != request.slot or request.prompt_sha256 != wanted:
            is_wrong = True
    return is_wrong, is_empty(case)


def salts(case: Case) -> Finding:
    """P3.6: every cache salt is new in the run."""
    salts = [request.cache_salt for _, _, request in case.requests]
    is_wrong = (
        "" in salts or len(set(salts)) < len(salts) or not case.context.salts.isdisjoint(salts)
    )
    return is_wrong, is_empty(case)


def ranks(case: Case) -> Finding:
    """P3.6: slot i asked for rank i modulo D."""
    size = case.runspec.profile.data_parallel_size
    is_wrong = any(request.rank != request.slot % size for _, _, request in case.requests)
    return is_wrong, is_empty(case)


def barrier(case: Case) -> Finding:
    """P3.6: every wave passed its barrier in time."""
    clients = [wave.client for wave in case.attempt.waves]
    limit = case.runspec.barrier_timeout_ns
    is_late = any(one is not None and one.barrier_wait_ns > limit for one in clients)
    return is_late, None in clients or is_empty(case)


def send_skew(case: Case) -> Finding:
    """P3.6: the requests of a wave started together."""
    waves = case.attempt.waves
    is_unknown = is_empty(case) or any(
        not wave.requests or any(one.start_ns is None for one in wave.requests) for wave in waves
    )
    limit = case.runspec.profile.limits.send_skew_ns
    spreads = [
        max(known) - min(known)
        for known in ([r.start_ns for r in w.requests if r.start_ns is not None] for w in waves)
        if known
    ]
    return any(spread > limit for spread in spreads), is_unknown


def client_stall(case: Case) -> Finding:
    """P4.0: the client did not stand still while it measured."""
    clients = [wave.client for wave in case.attempt.waves]
    limit = case.runspec.profile.limits.stall_ns
    is_wrong = any(one is not None and one.stall_ns_max > limit for one in clients)
    return is_wrong, None in clients or is_empty(case)


def timeouts(case: Case) -> Finding:
    """P3.6: no request timed out or took longer than the frozen timeout."""
    limit = case.runspec.http_timeout_ns
    late = any(one.e2e_ns > limit for one in case.figures.values())
    timed_out = any(request.outcome == "timeout" for _, _, request in case.requests)
    return late or timed_out, is_empty(case)


def output_length(case: Case) -> Finding:
    """P4.1: the number of token IDs of every request is known."""
    if case.codes & {"no-token", "token-count"}:
        return False, False
    missing = any((number, one.slot) not in case.figures for number, _, one in case.requests)
    return False, missing or is_empty(case)


def clock(case: Case) -> Finding:
    """start <= connected <= sent <= first <= last token <= end, all of them known."""
    is_wrong, is_unknown = "clock" in case.codes, is_empty(case)
    for number, _, request in case.requests:
        stamps = [request.start_ns, request.connected_ns, request.sent_ns]
        known = case.figures.get((number, request.slot))
        stamps += [known.first_ns, known.last_token_ns, known.end_ns] if known else [None]
        present = [stamp for stamp in stamps if stamp is not None]
        is_wrong = is_wrong or present != sorted(present) or min(present, default=0) < 0
        is_unknown = is_unknown or None in stamps
    return is_wrong, is_unknown
