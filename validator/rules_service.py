"""Rules on the service, its identity and its host: P2, P3.1, P3.7, P4.1.

Each gives (is something wrong, is something unknown).
"""

from .attempts import Proof
from .case import Case
from .exposition import STATES
from .rules_counters import engines
from .strict import canonical, digest

Finding = tuple[bool, bool]

FIXED = {"processes_gone": "", "foreign_listeners": "0", "differences": ""}
"""What a proof must say of every service that is alone and as it was started."""


def attempt(case: Case) -> Finding:
    """P3.7a: a level is repeated only after an invalid attempt, linked to it and with a reason."""
    this = case.attempt
    if this.attempt == 1:
        return this.previous is not None or case.context.was_valid is not None, False
    is_linked = this.previous == f"attempt-{this.attempt - 1}" and bool(this.reason)
    return case.context.was_valid is True or not is_linked, case.context.was_valid is None


def _edges(case: Case) -> tuple[Proof, Proof] | None:
    """The proofs before and after the level."""
    return (case.proofs[0], case.proofs[-1]) if len(case.proofs) >= 2 else None


def service_identity(case: Case) -> Finding:
    """One service before and after, which is the one that the round started."""
    wanted = {**FIXED, "service_id": case.attempt.service_id}
    if case.context.command is not None:
        wanted["port"] = str(case.context.command.port)
        wanted["command_sha256"] = digest(canonical(list(case.context.command.argv)))
        wanted["environment_sha256"] = digest(canonical(case.context.command.environment))
    is_wrong = case.context.is_other_service
    for proof in case.proofs:
        said = {**proof.identity, "service_id": proof.service_id}
        is_wrong = is_wrong or any(
            name in said and said[name] not in (None, value) for name, value in wanted.items()
        )
    edges = _edges(case)
    if edges is None:
        return is_wrong, True
    before, after = (proof.identity for proof in edges)
    is_unknown = not before or not after or None in (*before.values(), *after.values())
    return is_wrong or bool(before and after and before != after), is_unknown


def restarts(case: Case) -> Finding:
    """One process throughout, and no counter that went back."""
    starts = [proof.process_start for proof in case.proofs]
    went_back = any(
        value is not None and value < 0
        for _, _, counters in engines(case)
        for name, value in vars(counters).items()
        if name not in STATES
    )
    return len(set(starts) - {None}) > 1 or went_back, not starts or None in starts


def service_errors(case: Case) -> Finding:
    """No request ended by error or abort inside the service, which is healthy afterwards."""
    edges = _edges(case)
    is_healthy = edges[1].is_healthy if edges else None
    return is_healthy is False, is_healthy is None


def effective_config(case: Case) -> Finding:
    """The running service has every setting of the RunSpec, in value and in kind."""
    edges, wanted = _edges(case), case.runspec.service.expect
    settings = edges[1].settings if edges else None
    if settings is None or not wanted:
        return False, True
    found = [(settings.get(key), value) for key, value in wanted.items() if key in settings]
    is_wrong = len(found) < len(wanted) or any(
        have is not None and (type(have) is not type(want) or have != want) for have, want in found
    )
    return is_wrong, any(have is None for have, _ in found)


def kv_capacity(case: Case) -> Finding:
    """P2.3: every rank holds what the profile asks for, and its sequences of a wave at once."""
    edges, profile = _edges(case), case.runspec.profile
    capacities = edges[1].kv_tokens if edges else None
    if capacities is None or len(capacities) != profile.data_parallel_size:
        return False, True
    at_once = -(-case.concurrency // profile.data_parallel_size)
    longest = max(profile.warmup.output_tokens, profile.measured.output_tokens)
    wanted = max(
        case.runspec.service.kv_tokens_min, at_once * (profile.measured.input_tokens + longest)
    )
    return any(one is not None and one < wanted for one in capacities), None in capacities


def observer(case: Case) -> Finding:
    """P2.4a: the cost of reading the counters was measured."""
    edges = _edges(case)
    return False, edges is None or edges[1].observer_cost_ns is None


def profiler_off(case: Case) -> Finding:
    """P2.5: no profiler was on."""
    edges = _edges(case)
    is_on = edges[1].is_profiler_on if edges else None
    return is_on is True, is_on is None


def deployment(case: Case) -> Finding:
    """P2.1: the deployed files are those of the RunSpec."""
    edges = _edges(case)
    return _differences(edges[1].deployed_differences if edges else None)


def weights(case: Case) -> Finding:
    """P2.1: the weights are those of the RunSpec."""
    edges = _edges(case)
    return _differences(edges[1].weights_differences if edges else None)


def device_preflight(case: Case) -> Finding:
    """P2.1: the devices were healthy and nobody else's."""
    edges = _edges(case)
    return _differences(edges[1].device_problems if edges else None)


def _differences(found: tuple[str, ...] | None) -> Finding:
    return bool(found), found is None


def host_load(case: Case) -> Finding:
    """P2.1: load and steal of the host are on record."""
    edges = _edges(case)
    host = edges[1].host if edges else None
    return False, host is None or None in (host.load_milli, host.steal_ppm)


def host_throttling(case: Case) -> Finding:
    """P2.1: throttling and temperature of the host are on record."""
    edges = _edges(case)
    host = edges[1].host if edges else None
    return False, host is None or None in (host.throttle_events, host.temperature_milli_c)


def not_on_record(case: Case) -> Finding:
    """No file of a run tells it, so where it is required it is unknown."""
    return False, True
