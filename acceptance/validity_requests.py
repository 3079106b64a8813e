"""Validity rules on what was sent and what came back: P3, P4.0 and P4.1 on requests and waves."""

from collections import Counter
from collections.abc import Iterator

from acceptance.evidence import Checked, LevelEvidence, RequestEvidence, Rule, rule, settle
from acceptance.protocol import data_parallel_rank

STREAM_CODES = {
    "request-bytes": {"request-mismatch"},
    "prompt-echo": {"prompt-echo"},
    "output-length": {"no-token", "token-count"},
    "usage": {"usage-missing", "usage-mismatch"},
    "finish-reason": {"finish-reason"},
    "cached-tokens": {"cached-tokens", "cached-unknown"},
    "error-frame": {"error-frame"},
    "clock": {"clock"},
    "stream-framing": {
        "http-status",
        "http-framing",
        "early-eof",
        "sse-malformed",
        "no-done",
        "after-done",
        "choice",
        "reads-mismatch",
    },
}
"""Rule id -> the codes of a request's bytes that break it. What stands nowhere else breaks
`stream-framing`, so that a new code can't slip through."""

_ELSEWHERE = set().union(*(v for k, v in STREAM_CODES.items() if k != "stream-framing"))


def _each(evidence: LevelEvidence) -> Iterator[tuple[str, str, RequestEvidence]]:
    """(wave, name for people, request) of the attempt; nothing when the waves are unknown."""
    for wave in evidence.waves or ():
        for request in wave.requests:
            yield wave.kind, f"{wave.kind} slot {request.slot}", request


def _unparsed(evidence: LevelEvidence) -> list[str]:
    """Why the codes of the streams are not, or not all, known."""
    if not evidence.waves:
        return ["no wave on record"]
    return [f"{name}: bytes not parsed" for _, name, r in _each(evidence) if r.codes is None]


def _stream(evidence: LevelEvidence, id: str, fine: str) -> Checked:
    """A rule that holds when no request shows one of its codes."""
    invalid, found = [], set()
    for _, name, request in _each(evidence):
        for code in request.codes or ():
            is_mine = code in STREAM_CODES[id]
            if id == "stream-framing":
                is_other = code in _ELSEWHERE or code.startswith("outcome-")
                is_mine = not is_other
            if is_mine:
                found.add(code)
                invalid.append(f"{name}: {code}")
    return settle(invalid, _unparsed(evidence), fine, tuple(sorted(found)))


@rule("wave-count", "P3.2", "waves expected", recomputable=True)
def wave_count(evidence: LevelEvidence) -> Checked:
    """Each wave holds exactly the slots 0 to C-1, once each."""
    if evidence.waves is None:
        return settle([], ["no wave on record"], "")
    invalid = []
    wanted = range(evidence.expected.concurrency)
    for kind in evidence.expected.waves:
        waves = [wave for wave in evidence.waves if wave.kind == kind]
        slots = Counter(request.slot for wave in waves for request in wave.requests)
        invalid += [f"{kind} slot {slot} missing" for slot in wanted if not slots[slot]]
        invalid += [f"{kind} slot {slot} sent {n} times" for slot, n in slots.items() if n > 1]
        invalid += [f"{kind} slot {slot} is surplus" for slot in slots if slot not in wanted]
    return settle(invalid, [], f"{len(wanted)} slots in each wave", ("wave-count",))


