"""The validity rules over one stored attempt, and the reason codes that they give (P2 to P4).

A rule looks at a Case and says what is wrong and what is unknown. Wrong gives the rule's code,
unknown alone gives `<id>-unknown`: unknown is never valid. A profile may excuse a rule with a
reason; what the bytes of a request give is never excused.
"""

from collections.abc import Callable
from dataclasses import dataclass

from . import rules_counters as counters
from . import rules_service as service
from . import rules_waves as waves
from .case import Case


@dataclass(frozen=True)
class Rule:
    """One rule. code: for what is wrong, the id where None. code_unknown: `<id>-unknown` where
    None. check gives (is something wrong, is something unknown)."""

    id: str
    check: Callable[[Case], tuple[bool, bool]]
    code: str | None = None
    code_unknown: str | None = None


def level_codes(case: Case) -> tuple[str, ...]:
    """Everything that makes the attempt invalid, sorted; empty for a valid one."""
    codes = set(case.codes) | _wave_codes(case)
    for rule in RULES:
        if not case.runspec.profile.is_required(rule.id):
            continue
        is_wrong, is_unknown = rule.check(case)
        if is_wrong:
            codes.add(rule.code or rule.id)
        elif is_unknown:
            codes.add(rule.code_unknown or f"{rule.id}-unknown")
    codes |= _outcomes(case)
    return tuple(sorted(codes))


def _wave_codes(case: Case) -> set[str]:
    """What no profile can excuse: the waves are those of P3."""
    codes = set()
    attempt, limits = case.attempt, case.runspec.profile.limits
    if tuple(wave.kind for wave in attempt.waves) != case.kinds or _overlap(case):
        codes.add("wave-order")
    for wave in attempt.waves:
        starts = [one.start_ns for one in wave.requests if one.start_ns is not None]
        if wave.aborted is not None:
            codes.add("wave-aborted")
        if sorted(one.slot for one in wave.requests) != list(range(case.concurrency)):
            codes.add("wave-count")
        if starts and max(starts) - min(starts) > limits.send_skew_ns:
            codes.add("send-skew")
        if wave.client is None or wave.client.stall_ns_max > limits.stall_ns:
            codes.add("client-stall")
    if waves.prompts(case)[0]:
        codes.add("prompt-order")
    if waves.salts(case)[0]:
        codes.add("salt-reused")
    return codes


def _overlap(case: Case) -> bool:
    """A wave began before the last byte of the run before it had come."""
    ends = (case.context.newest_ns, *case.ends)
    return any(wave.origin_ns < end for end, wave in zip(ends, case.attempt.waves, strict=False))


def _outcomes(case: Case) -> set[str]:
    """How the connections ended, also of requests that no bank has a prompt for."""
    return {
        f"outcome-{request.outcome}"
        for _, _, request in case.requests
        if request.outcome != "fin"
        and case.runspec.profile.is_required(
            "timeouts" if request.outcome == "timeout" else "transport"
        )
    }


def service_errors(case: Case) -> tuple[bool, bool]:
    """Neither a counter nor the health check shows an error outside of the streams."""
    is_failed, is_unread = counters.moved("requests_failed", _none)(case)
    is_ill, is_unknown = service.service_errors(case)
    return is_failed or is_ill, is_unread or is_unknown


def _none(moved: int) -> bool:
    return moved == 0


RULES = (
    Rule("wave-count", waves.wave_count),
    Rule("wave-order", waves.wave_order),
    Rule("wave-complete", waves.wave_complete, "wave-aborted"),
    Rule("prompt-order", waves.prompts),
    Rule("salts", waves.salts, "salt-reused"),
    Rule("rank-header", waves.ranks, "request-mismatch"),
    Rule("request-bytes", waves.said()),
    Rule("barrier", waves.barrier),
    Rule("send-skew", waves.send_skew),
    Rule("client-stall", waves.client_stall),
    Rule("transport", waves.said()),
    Rule("timeouts", waves.timeouts, "outcome-timeout"),
    Rule("stream-framing", waves.said()),
    Rule("error-frame", waves.said()),
    Rule("prompt-echo", waves.said()),
    Rule("output-length", waves.output_length),
    Rule("usage", waves.said()),
    Rule("finish-reason", waves.said()),
    Rule("cached-tokens", waves.said()),
    Rule("clock", waves.clock),
    Rule("metrics", counters.metrics, code_unknown="metrics-missing"),
    Rule("foreign-traffic", counters.foreign),
    Rule("token-counters", counters.tokens),
    Rule("rank-routing", counters.routing),
    Rule("preemptions", counters.moved("preemptions", _none)),
    Rule("prefix-hits", counters.moved("prefix_hit_tokens", _none)),
    Rule("service-errors", service_errors),
    Rule("restarts", service.restarts, "service-changed"),
    Rule("draft-acceptance", counters.drafts),
    Rule("graph-replay", counters.replays),
    Rule("attempt", service.attempt),
    Rule("device-preflight", service.device_preflight),
    Rule("deployment", service.deployment),
    Rule("weights", service.weights),
    Rule("effective-config", service.effective_config),
    Rule("kv-capacity", service.kv_capacity),
    Rule("service-identity", service.service_identity, "service-changed"),
    Rule("observer", service.observer),
    Rule("profiler-off", service.profiler_off),
    Rule("fused-mc2", service.not_on_record),
    Rule("flashcomm", service.not_on_record),
    Rule("host-load", service.host_load),
    Rule("host-throttling", service.host_throttling),
)
"""Every rule that decides on a level. `candidate-path` decides on the candidate alone (P7.3)."""
