"""One request: its figures worked out by hand, and each planted fault in its own code."""

import hashlib
import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance.metrics import Expectation, judge_request, parse_reads
from acceptance.testing.streams import (
    DONE,
    END,
    ERROR,
    chunk,
    completion_events,
    event,
    head,
    response,
    token_event,
    usage_event,
)
from acceptance.testing.waves import request_record

PROMPT = (11, 12, 13)
SENT = b"POST"
FIRST = token_event([5], prompt=PROMPT)
SECOND = token_event([6, 7])
LAST = token_event([8], finish="length")
USAGE = usage_event(3, 4)
GOOD = [FIRST, SECOND, LAST, USAGE, DONE]
PING = b": ping\n\n"


def judge(raw, reads, *, sent=SENT, output_tokens=4, **record):
    expected = Expectation(prompt=PROMPT, output_tokens=output_tokens, request=SENT)
    return judge_request(raw, reads, request_record(**record), sent, expected)


def judge_events(events, framing="chunked", **more):
    raw = response(events, framing)
    return judge(raw, [(100, len(raw)), (200, 0)], **more)


def codes_of(events, **more):
    return set(judge_events(events, **more)[1])


def reads_of(parts, times):
    return b"".join(parts), [(t, len(part)) for t, part in zip(times, parts, strict=True)]


@pytest.mark.rule("P4.0")
def test_figures_are_those_worked_out_by_hand():
    parts = [head(), *map(chunk, GOOD), END, b""]
    #          head  first second last usage done  end  FIN
    times = [100, 1000, 1600, 2200, 2300, 2301, 2400, 9999]
    raw, reads = reads_of(parts, times)

    figures, codes = judge(raw, reads)

    assert codes == frozenset()
    assert (1000 - 10, 2400 - 10) == (figures.ttft_ns, figures.e2e_ns)
    assert 4 == figures.output_tokens
    # (end - first) / (n - 1) = 1400 / 3; (last - first) / (n - 1) = 1200 / 3; n - k = 4 - 1.
    assert ("1400/3", "400/1", "400/1") == (
        figures.tpot_ns,
        figures.tpot_last_token_ns,
        figures.tpot_per_later_token_ns,
    )
    assert (1, 1000, 2200, 2400) == (
        figures.first_frame_tokens,
        figures.first_ns,
        figures.last_token_ns,
        figures.end_ns,
    )
    assert hashlib.sha256(b"[5,6,7,8]").hexdigest() == figures.token_ids_sha256


@pytest.mark.rule("P4.0")
def test_a_close_delimited_body_ends_with_fin():
    parts = [head("close"), *GOOD, b""]
    raw, reads = reads_of(parts, [100, 1000, 1600, 2200, 2300, 2301, 2800])

    figures, codes = judge(raw, reads)

    assert codes == frozenset()
    assert (2800, "600/1") == (figures.end_ns, figures.tpot_ns)


@pytest.mark.rule("P4.0")
def test_three_tokens_in_the_first_frame_are_counted_and_told():
    events = completion_events(PROMPT, [[5, 6, 7], [8]])
    parts = [head(), *map(chunk, events), END, b""]
    raw, reads = reads_of(parts, [100, 1000, 1600, 1700, 1800, 1900, 2000])

    figures, _ = judge(raw, reads)

    # n = 4, k = 3: TPOT = 900 / 3; the last token came 600 later, one token after the first frame.
    assert (3, "300/1", "200/1", "600/1") == (
        figures.first_frame_tokens,
        figures.tpot_ns,
        figures.tpot_last_token_ns,
        figures.tpot_per_later_token_ns,
    )


def test_all_tokens_in_one_frame_leave_no_time_per_later_token():
    figures, codes = judge_events(completion_events(PROMPT, [[5, 6, 7, 8]]))

    assert codes == frozenset()
    assert (None, "0/1") == (figures.tpot_per_later_token_ns, figures.tpot_last_token_ns)


def test_a_frame_with_a_role_and_no_token_does_not_start_the_clock():
    empty = token_event([], prompt=PROMPT, text="")
    parts = [head(), *map(chunk, [empty, token_event([5]), SECOND, LAST, USAGE, DONE]), END, b""]
    raw, reads = reads_of(parts, [100, 500, 1000, 1600, 2200, 2300, 2301, 2400, 2500])

    figures, _ = judge(raw, reads)

    assert 1000 == figures.first_ns


def test_one_output_token_has_no_tpot_and_is_refused():
    with pytest.raises(ValueError, match="two output tokens"):
        judge_events(GOOD, output_tokens=1)


