"""Planted faults: how to spoil one attempt of a draft, and the codes that it must then have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.strategies import runs, wire
from tests.strategies.runs import AttemptDraft, RequestDraft, RunDraft

PLACE = ("B1", "C4")
PROMPT_TOKENS, OUTPUT_TOKENS = runs.INPUT_TOKENS, runs.OUTPUT_TOKENS["measured"]
NO_FIGURES = {"clock-unknown", "output-length-unknown"}
"""What follows from a request without figures: its stamps and its length are unknown."""


@dataclass(frozen=True)
class Fault:
    """spoil: changes the draft's attempt at PLACE. codes: all that the level must have."""

    name: str
    spoil: Callable[[RunDraft, AttemptDraft], None]
    codes: frozenset[str]


FAULTS: list[Fault] = []


def fault(*codes: str, name: str | None = None) -> Callable[[Callable[..., None]], Any]:
    """Register a function as a fault; its name is the fault's id."""

    def add(spoil: Callable[..., None]) -> Callable[..., None]:
        shown = name or spoil.__name__.replace("_", "-")
        FAULTS.append(Fault(shown, spoil, frozenset(codes)))
        return spoil

    return add


def victim(attempt: AttemptDraft) -> RequestDraft:
    """Slot 2 of the measured wave."""
    return attempt.wave("measured").requests[2]


def answer(request: RequestDraft, raw: bytes, *, fin: bool = True) -> None:
    """Give the request other bytes: the first in the first read, the rest in the last."""
    first_ns, end_ns = request.reads[0][0], request.reads[-2][0]
    cut = min(request.reads[0][1], len(raw) - 1)
    request.raw = raw
    request.reads = [[first_ns, cut], [end_ns, len(raw) - cut]]
    if fin:
        request.reads.append([end_ns + 5, 0])


def events_of(draft: RunDraft, frames: list[list[int]] | None = None) -> list[bytes]:
    """Events of the victim's good answer: two token frames, usage, `[DONE]`."""
    prompt = draft.banks["measured"][2]
    return wire.stream(prompt, frames or [[10], [11, 12, 13, 14]])


def says(*codes: str, name: str) -> Callable[[Callable[[list[bytes], RunDraft], Any]], Any]:
    """A fault of the stream: the function changes the events in place, or gives raw bytes."""

    def make(change: Callable[[list[bytes], RunDraft], Any]) -> Any:
        def spoil(draft: RunDraft, attempt: AttemptDraft) -> None:
            events = events_of(draft)
            raw = change(events, draft)
            answer(victim(attempt), raw if isinstance(raw, bytes) else wire.chunked(events))

        FAULTS.append(Fault(name, spoil, frozenset(codes)))
        return change

    return make


@fault("outcome-timeout", *NO_FIGURES)
def timeout(draft, attempt):
    one = victim(attempt)
    one.record["outcome"] = "timeout"
    one.reads.pop()


@fault("outcome-reset", *NO_FIGURES)
def reset_in_the_middle(draft, attempt):
    one = victim(attempt)
    one.record["outcome"] = "reset"
    one.raw, one.reads = one.raw[: one.reads[0][1]], one.reads[:1]


@fault("outcome-refused", "clock-unknown", "output-length-unknown")
def refused(draft, attempt):
    one = victim(attempt)
    one.record.update(outcome="refused", connected_ns=None, sent_ns=None)
    one.raw, one.reads = b"", []


@fault("outcome-aborted", "wave-aborted", *NO_FIGURES)
def aborted(draft, attempt):
    attempt.wave("measured").record["aborted"] = "interrupted"
    one = victim(attempt)
    one.record["outcome"] = "aborted"
    one.reads.pop()


@fault(
    "outcome-client-died",
    "wave-aborted",
    "client-stall",
    "client-stall-unknown",
    "barrier-unknown",
    *NO_FIGURES,
)
def client_died(draft, attempt):
    attempt.wave("measured").record.update(aborted="killed", client=None)
    for one in attempt.wave("measured").requests:
        one.record["outcome"] = "client-died"
        one.reads.pop()


