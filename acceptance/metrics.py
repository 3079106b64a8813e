"""Stored bytes and stamps -> the figures of P4.0, or the reason codes that forbid them.

Pure. Reason codes: docs/run-directory.md. A request has figures exactly when it has no code.
Codes come in layers: what a cut connection did not bring is not held against the stream.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from acceptance.canonical import canonical, sha256
from acceptance.exact import mean, write
from acceptance.protocol import WAVES
from acceptance.records import Attempt, LevelFigures, Request, RequestFigures, Wave
from acceptance.sse import Frame, Response, frame_response, parse_json, read_frames

Reads = Sequence[tuple[int, int]]
Judged = tuple[RequestFigures | None, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a request had to be: its prompt, the number of output tokens, its bytes."""

    prompt: tuple[int, ...]
    output_tokens: int
    request: bytes


def judge_request(
    raw: bytes, reads: Reads, request: Request, sent: bytes, expected: Expectation
) -> Judged:
    """Judge one request from what was stored of it (P3.5, P4.0, P4.1).

    reads: (t_ns, byte count) in order, ns after the wave's origin; 0 bytes is FIN.
    sent: the stored bytes of the request.
    ValueError when fewer than two output tokens are expected: TPOT is not defined then.
    """
    if expected.output_tokens < 2:
        raise ValueError("TPOT needs at least two output tokens")
    codes = _evidence_codes(raw, reads, request)
    if sent != expected.request:
        codes.add("request-mismatch")
    if "reads-mismatch" in codes:
        return None, frozenset(codes)
    response = frame_response(raw, [count for _, count in reads])
    frames, is_malformed = read_frames(response) if response.status == 200 else ((), False)
    transport = _transport_codes(request, response)
    codes |= transport
    if any(frame.kind == "error" for frame in frames):
        codes.add("error-frame")
    elif not transport:
        if is_malformed or any(frame.kind == "malformed" for frame in frames):
            codes.add("sse-malformed")
        codes |= _content_codes(frames, expected)
    if codes:
        return None, frozenset(codes)
    return _figures(reads, request, response, frames), frozenset()


def _evidence_codes(raw: bytes, reads: Reads, request: Request) -> set[str]:
    """Do bytes, reads and times belong together?"""
    codes: set[str] = set()
    counts = [count for _, count in reads]
    ends_with_fin = bool(counts) and counts[-1] == 0
    if (
        sum(counts) != len(raw)
        or any(count <= 0 for count in counts[:-1])
        or (bool(counts) and counts[-1] < 0)
        or ends_with_fin != (request.outcome == "fin")
    ):
        codes.add("reads-mismatch")
    if reads:
        times = [request.start_ns, request.connected_ns, request.sent_ns, *(t for t, _ in reads)]
        known = [t for t in times if t is not None]
        if len(known) < len(times) or known != sorted(known) or known[0] < 0:
            codes.add("clock")
    return codes


def _transport_codes(request: Request, response: Response) -> set[str]:
    """Did one whole HTTP response of the right kind come?"""
    codes: set[str] = set()
    if request.outcome != "fin":
        codes.add(f"outcome-{request.outcome}")
    if response.problem is not None:
        codes.add(response.problem)
    if response.status not in (None, 200):
        codes.add("http-status")
    elif response.framing == "length":
        # P4.0 knows two ends of a stream; a length that was known before is none.
        codes.add("http-framing")
    return codes


def _content_codes(frames: Sequence[Frame], expected: Expectation) -> set[str]:
    """Is the stream complete, and is it the answer to what was asked?"""
    codes: set[str] = set()
    done = [number for number, frame in enumerate(frames) if frame.kind == "done"]
    if not done:
        codes.add("no-done")
    elif done[0] != len(frames) - 1:
        codes.add("after-done")
    data = [frame for frame in frames if frame.kind == "data"]
    count = sum(len(frame.token_ids) for frame in data)
    if not count:
        codes.add("no-token")
    elif count != expected.output_tokens:
        codes.add("token-count")
    if any(frame.has_other_choice for frame in data):
        codes.add("choice")
    if not _ends_with_length(data):
        codes.add("finish-reason")
    echoes = [frame.prompt_token_ids for frame in data if frame.prompt_token_ids is not None]
    if not echoes or any(echo != expected.prompt for echo in echoes):
        codes.add("prompt-echo")
    usages = [frame.usage for frame in data if frame.usage is not None]
    if len(usages) != 1:
        codes.add("usage-missing")
    else:
        codes |= _usage_codes(usages[0], len(expected.prompt), count)
    return codes