WITHOUT_DETAILS = event(
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
)
TRUE_CACHED = event(
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": False},
        },
    }
)
WRONG_TOTAL = USAGE.replace(b'"total_tokens":7', b'"total_tokens":8')
WRONG_PROMPT = USAGE.replace(b'"prompt_tokens":3', b'"prompt_tokens":2')
WRONG_OUTPUT = USAGE.replace(b'"completion_tokens":4', b'"completion_tokens":5')
FLOAT_TOTAL = USAGE.replace(b'"total_tokens":7', b'"total_tokens":7.0')
TWO_CHOICES = event({"choices": [{"index": 0, "token_ids": [6, 7]}, {"index": 0, "token_ids": []}]})


@pytest.mark.rule("P4.1")
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([FIRST, SECOND, LAST, USAGE], {"no-done"}, id="no-done"),
        pytest.param([*GOOD, DONE], {"after-done"}, id="done-twice"),
        pytest.param([FIRST, SECOND, LAST, DONE, USAGE], {"after-done"}, id="usage-after-done"),
        pytest.param([FIRST, event(ERROR), DONE], {"error-frame"}, id="error-then-done"),
        pytest.param([*GOOD[:-1], event(ERROR), DONE], {"error-frame"}, id="error-after-usage"),
        pytest.param([*GOOD, event(ERROR)], {"error-frame"}, id="error-after-done"),
        pytest.param([FIRST, SECOND, LAST, USAGE, USAGE, DONE], {"usage-missing"}, id="two-usages"),
        pytest.param([FIRST, SECOND, LAST, DONE], {"usage-missing"}, id="no-usage"),
        pytest.param(
            [FIRST, SECOND, LAST, usage_event(4, 4), DONE],
            {"usage-mismatch"},
            id="usage-prompt-and-total",
        ),
        pytest.param(
            [FIRST, SECOND, LAST, usage_event(3, 3), DONE],
            {"usage-mismatch"},
            id="usage-output-and-total",
        ),
        pytest.param([FIRST, SECOND, LAST, WRONG_TOTAL, DONE], {"usage-mismatch"}, id="total"),
        pytest.param([FIRST, SECOND, LAST, WRONG_PROMPT, DONE], {"usage-mismatch"}, id="prompt"),
        pytest.param([FIRST, SECOND, LAST, WRONG_OUTPUT, DONE], {"usage-mismatch"}, id="output"),
        pytest.param([FIRST, SECOND, LAST, FLOAT_TOTAL, DONE], {"usage-mismatch"}, id="float"),
        pytest.param(
            [FIRST, SECOND, LAST, usage_event(3, 4, 1), DONE], {"cached-tokens"}, id="cached-one"
        ),
        pytest.param(
            [FIRST, SECOND, LAST, WITHOUT_DETAILS, DONE], {"cached-unknown"}, id="no-details"
        ),
        pytest.param(
            [FIRST, SECOND, LAST, TRUE_CACHED, DONE], {"cached-unknown"}, id="cached-false"
        ),
        pytest.param(
            [FIRST, SECOND, token_event([8]), USAGE, DONE], {"finish-reason"}, id="no-finish"
        ),
        pytest.param(
            [FIRST, SECOND, token_event([8], finish="stop"), USAGE, DONE],
            {"finish-reason"},
            id="finish-stop",
        ),
        pytest.param(
            [FIRST, token_event([6, 7], finish="length"), LAST, USAGE, DONE],
            {"finish-reason"},
            id="finish-twice",
        ),
        pytest.param(
            [FIRST, SECOND, LAST, token_event([], finish="length"), USAGE, DONE],
            {"finish-reason"},
            id="finish-again-after-the-last-token",
        ),
        pytest.param(
            [FIRST, token_event([6, 7], finish="length"), token_event([8]), USAGE, DONE],
            {"finish-reason"},
            id="finish-before-the-last-token",
        ),
        pytest.param(
            [FIRST, SECOND, token_event([8]), token_event([], finish="length"), USAGE, DONE],
            {"finish-reason"},
            id="finish-on-a-frame-without-token",
        ),
        pytest.param(
            completion_events(PROMPT, [[5], [6, 7]]), {"token-count"}, id="one-token-less"
        ),
        pytest.param(
            completion_events(PROMPT, [[5], [6, 7, 8, 9]]), {"token-count"}, id="one-token-more"
        ),
        pytest.param([token_event([5]), SECOND, LAST, USAGE, DONE], {"prompt-echo"}, id="no-echo"),
        pytest.param(
            [token_event([5], prompt=(11, 12, 14)), SECOND, LAST, USAGE, DONE],
            {"prompt-echo"},
            id="echo-of-another-prompt",
        ),
        pytest.param(
            [FIRST, token_event([6, 7], prompt=(11,)), LAST, USAGE, DONE],
            {"prompt-echo"},
            id="a-second-echo-that-differs",
        ),
        pytest.param([FIRST, TWO_CHOICES, LAST, USAGE, DONE], {"choice"}, id="two-choices"),
        pytest.param(
            [FIRST, token_event([6, 7], index=1), LAST, USAGE, DONE], {"choice"}, id="index-one"
        ),
        pytest.param([*GOOD[:1], b"data: {\n\n", *GOOD[1:]], {"sse-malformed"}, id="not-json"),
        pytest.param([*GOOD[:1], b"data: [done]\n\n", *GOOD[1:]], {"sse-malformed"}, id="done-low"),
        pytest.param([*GOOD[:1], b": \xff\n\n", *GOOD[1:]], {"sse-malformed"}, id="not-utf-8"),
        pytest.param([*GOOD, b"data: x\n"], {"sse-malformed"}, id="unterminated"),
        pytest.param(
            [token_event([], prompt=PROMPT), USAGE, DONE],
            {"no-token", "finish-reason", "usage-mismatch"},
            id="no-token",
        ),
        pytest.param(
            [FIRST], {"no-done", "token-count", "finish-reason", "usage-missing"}, id="one-frame"
        ),
    ],
)
def test_a_planted_fault_ends_in_its_own_code(events, expected):
    assert expected == codes_of(events)