@fault("http-status", *NO_FIGURES)
def http_503(draft, attempt):
    answer(victim(attempt), b"HTTP/1.1 503 Unavailable\r\ncontent-length: 2\r\n\r\nno")


@fault("http-framing", *NO_FIGURES)
def not_http(draft, attempt):
    answer(victim(attempt), b"\x16\x03\x01 TLS instead")


@fault("http-framing", *NO_FIGURES)
def bytes_after_the_end(draft, attempt):
    answer(victim(attempt), victim(attempt).raw + b"more")


@fault("http-framing", *NO_FIGURES)
def a_length_in_advance(draft, attempt):
    body = b"".join(events_of(draft))
    head = wire.HEAD + b"content-length: %d\r\n\r\n" % len(body)
    answer(victim(attempt), head + body)


@fault("http-framing", *NO_FIGURES)
def chunk_without_its_end(draft, attempt):
    one = victim(attempt)
    answer(one, one.raw.replace(b"\n\n\r\n", b"\n\nXY", 1))


@fault("early-eof", *NO_FIGURES)
def eof_before_the_last_chunk(draft, attempt):
    answer(victim(attempt), victim(attempt).raw.removesuffix(wire.END))


@fault("early-eof", *NO_FIGURES)
def eof_before_the_head(draft, attempt):
    one = victim(attempt)
    one.raw, one.reads = b"", [[2_000_000, 0]]


@says("sse-malformed", *NO_FIGURES, name="not-json")
def _not_json(events, draft):
    events.insert(1, b"data: {oops\n\n")


@says("sse-malformed", *NO_FIGURES, name="nan-in-a-frame")
def _nan(events, draft):
    events.insert(1, b'data: {"choices":[],"x":NaN}\n\n')


@says("sse-malformed", *NO_FIGURES, name="key-given-twice")
def _twice(events, draft):
    events.insert(1, b'data: {"choices":[],"choices":[]}\n\n')


@says("sse-malformed", *NO_FIGURES, name="invalid-utf8-in-a-comment")
def _utf8(events, draft):
    events.insert(1, b": \xff\n\n")


@says("sse-malformed", *NO_FIGURES, name="unterminated-event")
def _unterminated(events, draft):
    events.append(b"data: {}\n")


@says("error-frame", *NO_FIGURES, name="error-then-done")
def _error(events, draft):
    events[1:] = [wire.event({"error": {"message": "EngineCore"}}), wire.DONE]


@says("error-frame", "early-eof", *NO_FIGURES, name="error-then-cut")
def _error_cut(events, draft):
    return wire.CHUNKED + wire.chunk(wire.event({"object": "error", "message": "x"}))


@says("no-done", *NO_FIGURES, name="no-done")
def _no_done(events, draft):
    events.pop()


@says("after-done", *NO_FIGURES, name="frame-after-done")
def _after(events, draft):
    events.append(wire.event({"choices": []}))


@says("after-done", *NO_FIGURES, name="done-twice")
def _done_twice(events, draft):
    events.append(wire.DONE)


@says(
    "no-token", "finish-reason", "prompt-echo", "usage-mismatch", "clock-unknown", name="no-token"
)
def _no_token(events, draft):
    del events[:2]


@says("token-count", "clock-unknown", name="one-token-more")
def _more(events, draft):
    events[:] = events_of(draft, [[10], [11, 12, 13, 14, 15]])


@says("token-count", "clock-unknown", name="one-token-less")
def _less(events, draft):
    events[:] = events_of(draft, [[10], [11, 12, 13]])


@says("finish-reason", *NO_FIGURES, name="finished-by-stop")
def _stop(events, draft):
    events[1] = wire.event(wire.tokens([11, 12, 13, 14], "stop"))