def _ends_with_length(data: Sequence[Frame]) -> bool:
    """Exactly one finish_reason, `length`, on the last frame that carries a token."""
    with_tokens = [frame for frame in data if frame.token_ids]
    with_finish = [frame for frame in data if frame.finish_reason is not None]
    return (
        len(with_finish) == 1
        and with_finish[0].finish_reason == "length"
        and bool(with_tokens)
        and with_finish[0] is with_tokens[-1]
    )


def _usage_codes(usage: Mapping[str, Any], prompt_tokens: int, completion_tokens: int) -> set[str]:
    codes: set[str] = set()
    counts = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if any(not _is_count(usage.get(name), count) for name, count in counts.items()):
        codes.add("usage-mismatch")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if type(cached) is not int:
        codes.add("cached-unknown")
    elif cached != 0:
        codes.add("cached-tokens")
    return codes


def _is_count(value: Any, count: int) -> bool:
    return type(value) is int and value == count


def _figures(
    reads: Reads, request: Request, response: Response, frames: Sequence[Frame]
) -> RequestFigures:
    """P4.0, in integers and fractions of ns. Called for complete requests only."""
    with_tokens = [frame for frame in frames if frame.token_ids]
    assert request.start_ns is not None
    assert response.end_read is not None
    start = request.start_ns
    first, last = reads[with_tokens[0].read][0], reads[with_tokens[-1].read][0]
    end = reads[response.end_read][0]
    token_ids = [one for frame in with_tokens for one in frame.token_ids]
    count, in_first = len(token_ids), len(with_tokens[0].token_ids)
    later = count - in_first
    return RequestFigures(
        slot=request.slot,
        ttft_ns=first - start,
        e2e_ns=end - start,
        output_tokens=count,
        tpot_ns=write(Fraction(end - first, count - 1)),
        tpot_last_token_ns=write(Fraction(last - first, count - 1)),
        tpot_per_later_token_ns=write(Fraction(last - first, later)) if later else None,
        first_frame_tokens=in_first,
        first_ns=first,
        last_token_ns=last,
        end_ns=end,
        token_ids_sha256=sha256(canonical(token_ids)),
    )