@pytest.mark.rule("P4.1")
@pytest.mark.parametrize(
    "events",
    [
        pytest.param(GOOD, id="plain"),
        pytest.param([PING, *GOOD], id="comment-before"),
        pytest.param([FIRST, PING, SECOND, PING, LAST, USAGE, PING, DONE, PING], id="comments"),
        pytest.param([one.replace(b"\n", b"\r\n") for one in GOOD], id="crlf"),
        pytest.param([one.replace(b"\n", b"\r") for one in GOOD], id="cr"),
        pytest.param([one.replace(b"data: ", b"data:") for one in GOOD], id="no-space"),
        pytest.param([b"event: m\nid: 1\n" + one for one in GOOD], id="event-and-id-lines"),
        pytest.param([FIRST.replace(b'"x"', '"\u2028\u0085你"'.encode()), *GOOD[1:]], id="u2028"),
        pytest.param([FIRST.replace(b",", b",\ndata: "), *GOOD[1:]], id="several-data-lines"),
        pytest.param([b"\xef\xbb\xbf", *GOOD], id="byte-order-mark"),
    ],
)
def test_what_is_legal_has_no_code_at_any_cut(events):
    raw = response(events)
    for cut in range(1, len(raw)):
        assert judge(raw, [(100, cut), (200, len(raw) - cut), (300, 0)])[1] == frozenset()


@pytest.mark.parametrize("outcome", ["timeout", "reset", "refused", "aborted", "client-died"])
def test_a_connection_that_did_not_end_by_fin_is_told_by_its_outcome_alone(outcome):
    raw = response(GOOD)[:300]

    assert {f"outcome-{outcome}"} == judge(raw, [(100, 300)], outcome=outcome)[1]


def test_nothing_received_from_a_refused_port_is_told_by_its_outcome_alone():
    record = {"outcome": "refused", "connected_ns": None, "sent_ns": None}

    assert {"outcome-refused"} == judge(b"", [], **record)[1]


def test_an_error_frame_is_told_even_when_the_connection_broke_after_it():
    raw = response([FIRST, event(ERROR)])[:-5]

    codes = judge(raw, [(100, len(raw)), (200, 0)])[1]

    assert {"error-frame", "early-eof"} == codes


@pytest.mark.rule("P4.1")
def test_fin_at_any_byte_before_the_end_is_an_early_end():
    raw = response(GOOD)
    for size in range(1, len(raw)):
        assert {"early-eof"} == judge(raw[:size], [(100, size), (200, 0)])[1]


def test_a_close_delimited_body_that_is_cut_lacks_what_was_cut():
    raw = head("close") + b"".join(GOOD)[: -len(DONE)]

    assert {"no-done"} == judge(raw, [(100, len(raw)), (200, 0)])[1]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(b"hello\r\n\r\n", {"http-framing"}, id="not-http"),
        pytest.param(response(GOOD) + b"x", {"http-framing"}, id="surplus-byte"),
        pytest.param(response(GOOD, "length"), {"http-framing"}, id="content-length"),
        pytest.param(
            response([b"{}"], "length", "400 Bad Request"), {"http-status"}, id="bad-request"
        ),
        pytest.param(response(GOOD, status="206 Partial Content"), {"http-status"}, id="206"),
        pytest.param(b"", {"early-eof"}, id="nothing"),
    ],
)
def test_a_fault_of_http_ends_in_its_own_code(raw, expected):
    reads = [(100, len(raw)), (200, 0)] if raw else [(200, 0)]

    assert expected == judge(raw, reads)[1]