@says("finish-reason", *NO_FIGURES, name="finish-reason-in-the-usage-frame")
def _late_finish(events, draft):
    events[1] = wire.event(wire.tokens([11, 12, 13, 14]))
    events.insert(2, wire.event(wire.tokens([], "length")))


@says("usage-missing", *NO_FIGURES, name="no-usage")
def _no_usage(events, draft):
    del events[2]


@says("usage-missing", *NO_FIGURES, name="usage-on-two-frames")
def _cumulative(events, draft):
    events.insert(2, events[2])


@says("usage-mismatch", *NO_FIGURES, name="a-shorter-prompt-in-usage")
def _prompt_short(events, draft):
    events[2] = wire.event(wire.usage(PROMPT_TOKENS - 1, OUTPUT_TOKENS))


@says("usage-mismatch", *NO_FIGURES, name="usage-counts-true")
def _true(events, draft):
    value = wire.usage(PROMPT_TOKENS, OUTPUT_TOKENS)
    value["usage"]["prompt_tokens"] = 3.0
    events[2] = wire.event(value)


@says("prompt-echo", *NO_FIGURES, name="no-echo")
def _no_echo(events, draft):
    events[0] = wire.event(wire.tokens([10]))


@says("prompt-echo", *NO_FIGURES, name="another-prompt-echoed")
def _other_echo(events, draft):
    events[0] = wire.event(wire.tokens([10], None, [1, 2, 3]))


@says("cached-tokens", *NO_FIGURES, name="cached-tokens")
def _cached(events, draft):
    events[2] = wire.event(wire.usage(PROMPT_TOKENS, OUTPUT_TOKENS, 1))


@says("cached-unknown", *NO_FIGURES, name="cached-tokens-not-told")
def _cached_unknown(events, draft):
    events[2] = wire.event(wire.usage(PROMPT_TOKENS, OUTPUT_TOKENS, None))


@says("choice", *NO_FIGURES, name="two-choices")
def _choices(events, draft):
    value = wire.tokens([11, 12, 13, 14], "length")
    value["choices"].append(dict(value["choices"][0], index=1, token_ids=[]))
    events[1] = wire.event(value)


@says("choice", *NO_FIGURES, name="index-1")
def _index(events, draft):
    value = wire.tokens([11, 12, 13, 14], "length")
    value["choices"][0]["index"] = 1
    events[1] = wire.event(value)


@fault("clock", "output-length-unknown")
def a_read_before_sent(draft, attempt):
    victim(attempt).reads[0][0] = victim(attempt).record["sent_ns"] - 1


@fault("clock", "output-length-unknown")
def reads_that_go_back(draft, attempt):
    one = victim(attempt)
    one.reads[1][0] = one.reads[0][0] - 1


@fault("reads-mismatch", *NO_FIGURES)
def a_byte_more_than_read(draft, attempt):
    victim(attempt).raw += b"x"


@fault("reads-mismatch", *NO_FIGURES)
def fin_without_its_read(draft, attempt):
    victim(attempt).reads.pop()


@fault("request-mismatch", *NO_FIGURES)
def another_temperature(draft, attempt):
    one = victim(attempt)
    one.sent = one.sent.replace(b'"temperature":0', b'"temperature":1')


@fault("request-mismatch", *NO_FIGURES)
def another_port(draft, attempt):
    one = victim(attempt)
    one.sent = one.sent.replace(b"127.0.0.1:8001", b"127.0.0.1:8009")


@fault("request-mismatch", *NO_FIGURES)
def another_rank(draft, attempt):
    """The header and the record agree, and both are wrong for the slot."""
    one = victim(attempt)
    one.record["rank"] = 1
    one.sent = one.sent.replace(b"parallel-rank: 0", b"parallel-rank: 1")


@fault("request-mismatch")
def another_rank_on_record(draft, attempt):
    victim(attempt).record["rank"] = 1


@fault("wave-count")
def a_slot_is_missing(draft, attempt):
    attempt.wave("measured").requests.pop(2)


