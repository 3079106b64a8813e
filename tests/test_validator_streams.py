"""Framing and events of the validator: any chunking, any cut, against hand-written answers and
against the live parser, which shares no code with it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acceptance import metrics
from acceptance.testing.waves import request_record
from tests.strategies import streams, wire
from validator import reply
from validator.attempts import Request
from validator.events import events
from validator.framing import frame

RECORD = request_record(start_ns=0, connected_ns=0, sent_ns=0)
REQUEST = Request(**{name: getattr(RECORD, name) for name in RECORD.__struct_fields__})


def judge(raw, reads, asked):
    return reply.judge(REQUEST, raw, reads, b"", reply.Asked(streams.PROMPT, asked, b""))


def live(raw, reads, asked):
    expected = metrics.Expectation(prompt=streams.PROMPT, output_tokens=asked, request=b"")
    figures, codes = metrics.judge_request(raw, reads, RECORD, b"", expected)
    shown = {n: getattr(figures, n) for n in figures.__struct_fields__} if figures else None
    return shown, set(codes)


def shown(figures):
    return figures.as_json() if figures else None


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_right_answer_has_its_figures_however_it_was_cut(data):
    answer = data.draw(streams.answers())
    reads = data.draw(streams.reads_of(answer.raw))

    figures, codes = judge(answer.raw, reads, answer.count)

    assert set() == codes
    assert (answer.count, len(answer.frames[0])) == (
        figures.output_tokens,
        figures.first_frame_tokens,
    )
    assert figures.tpot_ns * (answer.count - 1) == figures.end_ns - figures.first_ns
    assert (shown(figures), set()) == live(answer.raw, reads, answer.count)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_two_judges_say_the_same_of_a_spoiled_answer(data):
    answer = data.draw(streams.answers())
    raw = data.draw(streams.spoiled(answer.raw))
    reads = data.draw(streams.reads_of(raw))

    figures, codes = judge(raw, reads, answer.count)

    assert (shown(figures), codes) == live(raw, reads, answer.count)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_connection_that_did_not_end_by_fin_has_no_figures(data):
    answer = data.draw(streams.answers())
    reads = data.draw(streams.reads_of(answer.raw))[:-1]
    outcome = data.draw(st.sampled_from(["timeout", "reset", "aborted", "client-died"]))
    request = Request(**{**vars(REQUEST), "outcome": outcome})

    figures, codes = reply.judge(
        request, answer.raw, reads, b"", reply.Asked(streams.PROMPT, answer.count, b"")
    )

    assert (None, True) == (figures, f"outcome-{outcome}" in codes)


@settings(max_examples=150, deadline=None)
@given(raw=st.binary(max_size=200), data=st.data())
@example(raw=b"", data=None)
def test_any_bytes_get_a_judgement_and_never_an_exception(raw, data):
    reads = ((5, 0),) if data is None else data.draw(streams.reads_of(raw))

    figures, codes = judge(raw, reads, 5)

    assert figures is None
    assert codes


ANSWER = wire.chunked(wire.stream(streams.PROMPT, [[10], [11, 12]]))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_every_single_cut_gives_the_same_events(end):
    stream = [one.replace(b"\n", end) for one in wire.stream(streams.PROMPT, [[10], [11, 12]])]
    raw = wire.chunked(stream)
    whole = events(frame(raw, [len(raw), 0]).body)

    for cut in range(1, len(raw)):
        response = frame(raw, [cut, len(raw) - cut, 0])

        assert (whole, None, 1) == (events(response.body), response.problem, response.end_read)


def test_a_frame_has_arrived_with_the_last_byte_of_its_blank_line():
    at = ANSWER.index(b"data:") + len(wire.stream(streams.PROMPT, [[10], [11, 12]])[0]) - 1
    before, after = (
        judge(ANSWER, ((10, cut), (20, len(ANSWER) - cut), (30, 0)), 3)[0] for cut in (at, at + 1)
    )

    assert (20, 10) == (before.first_ns, after.first_ns)


def test_the_end_is_the_read_with_the_terminating_chunk():
    figures, _ = judge(ANSWER, ((10, len(ANSWER) - 1), (25, 1), (99, 0)), 3)

    assert (10, 25) == (figures.first_ns, figures.end_ns)


def test_the_end_of_a_close_delimited_body_is_fin():
    raw = wire.CLOSE + b"".join(wire.stream(streams.PROMPT, [[10], [11, 12]]))

    figures, _ = judge(raw, ((10, len(raw)), (99, 0)), 3)

    assert (10, 99) == (figures.first_ns, figures.end_ns)


HEADS = {
    "lf-only": (b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", None),
    "no-reason-phrase": (b"HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\n", None),
    "folded-field": (b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ntransfer-encoding: chunked\r\n\r\n", None),
    "continue-first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n",
        None,
    ),
    "gzip": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "http-framing"),
    "chunked-twice": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
        "http-framing",
    ),
    "two-lengths": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        "http-framing",
    ),
    "negative-length": (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n", "http-framing"),
    "blank-in-a-name": (b"HTTP/1.1 200 OK\r\nx y: 1\r\n\r\n", "http-framing"),
    "nul-in-a-value": (b"HTTP/1.1 200 OK\r\nx: \0\r\n\r\n", "http-framing"),
    "begins-with-a-fold": (b"HTTP/1.1 200 OK\r\n x: 1\r\n\r\n", "http-framing"),
    "two-digits-of-status": (b"HTTP/1.1 20 OK\r\n\r\n", "http-framing"),
    "switching": (b"HTTP/1.1 101 Switching\r\n\r\n", "http-framing"),
    "blank-line-first": (b"\r\nHTTP/1.1 200 OK\r\n\r\n", "http-framing"),
    "head-cut": (b"HTTP/1.1 200 OK\r\ntransfer", "early-eof"),
}


@pytest.mark.parametrize(("head", "problem"), HEADS.values(), ids=HEADS)
def test_heads(head, problem):
    body = ANSWER.partition(b"\r\n\r\n")[2]

    raw = head + (body if problem is None else b"")

    assert problem == frame(raw, [len(raw), 0]).problem
    assert live(raw, ((10, len(raw)), (11, 0)), 3)[1] == judge(raw, ((10, len(raw)), (11, 0)), 3)[1]


CHUNKS = {
    "extension": (b"4;a=b\r\nbody\r\n0;z\r\n\r\n", None),
    "blanks-after-the-size": (b"4  \r\nbody\r\n0\r\n\r\n", None),
    "trailer": (b"4\r\nbody\r\n0\r\nx-sum: 1\r\n\r\n", None),
    "leading-zeros": (b"0004\r\nbody\r\n000\r\n\r\n", None),
    "no-size": (b"\r\nbody\r\n0\r\n\r\n", "http-framing"),
    "hex-prefix": (b"0x4\r\nbody\r\n0\r\n\r\n", "http-framing"),
    "minus": (b"-4\r\nbody\r\n0\r\n\r\n", "http-framing"),
    "longer-than-said": (b"3\r\nbody\r\n0\r\n\r\n", "http-framing"),
    "shorter-than-said": (b"ff\r\nbody\r\n0\r\n\r\n", "early-eof"),
    "bad-trailer": (b"4\r\nbody\r\n0\r\nnonsense\r\n\r\n", "http-framing"),
    "no-last-blank-line": (b"4\r\nbody\r\n0\r\n", "early-eof"),
    "half-a-footer": (b"4\r\nbody\r", "early-eof"),
    "more-after-the-end": (b"4\r\nbody\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "http-framing"),
    "a-size-of-21-digits": (b"0" * 21 + b"4\r\nbody\r\n0\r\n\r\n", "http-framing"),
}


@pytest.mark.parametrize(("body", "problem"), CHUNKS.values(), ids=CHUNKS)
def test_chunks(body, problem):
    raw = wire.CHUNKED + body

    response = frame(raw, [len(raw), 0])

    assert problem == response.problem
    assert b"body".startswith(response.body[:3])