def parse_reads(data: bytes) -> tuple[tuple[int, int], ...]:
    """A stored `.reads` file. ValueError when it is not a list of pairs of integers."""
    value = parse_json(data)
    if not isinstance(value, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(type(one) is int for one in pair)
        for pair in value
    ):
        raise ValueError("reads are not a list of [t_ns, byte count]")
    return tuple((t_ns, count) for t_ns, count in value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Above these the client itself spoils a level (frozen in the RunSpec)."""

    send_skew_ns: int
    stall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelExpectation:
    """What a level had to be.

    prompts: for each kind of wave its prompts, of which the first `concurrency` are used.
    output_tokens: for each kind of wave.
    request: the bytes that a request of a kind must have had.
    salts: cache salts used in the run before this attempt (P3.6).
    waves: kinds of the waves in their order; a second round on one service start has no warm-up
        (P3.1).
    """

    concurrency: int
    prompts: Mapping[str, Sequence[Sequence[int]]]
    output_tokens: Mapping[str, int]
    request: Callable[[str, Request], bytes]
    limits: Limits
    salts: Collection[str] = ()
    waves: tuple[str, ...] = WAVES


def judge_level(
    attempt: Attempt,
    load: Callable[[str], bytes],
    expected: LevelExpectation,
    other_codes: Collection[str] = (),
) -> LevelFigures:
    """Judge one attempt of a level from what was stored of it.

    load: bytes of a file by the name that the record gives it.
    other_codes: codes found elsewhere (service, metrics), added to the level's.
    """
    codes = set(other_codes) | level_codes(attempt, load, expected)
    figures: list[RequestFigures] = []
    for wave in attempt.waves:
        for request in wave.requests:
            judged, reasons = judge_stored(wave.kind, request, load, expected)
            codes |= reasons
            if judged is not None and wave.kind == "measured":
                figures.append(judged)
    return level_figures(attempt.round, attempt.level, attempt.attempt, figures, codes)


def judge_stored(
    kind: str, request: Request, load: Callable[[str], bytes], expected: LevelExpectation
) -> Judged:
    """Judge one request of an attempt from its files, which `load` gives by name."""
    if not 0 <= request.slot < expected.concurrency:
        return None, frozenset()  # `wave-count` says it; there is no prompt to compare with.
    return judge_request(
        load(request.raw),
        parse_reads(load(request.reads)),
        request,
        load(request.request),
        Expectation(
            prompt=tuple(expected.prompts[kind][request.slot]),
            output_tokens=expected.output_tokens[kind],
            request=expected.request(kind, request),
        ),
    )


def level_figures(
    round_: str,
    level: str,
    attempt: int,
    figures: Sequence[RequestFigures],
    codes: Collection[str],
) -> LevelFigures:
    """The record of a level: figures of measured requests by slot, and their mean TPOT (B_r(C) of
    P4.0) when there is no code."""
    ordered = sorted(figures, key=lambda one: one.slot)
    is_valid = not codes and bool(ordered)
    return LevelFigures(
        round=round_,
        level=level,
        attempt=attempt,
        valid=is_valid,
        invalid=tuple(sorted(codes)),
        requests=tuple(ordered),
        mean_tpot_ns=write(mean(_tpot(one) for one in ordered)) if is_valid else None,
    )


def level_codes(
    attempt: Attempt, load: Callable[[str], bytes], expected: LevelExpectation
) -> set[str]:
    """Codes of the waves of an attempt as a whole, without those of single requests."""
    codes: set[str] = set()
    if tuple(wave.kind for wave in attempt.waves) != expected.waves or not _follow(
        attempt.waves, load
    ):
        codes.add("wave-order")
    for wave in attempt.waves:
        codes |= wave_codes(wave, expected)
    salts = [request.cache_salt for wave in attempt.waves for request in wave.requests]
    if len(set(salts)) < len(salts) or not set(salts).isdisjoint(expected.salts):
        codes.add("salt-reused")
    return codes


def _follow(waves: Sequence[Wave], load: Callable[[str], bytes]) -> bool:
    """Each wave begins after the last read of the one before it (one clock for the run)."""
    ends = [0]
    for wave in waves:
        origin = int(wave.origin_ns)
        if origin < ends[-1]:
            return False
        reads = [pair for request in wave.requests for pair in parse_reads(load(request.reads))]
        ends.append(origin + max((t for t, _ in reads), default=0))
    return True


def wave_codes(wave: Wave, expected: LevelExpectation) -> set[str]:
    """Codes of one wave as a whole."""
    codes: set[str] = set()
    if wave.aborted is not None:
        codes.add("wave-aborted")
    if sorted(request.slot for request in wave.requests) != list(range(expected.concurrency)):
        codes.add("wave-count")
    prompts = expected.prompts[wave.kind][: expected.concurrency]
    hashes = [sha256(canonical(list(prompt))) for prompt in prompts]
    if any(
        request.prompt_index != request.slot
        or (request.slot < len(hashes) and request.prompt_sha256 != hashes[request.slot])
        for request in wave.requests
    ):
        codes.add("prompt-order")
    if (spread := send_skew_ns(wave)) is not None and spread > expected.limits.send_skew_ns:
        codes.add("send-skew")
    if wave.client is None or wave.client.stall_ns_max > expected.limits.stall_ns:
        codes.add("client-stall")
    return codes


def send_skew_ns(wave: Wave) -> int | None:
    """Newest minus oldest `start` of the wave (P3.6): the client's own. None when nothing began."""
    return _spread([request.start_ns for request in wave.requests])


def sent_skew_ns(wave: Wave) -> int | None:
    """Newest minus oldest `sent`: here the service's accepting has a part. For reports."""
    return _spread([request.sent_ns for request in wave.requests])


def _spread(times: Sequence[int | None]) -> int | None:
    known = [t for t in times if t is not None]
    return max(known) - min(known) if known else None


def eof_tail_ns(figures: RequestFigures) -> int:
    """From the last token frame to EOF: a proxy that closes late shows here. For reports."""
    return figures.end_ns - figures.last_token_ns


def steady_window_ns(figures: Sequence[RequestFigures]) -> tuple[int, int] | None:
    """(last `first`, earliest last token): all requests decode, none prefills. For reports.

    None when there is no such time.
    """
    if not figures:
        return None
    begin = max(one.first_ns for one in figures)
    end = min(one.last_token_ns for one in figures)
    return (begin, end) if begin < end else None


def tpot_of_level(b1_ns: Fraction, b2_ns: Fraction) -> Fraction:
    """TPOT(C) = median(B1, B2) = (B1 + B2) / 2 (P4.0), ns per token."""
    return (b1_ns + b2_ns) / 2


def _tpot(figures: RequestFigures) -> Fraction:
    numerator, denominator = figures.tpot_ns.split("/")
    return Fraction(int(numerator), int(denominator))