@fault("wave-count", "prompt-order", *NO_FIGURES)
def a_slot_too_many(draft, attempt):
    extra = runs.request_draft(draft, 8001, "measured", 4, 1000, "one-more")
    attempt.wave("measured").requests.append(extra)


@fault(
    "wave-count",
    "wave-order",
    "metrics-missing",
    "foreign-traffic-unknown",
    "preemptions-unknown",
    "prefix-hits-unknown",
    "rank-routing-unknown",
    "service-errors-unknown",
    "token-counters-unknown",
)
def no_measured_wave(draft, attempt):
    attempt.waves.pop()


@fault("wave-order")
def measured_before_the_warmup_is_over(draft, attempt):
    attempt.waves[1].record["origin_ns"] = attempt.waves[0].record["origin_ns"]


@fault("wave-aborted")
def wave_broken_off(draft, attempt):
    attempt.wave("warmup").record["aborted"] = "made up"


@fault("prompt-order", "request-mismatch", "prompt-echo", *NO_FIGURES)
def two_prompts_swapped(draft, attempt):
    first, second = (attempt.wave("measured").requests[n] for n in (1, 2))
    first.sent, second.sent = second.sent, first.sent
    first.raw, second.raw = second.raw, first.raw
    for one, index in ((first, 2), (second, 1)):
        prompt = draft.banks["measured"][index]
        one.record.update(prompt_index=index, prompt_sha256=runs.sha256(runs.canonical(prompt)))


@fault("salt-reused")
def salt_of_an_earlier_level(draft, attempt):
    one, earlier = victim(attempt), draft.attempt("B1", "C1").waves[0].requests[0]
    salt = earlier.record["cache_salt"]
    one.sent = one.sent.replace(one.record["cache_salt"].encode(), salt.encode())
    length = len(one.sent.partition(b"\r\n\r\n")[2])
    assert b"Content-Length: %d\r\n" % length in one.sent
    one.record["cache_salt"] = salt


@fault("send-skew")
def one_start_too_late(draft, attempt):
    one, late = victim(attempt), 1_000_001
    for name in ("start_ns", "connected_ns", "sent_ns"):
        one.record[name] += late
    one.reads = [[t_ns + late, count] for t_ns, count in one.reads]


@fault("client-stall")
def client_stood_still(draft, attempt):
    attempt.wave("measured").record["client"]["stall_ns_max"] = 1_000_001


@fault("barrier")
def barrier_too_late(draft, attempt):
    attempt.wave("measured").record["client"]["barrier_wait_ns"] = 60 * runs.SECOND + 1


@fault("outcome-timeout")
def slower_than_the_timeout(draft, attempt):
    one = victim(attempt)
    one.reads[1][0] = one.reads[2][0] = one.record["start_ns"] + 5 * runs.SECOND + 1


@fault("metrics-missing")
def a_snapshot_too_many(draft, attempt):
    attempt.metrics.append(attempt.metrics[-1])


@fault(
    "metrics-missing",
    "foreign-traffic-unknown",
    "preemptions-unknown",
    "prefix-hits-unknown",
    "rank-routing-unknown",
    "service-errors-unknown",
    "token-counters-unknown",
)
def a_snapshot_missing(draft, attempt):
    attempt.metrics.pop()


@fault(
    "metrics-missing",
    "foreign-traffic-unknown",
    "preemptions-unknown",
    "prefix-hits-unknown",
    "rank-routing-unknown",
    "service-errors-unknown",
    "token-counters-unknown",
)
def a_snapshot_that_is_none(draft, attempt):
    attempt.metrics[1] = b"<html>502</html>\n"


def _count(name: str, by: int, edge: int = -1) -> Callable[[RunDraft, AttemptDraft], None]:
    def spoil(draft: RunDraft, attempt: AttemptDraft) -> None:
        counters = attempt.metrics[edge]
        assert isinstance(counters, dict)
        counters[0][name] += by

    return spoil


