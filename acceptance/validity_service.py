"""Validity rules on the service, its identity and its host: P2, P3.7, P4.1, P7.3."""

from collections.abc import Mapping

from acceptance.evidence import Checked, LevelEvidence, Rule, Setting, rule, settle


@rule("attempt", "P3.7a", "attempt previous previous_valid previous_reason", recomputable=True)
def attempt(evidence: LevelEvidence) -> Checked:
    """A repeated level follows an invalid attempt, is linked to it and says why."""
    number = evidence.attempt
    if number == 1:
        has_link = evidence.previous is not None or evidence.previous_valid is not None
        invalid = ["a first attempt has no predecessor"] if has_link else []
        return settle(invalid, [], "first attempt")
    invalid = [] if number > 1 else [f"attempt {number} does not exist"]
    unknown = []
    if evidence.previous_valid is None:
        unknown.append("not known whether the attempt before was invalid")
    elif evidence.previous_valid:
        invalid.append("the attempt before was valid and may not be repeated")
    if not evidence.previous:
        invalid.append("no link to the attempt before")
    if not evidence.previous_reason:
        invalid.append("no reason for a new attempt")
    return settle(invalid, unknown, f"attempt {number}, after an invalid one")


@rule("observer", "P2.4a", "window_reads observer_cost_ns")
def observer(evidence: LevelEvidence) -> Checked:
    """Nothing read the service inside a window, and the cost of a read was measured."""
    invalid, unknown = [], []
    if evidence.window_reads is None:
        unknown.append("not known whether anything read the service inside a window")
    elif evidence.window_reads:
        invalid.append(f"{evidence.window_reads} reads inside a window")
    if evidence.observer_cost_ns is None:
        unknown.append("the cost of a read was not measured")
    return settle(invalid, unknown, f"a read costs {evidence.observer_cost_ns} ns, at edges only")


@rule("service-identity", "P4.1", "identity_before identity_after expected", recomputable=True)
def service_identity(evidence: LevelEvidence) -> Checked:
    """The service is the one that the RunSpec names, before and after the level."""
    invalid: list[str] = []
    unknown: list[str] = []
    before, after = evidence.identity_before, evidence.identity_after
    for when, proof in (("before", before), ("after", after)):
        if not proof:
            unknown.append(f"no proof of the service {when} the level")
            continue
        unknown += [f"{key} unknown {when} the level" for key, v in proof.items() if v is None]
        for key, value in evidence.expected.identity.items():
            if key not in proof:
                unknown.append(f"{key} not proved {when} the level")
            elif proof[key] is not None and proof[key] != value:
                invalid.append(f"{key} is {proof[key]} {when} the level, not {value}")
    if before and after:
        changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        invalid += [f"{key} changed during the level" for key in changed]
    return settle(invalid, unknown, "same service before and after", ("service-changed",))


@rule("effective-config", "P2.2", "settings expected")
def effective_config(evidence: LevelEvidence) -> Checked:
    """The running service really has every setting of the RunSpec; `1` is not `true`."""
    if evidence.settings is None:
        return settle([], ["the effective configuration was not read back"], "")
    if not evidence.expected.settings:
        return settle([], ["no setting is frozen that could be compared"], "")
    invalid, unknown = [], []
    for key, wanted in evidence.expected.settings.items():
        if key not in evidence.settings:
            invalid.append(f"{key} was dropped")
            continue
        found = evidence.settings[key]
        if found is None:
            unknown.append(f"{key} is unknown")
        elif not is_same_setting(found, wanted):
            invalid.append(f"{key} is {found!r}, asked {wanted!r}")
    return settle(invalid, unknown, f"{len(evidence.expected.settings)} settings in effect")


def is_same_setting(found: Setting, wanted: Setting) -> bool:
    """Equal in value and in kind: an option coerced from 1 to true is another option."""
    return type(found) is type(wanted) and found == wanted