@rule("wave-order", "P3.2", "waves expected", recomputable=True)
def wave_order(evidence: LevelEvidence) -> Checked:
    """One warm-up wave is over, to its last byte, before one measured wave begins."""
    if evidence.waves is None:
        return settle([], ["no wave on record"], "")
    kinds = tuple(wave.kind for wave in evidence.waves)
    if kinds != evidence.expected.waves:
        return settle([f"waves are {', '.join(kinds) or 'none'}"], [], "", ("wave-order",))
    if kinds == ("measured",):
        return settle([], [], "one measured wave: the service was warmed in its first round")
    warmup, measured = evidence.waves
    ends = [request.end_ns for request in warmup.requests]
    starts = [request.start_ns for request in measured.requests]
    known_ends = [end for end in ends if end is not None]
    known_starts = [start for start in starts if start is not None]
    origins = (warmup.origin_ns, measured.origin_ns)
    is_known = all(text is not None and text.isdecimal() for text in origins)
    unknown = [] if is_known else ["the origin of a wave is unknown"]
    if len(known_ends) < len(ends) or len(known_starts) < len(starts) or not ends or not starts:
        unknown.append("an end of the warm-up or a start of the measured wave is unknown")
    invalid = []
    if is_known and known_ends and known_starts:
        gap = int(measured.origin_ns or 0) + min(known_starts)
        gap -= int(warmup.origin_ns or 0) + max(known_ends)
        if gap < 0:
            invalid.append(f"the measured wave began {-gap} ns before the warm-up was over")
    return settle(invalid, unknown, "warm-up, then measured", ("wave-order",))


@rule("prompt-order", "P3.4", "waves expected", recomputable=True)
def prompt_order(evidence: LevelEvidence) -> Checked:
    """Slot i sends prompt i of its wave's bank, and no two prompts are equal."""
    invalid, unknown = [], _waves_unknown(evidence)
    banks = evidence.expected.prompts
    if banks is None:
        unknown.append("the hashes of the banks are unknown")
    for kind, name, request in _each(evidence):
        if request.prompt_index != request.slot:
            invalid.append(f"{name}: prompt {request.prompt_index}")
        bank = (banks or {}).get(kind)
        if bank is None:
            continue
        wanted = bank[request.slot] if 0 <= request.slot < len(bank) else None
        if wanted != request.prompt_sha256:
            invalid.append(f"{name}: not the prompt of the bank")
    seen = Counter(request.prompt_sha256 for _, _, request in _each(evidence))
    invalid += [f"prompt {digest[:12]} sent {n} times" for digest, n in seen.items() if n > 1]
    return settle(invalid, unknown, "prompts as frozen, all distinct", ("prompt-order",))


def _waves_unknown(evidence: LevelEvidence) -> list[str]:
    return [] if evidence.waves else ["no wave on record"]


@rule("salts", "P3.6", "waves salts_before", recomputable=True)
def salts(evidence: LevelEvidence) -> Checked:
    """Every request carries a cache salt that was never used before."""
    invalid, unknown = [], _waves_unknown(evidence)
    if evidence.salts_before is None:
        unknown.append("the salts of earlier requests are unknown")
    seen = set(evidence.salts_before or ())
    for _, name, request in _each(evidence):
        if not request.cache_salt:
            invalid.append(f"{name}: no salt")
        elif request.cache_salt in seen:
            invalid.append(f"{name}: salt used before")
        seen.add(request.cache_salt)
    return settle(invalid, unknown, "every salt is new", ("salt-reused",))


@rule("send-skew", "P3.6", "waves expected", recomputable=True)
def send_skew(evidence: LevelEvidence) -> Checked:
    """The requests of a wave start together: last start minus first start is within the limit."""
    invalid, unknown = [], _waves_unknown(evidence)
    limit = evidence.expected.send_skew_ns
    skew_max = 0
    for wave in evidence.waves or ():
        starts = [r.start_ns for r in wave.requests if r.start_ns is not None]
        if len(starts) < len(wave.requests) or not starts:
            unknown.append(f"{wave.kind}: a start is unknown")
        skew = max(starts, default=0) - min(starts, default=0)
        skew_max = max(skew_max, skew)
        if skew > limit:
            invalid.append(f"{wave.kind}: starts {skew} ns apart, limit {limit} ns")
    return settle(invalid, unknown, f"starts at most {skew_max} ns apart", ("send-skew",))