RAW = response(GOOD)
SIZE = len(RAW)


@pytest.mark.parametrize(
    ("reads", "record", "expected"),
    [
        pytest.param([(100, SIZE - 1), (200, 0)], {}, {"reads-mismatch"}, id="one-byte-less"),
        pytest.param([(100, SIZE + 1), (200, 0)], {}, {"reads-mismatch"}, id="one-byte-more"),
        pytest.param([(100, SIZE)], {}, {"reads-mismatch"}, id="fin-without-its-read"),
        pytest.param([(100, SIZE), (200, 0), (201, 0)], {}, {"reads-mismatch"}, id="fin-twice"),
        pytest.param(
            [(100, SIZE + 5), (150, -5), (200, 0)], {}, {"reads-mismatch"}, id="below-zero"
        ),
        pytest.param(
            [(100, SIZE), (200, 0)], {"outcome": "reset"}, {"reads-mismatch"}, id="fin-and-reset"
        ),
        pytest.param([(100, 9), (99, SIZE - 9), (200, 0)], {}, {"clock"}, id="times-decrease"),
        pytest.param([(29, SIZE), (200, 0)], {}, {"clock"}, id="read-before-sent"),
        pytest.param([(100, SIZE), (200, 0)], {"sent_ns": None}, {"clock"}, id="sent-unknown"),
        pytest.param([(100, SIZE), (200, 0)], {"start_ns": 21}, {"clock"}, id="start-too-late"),
        pytest.param([(100, SIZE), (200, 0)], {"start_ns": -1}, {"clock"}, id="before-origin"),
    ],
)
def test_evidence_that_does_not_fit_together_has_its_code(reads, record, expected):
    figures, codes = judge(RAW, reads, **record)

    assert expected == codes
    assert figures is None


def test_equal_times_are_in_order():
    assert judge(RAW, [(30, 9), (30, SIZE - 9), (30, 0)])[1] == frozenset()


@pytest.mark.rule("P3.5")
def test_a_request_that_was_not_the_one_asked_for_has_its_code():
    assert {"request-mismatch"} == codes_of(GOOD, sent=b"POSt")


PIECES = [head(), *map(chunk, GOOD), END]


def offset_after(piece):
    return sum(map(len, PIECES[: piece + 1]))


@given(st.lists(st.integers(1, SIZE - 1), max_size=30), st.data())
def test_any_chunking_gives_the_same_figures_up_to_the_completing_read(cuts, data):
    places = [0, *sorted(set(cuts)), SIZE]
    counts = [b - a for a, b in itertools.pairwise(places)]
    gaps = data.draw(st.lists(st.integers(0, 10**9), min_size=len(counts), max_size=len(counts)))
    times = [100 + sum(gaps[: number + 1]) for number in range(len(counts))]

    def time_of(offset):
        """Of the read that brought the byte before `offset`."""
        return next(t for t, end in zip(times, places[1:], strict=True) if offset <= end)

    # A frame in a chunk of its own is complete two bytes before the chunk is.
    first, last = time_of(offset_after(1) - 2), time_of(offset_after(3) - 2)
    end = time_of(SIZE)

    figures, codes = judge(RAW, [*zip(times, counts, strict=True), (times[-1] + 1, 0)])

    assert codes == frozenset()
    assert (first, last, end) == (figures.first_ns, figures.last_token_ns, figures.end_ns)
    assert Fraction(end - first, 3) == Fraction(figures.tpot_ns)
    assert "/" in figures.tpot_ns


@given(st.lists(st.sampled_from([*GOOD, PING, event(ERROR)]), max_size=8), st.data())
def test_codes_do_not_depend_on_the_cuts(events, data):
    raw = response(events)
    cuts = data.draw(st.lists(st.integers(1, len(raw) - 1), max_size=10))
    places = [0, *sorted(set(cuts)), len(raw)]
    reads = [(100, b - a) for a, b in itertools.pairwise(places)]

    whole = judge(raw, [(100, len(raw)), (100, 0)])

    assert whole == judge(raw, [*reads, (100, 0)])
    assert (whole[0] is None) == bool(whole[1])


@given(st.binary(max_size=400))
def test_no_bytes_at_all_make_it_stumble_or_pass(junk):
    raw = head() + chunk(junk) + END if junk else head() + END

    figures, codes = judge(raw, [(100, len(raw)), (200, 0)])

    assert figures is None
    assert codes


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"[[1,2],[3]]", id="one-number"),
        pytest.param(b"[[1,2.0]]", id="float"),
        pytest.param(b"{}", id="object"),
        pytest.param(b"[[1,true]]", id="true"),
        pytest.param(b"[[1,2]", id="cut"),
    ],
)
def test_reads_that_are_not_pairs_of_integers_are_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_reads(text)