FAULTS += [
    Fault("preempted", _count("preemptions", 1), frozenset({"preemptions"})),
    Fault("prefix-hit", _count("hits", 1), frozenset({"prefix-hits"})),
    Fault(
        "someone-elses-request",
        _count("requests", 1),
        frozenset({"foreign-traffic", "rank-routing"}),
    ),
    Fault(
        "a-request-not-served",
        _count("requests", -1),
        frozenset({"foreign-traffic", "rank-routing"}),
    ),
    Fault("in-flight-at-the-edge", _count("running", 1), frozenset({"foreign-traffic"})),
    Fault("waiting-at-the-first-edge", _count("waiting", 1, 0), frozenset({"foreign-traffic"})),
    Fault("prompt-tokens-of-others", _count("prompt_tokens", 1), frozenset({"token-counters"})),
    Fault("output-tokens-lost", _count("output_tokens", -1), frozenset({"token-counters"})),
    Fault("failed-inside", _count("failed", 1), frozenset({"service-errors"})),
    Fault(
        "counter-went-back",
        _count("preemptions", 5, 0),
        frozenset({"preemptions", "service-changed"}),
    ),
]


def _prove(**changes: Any) -> Callable[[RunDraft, AttemptDraft], None]:
    return lambda draft, attempt: attempt.proofs[-1].update(changes)


def _identify(**changes: Any) -> Callable[[RunDraft, AttemptDraft], None]:
    return lambda draft, attempt: attempt.proofs[-1]["identity"].update(changes)


FAULTS += [
    Fault("service-died", _prove(is_healthy=False), frozenset({"service-errors"})),
    Fault("health-not-asked", _prove(is_healthy=None), frozenset({"service-errors-unknown"})),
    Fault("process-restarted", _prove(process_start="78"), frozenset({"service-changed"})),
    Fault("process-unknown", _prove(process_start=None), frozenset({"restarts-unknown"})),
    Fault("another-command", _identify(command_sha256="0"), frozenset({"service-changed"})),
    Fault("identity-unknown", _identify(port_owners=None), frozenset({"service-changed"})),
    Fault(
        "setting-coerced",
        _prove(settings={**runs.SETTINGS, "additional_config.enable_fused_mc2": True}),
        frozenset({"effective-config"}),
    ),
    Fault(
        "setting-of-another-value",
        _prove(settings={**runs.SETTINGS, "cache_config.block_size": 16}),
        frozenset({"effective-config"}),
    ),
    Fault("setting-dropped", _prove(settings={}), frozenset({"effective-config"})),
    Fault("settings-not-read", _prove(settings=None), frozenset({"effective-config-unknown"})),
    Fault("little-kv", _prove(kv_tokens=[63]), frozenset({"kv-capacity"})),
    Fault("kv-not-read", _prove(kv_tokens=None), frozenset({"kv-capacity-unknown"})),
    Fault("profiler-on", _prove(is_profiler_on=True), frozenset({"profiler-off"})),
    Fault("profiler-unknown", _prove(is_profiler_on=None), frozenset({"profiler-off-unknown"})),
    Fault("deployed-otherwise", _prove(deployed_differences=["a.py"]), frozenset({"deployment"})),
    Fault("weights-changed", _prove(weights_differences=["w"]), frozenset({"weights"})),
    Fault("cost-not-measured", _prove(observer_cost_ns=None), frozenset({"observer-unknown"})),
    Fault("host-not-read", _prove(host=None), frozenset({"host-load-unknown"})),
]


@fault(
    "service-identity-unknown",
    "restarts-unknown",
    "service-errors-unknown",
    "effective-config-unknown",
    "kv-capacity-unknown",
    "observer-unknown",
    "profiler-off-unknown",
    "deployment-unknown",
    "weights-unknown",
    "host-load-unknown",
)
def no_proof(draft, attempt):
    attempt.proofs.clear()


@fault("attempt")
def a_first_attempt_with_a_predecessor(draft, attempt):
    attempt.record["previous"] = "attempt-0"