@rule("barrier", "P3.6", "waves expected")
def barrier(evidence: LevelEvidence) -> Checked:
    """Every wave passed its barrier within the frozen time."""
    invalid, unknown = [], _waves_unknown(evidence)
    limit = evidence.expected.barrier_timeout_ns
    for wave in evidence.waves or ():
        if wave.barrier_wait_ns is None:
            unknown.append(f"{wave.kind}: the wait at the barrier is unknown")
        elif wave.barrier_wait_ns > limit:
            invalid.append(f"{wave.kind}: waited {wave.barrier_wait_ns} ns, limit {limit} ns")
    return settle(invalid, unknown, "all barriers passed in time")


@rule("client-stall", "P4.0", "waves expected", recomputable=True)
def client_stall(evidence: LevelEvidence) -> Checked:
    """The client itself never stood still longer than the limit while it measured."""
    invalid, unknown = [], _waves_unknown(evidence)
    limit = evidence.expected.stall_ns
    for wave in evidence.waves or ():
        if wave.stall_ns_max is None:
            unknown.append(f"{wave.kind}: the client's worst stall is unknown")
        elif wave.stall_ns_max > limit:
            invalid.append(f"{wave.kind}: stalled {wave.stall_ns_max} ns, limit {limit} ns")
    return settle(invalid, unknown, "no stall over the limit", ("client-stall",))


@rule("wave-complete", "P3.7", "waves", recomputable=True)
def wave_complete(evidence: LevelEvidence) -> Checked:
    """No wave was broken off."""
    invalid, unknown = [], _waves_unknown(evidence)
    for wave in evidence.waves or ():
        if wave.aborted is None:
            unknown.append(f"{wave.kind}: not known whether it was broken off")
        elif wave.aborted:
            invalid.append(f"{wave.kind}: {wave.aborted}")
    return settle(invalid, unknown, "no wave was broken off", ("wave-aborted",))


@rule("transport", "P4.1", "waves", recomputable=True)
def transport(evidence: LevelEvidence) -> Checked:
    """Every connection ended by the peer's FIN: no reset, refusal, abort or dead client."""
    return _outcomes(evidence, is_timeout=False, fine="every connection ended by FIN")


@rule("timeouts", "P3.6", "waves expected", recomputable=True)
def timeouts(evidence: LevelEvidence) -> Checked:
    """No request timed out or took longer than the frozen timeout."""
    found = _outcomes(evidence, is_timeout=True, fine="no request timed out")
    limit = evidence.expected.http_timeout_ns
    late = [
        f"{name}: took {request.end_ns - request.start_ns} ns, limit {limit} ns"
        for _, name, request in _each(evidence)
        if request.end_ns is not None
        and request.start_ns is not None
        and request.end_ns - request.start_ns > limit
    ]
    return settle(late, [], "", ("outcome-timeout",)) if late else found


def _outcomes(evidence: LevelEvidence, *, is_timeout: bool, fine: str) -> Checked:
    invalid, unknown, codes = [], _waves_unknown(evidence), set()
    for _, name, request in _each(evidence):
        said = {code for code in request.codes or () if code.startswith("outcome-")}
        if request.outcome is None:
            unknown.append(f"{name}: how it ended is unknown")
        elif request.outcome != "fin":
            said.add(f"outcome-{request.outcome}")
        for code in sorted(said):
            if (code == "outcome-timeout") == is_timeout:
                invalid.append(f"{name}: {code}")
                codes.add(code)
    return settle(invalid, unknown, fine, tuple(sorted(codes)))


@rule("clock", "P4.0", "waves", recomputable=True)
def clock(evidence: LevelEvidence) -> Checked:
    """start <= connected <= sent <= first <= last token <= end, and no read before sending."""
    found = _stream(evidence, "clock", "all stamps in order")
    invalid, unknown = [], []
    for _, name, r in _each(evidence):
        stamps = (r.start_ns, r.connected_ns, r.sent_ns, r.first_ns, r.last_token_ns, r.end_ns)
        known = [stamp for stamp in stamps if stamp is not None]
        if known != sorted(known) or any(stamp < 0 for stamp in known):
            invalid.append(f"{name}: stamps out of order")
        if len(known) < len(stamps):
            unknown.append(f"{name}: a stamp is unknown")
    if invalid or found.codes:
        return settle([*invalid, *([found.reason] if found.codes else [])], [], "", ("clock",))
    return settle([], unknown, found.reason) if unknown else found