@rule("kv-capacity", "P2.3", "kv_tokens expected")
def kv_capacity(evidence: LevelEvidence) -> Checked:
    """Every rank has the KV capacity that the profile asks for, and its sequences fit at once."""
    expected = evidence.expected
    sequences = -(-expected.concurrency // expected.data_parallel_size)
    longest = max(expected.output_tokens.values(), default=0)
    wanted = max(expected.kv_tokens_min, sequences * (expected.input_tokens + longest))
    capacities = evidence.kv_tokens
    if capacities is None or len(capacities) != expected.data_parallel_size:
        return settle([], ["the KV capacity of each rank was not read"], "")
    unknown = [f"rank {rank}: unknown" for rank, tokens in enumerate(capacities) if tokens is None]
    invalid = [
        f"rank {rank}: {tokens} KV tokens, {wanted} needed"
        for rank, tokens in enumerate(capacities)
        if tokens is not None and tokens < wanted
    ]
    return settle(invalid, unknown, f"KV tokens by rank: {', '.join(map(str, capacities))}")


@rule("fused-mc2", "P2.4", "fused_mc2_calls")
def fused_mc2(evidence: LevelEvidence) -> Checked:
    """Fused MC2 was really taken, by the target's MoE and by the draft's."""
    return _calls(evidence.fused_mc2_calls, ("target", "draft"), "fused MC2")


@rule("flashcomm", "P2.4", "flashcomm_calls")
def flashcomm(evidence: LevelEvidence) -> Checked:
    """The FlashComm1 path was really taken."""
    return _calls(evidence.flashcomm_calls, (), "FlashComm1")


def _calls(calls: Mapping[str, int | None] | None, wanted: tuple[str, ...], name: str) -> Checked:
    if not calls:
        return settle([], [f"no counter of {name} was read"], "")
    names = sorted({*calls, *wanted})
    unknown = [f"{name} {key}: unknown" for key in names if calls.get(key) is None]
    invalid = [
        f"{name} {key}: {count} calls"
        for key in names
        if (count := calls.get(key)) is not None and count <= 0
    ]
    return settle(invalid, unknown, f"{name} taken: {', '.join(names)}")


@rule("candidate-path", "P7.3", "paths_claimed path_calls expected", decides="candidate")
def candidate_path(evidence: LevelEvidence) -> Checked:
    """Every path that the candidate claims ran on every worker inside the measured window."""
    if evidence.paths_claimed is None:
        return settle([], ["not known which paths the candidate claims"], "")
    if not evidence.paths_claimed:
        return settle([], [], "no candidate claims a path")
    invalid, unknown = [], []
    wanted = evidence.expected.worker_count
    for path in evidence.paths_claimed:
        workers = (evidence.path_calls or {}).get(path)
        if workers is None:
            unknown.append(f"{path}: no counter")
            continue
        ran = sum(1 for calls in workers.values() if calls is not None and calls > 0)
        if not 0 < wanted <= len(workers) or None in workers.values():
            unknown.append(f"{path}: counters of {len(workers)} of {wanted} workers")
        if any(calls is not None and calls <= 0 for calls in workers.values()):
            invalid.append(f"{path}: ran on {ran} of {wanted} workers")
    return settle(invalid, unknown, f"{', '.join(evidence.paths_claimed)}: ran on all workers")


@rule("profiler-off", "P2.5", "is_profiler_on")
def profiler_off(evidence: LevelEvidence) -> Checked:
    """No profiler was attached while the level was measured."""
    if evidence.is_profiler_on is None:
        return settle([], ["not known whether a profiler was on"], "")
    return settle(["a profiler was on"] if evidence.is_profiler_on else [], [], "profiler off")


@rule("deployment", "P2.1", "deployed_differences")
def deployment(evidence: LevelEvidence) -> Checked:
    """Every deployed file has the hash that the RunSpec names; the git HEAD proves nothing."""
    return _files(evidence.deployed_differences, "deployed files")


@rule("weights", "P2.1", "weights_differences")
def weights(evidence: LevelEvidence) -> Checked:
    """Every weight file has the hash that the RunSpec names."""
    return _files(evidence.weights_differences, "weights")


def _files(differences: tuple[str, ...] | None, name: str) -> Checked:
    if differences is None:
        return settle([], [f"{name} were not compared"], "")
    return settle([f"{path} differs" for path in differences], [], f"{name} as frozen")


@rule("device-preflight", "P2.1", "device_problems")
def device_preflight(evidence: LevelEvidence) -> Checked:
    """The devices are healthy and nobody else's before anything starts."""
    if evidence.device_problems is None:
        return settle([], ["the devices were not looked at"], "")
    return settle(list(evidence.device_problems), [], "devices healthy and free")


@rule("host-load", "P2.1", "host")
def host_load(evidence: LevelEvidence) -> Checked:
    """Load and steal of the host are on record; they are reported and decide nothing."""
    host = evidence.host
    readings = {
        "load/1000": host.load_milli if host else None,
        "steal ppm": host.steal_ppm if host else None,
    }
    return _reported(readings)


@rule("host-throttling", "P2.1", "host")
def host_throttling(evidence: LevelEvidence) -> Checked:
    """Throttling and temperature of the host are on record; they are reported, nothing more."""
    host = evidence.host
    readings = {
        "throttle events": host.throttle_events if host else None,
        "temperature m°C": host.temperature_milli_c if host else None,
    }
    return _reported(readings)


def _reported(readings: Mapping[str, int | None]) -> Checked:
    unknown = [f"{name} not readable" for name, value in readings.items() if value is None]
    return settle([], unknown, ", ".join(f"{name} {value}" for name, value in readings.items()))


SERVICE_RULES: tuple[Rule, ...] = (
    attempt,
    device_preflight,
    deployment,
    weights,
    effective_config,
    kv_capacity,
    service_identity,
    observer,
    profiler_off,
    fused_mc2,
    flashcomm,
    host_load,
    host_throttling,
    candidate_path,
)