@rule("request-bytes", "P3.5", "waves", recomputable=True)
def request_bytes(evidence: LevelEvidence) -> Checked:
    """What was sent is, byte for byte, what RunSpec, bank, salt and rank give."""
    return _stream(evidence, "request-bytes", "sent as frozen")


@rule("prompt-echo", "P4.1", "waves", recomputable=True)
def prompt_echo(evidence: LevelEvidence) -> Checked:
    """The service says which prompt IDs it got, and they are those that were sent."""
    return _stream(evidence, "prompt-echo", "every prompt arrived as it was sent")


@rule("output-length", "P4.1", "waves expected", recomputable=True)
def output_length(evidence: LevelEvidence) -> Checked:
    """Every request got exactly the asked number of token IDs; frames are not tokens."""
    found = _stream(evidence, "output-length", "every output has the asked length")
    if found.codes:
        return found
    invalid, unknown = [], _unparsed(evidence)
    for kind, name, request in _each(evidence):
        wanted = evidence.expected.output_tokens.get(kind)
        if request.output_tokens is None:
            unknown.append(f"{name}: number of IDs unknown")
        elif request.output_tokens != wanted:
            invalid.append(f"{name}: {request.output_tokens} IDs, asked {wanted}")
    return settle(invalid, unknown, found.reason, ("token-count",))


@rule("usage", "P4.1", "waves", recomputable=True)
def usage(evidence: LevelEvidence) -> Checked:
    """One usage frame a request, whose counts agree with the IDs sent and received."""
    return _stream(evidence, "usage", "usage agrees with the IDs")


@rule("finish-reason", "P3.5", "waves", recomputable=True)
def finish_reason(evidence: LevelEvidence) -> Checked:
    """One finish reason a request, `length`, on the last token frame."""
    return _stream(evidence, "finish-reason", "every request ended by length")


@rule("cached-tokens", "P3.6", "waves", recomputable=True)
def cached_tokens(evidence: LevelEvidence) -> Checked:
    """Every request reports 0 cached tokens; one that reports none is unknown."""
    found = _stream(evidence, "cached-tokens", "no cached token")
    if found.codes == ("cached-unknown",):
        return settle([], [found.reason], "", unknown_codes=found.codes)
    return found


@rule("error-frame", "P4.1", "waves", recomputable=True)
def error_frame(evidence: LevelEvidence) -> Checked:
    """No stream holds an error object, HTTP 200 or not."""
    return _stream(evidence, "error-frame", "no error in a stream")


@rule("stream-framing", "P4.1", "waves", recomputable=True)
def stream_framing(evidence: LevelEvidence) -> Checked:
    """HTTP 200, well-framed to EOF, well-formed events, [DONE] once and last."""
    return _stream(evidence, "stream-framing", "every stream is complete")


@rule("rank-header", "P3.6", "waves expected", recomputable=True)
def rank_header(evidence: LevelEvidence) -> Checked:
    """Slot i asked for data-parallel rank i modulo D."""
    size = evidence.expected.data_parallel_size
    invalid = [
        f"{name}: rank {request.rank} of {size}"
        for _, name, request in _each(evidence)
        if request.rank != data_parallel_rank(request.slot, size)
    ]
    return settle(invalid, _waves_unknown(evidence), "ranks as frozen", ("request-mismatch",))


REQUEST_RULES: tuple[Rule, ...] = (
    wave_count,
    wave_order,
    wave_complete,
    prompt_order,
    salts,
    rank_header,
    request_bytes,
    barrier,
    send_skew,
    client_stall,
    transport,
    timeouts,
    stream_framing,
    error_frame,
    prompt_echo,
    output_length,
    usage,
    finish_reason,
    cached_tokens,
    clock,
)
