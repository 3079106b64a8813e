"""Events out of bytes: every line end, every cut, and a second splitter that must agree."""

import pytest
from httpx_sse._decoders import SSEDecoder, SSELineDecoder
from hypothesis import given
from hypothesis import strategies as st

from acceptance.sse import frame_response, parse_json, read_frames, split_events
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
)

PROMPT = (11, 12)
EVENTS = completion_events(PROMPT, [[5], [6, 7]])


def data_of(body):
    return [one.data for one in split_events(body)[0]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"data: a\n\ndata: b\n\n", [b"a", b"b"], id="lf"),
        pytest.param(b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"], id="crlf"),
        pytest.param(b"data: a\r\rdata: b\r\r", [b"a", b"b"], id="cr"),
        pytest.param(b"data: a\r\n\rdata: b\n\r\n", [b"a", b"b"], id="mixed"),
        pytest.param(b"data:a\n\n", [b"a"], id="no-space"),
        pytest.param(b"data:  a\n\n", [b" a"], id="two-spaces-keep-one"),
        pytest.param(b"data\n\n", [b""], id="field-without-colon"),
        pytest.param(b"data: a\ndata: b\n\n", [b"a\nb"], id="two-data-lines"),
        pytest.param(b": ping\n\ndata: a\n\n", [b"a"], id="comment-alone"),
        pytest.param(b": ping\ndata: a\n\n", [b"a"], id="comment-glued"),
        pytest.param(b"event: x\nid: 7\nretry: 9\ndata: a\n\n", [b"a"], id="other-fields"),
        pytest.param(b"event: x\n\n", [], id="event-without-data"),
        pytest.param(b"database: a\n\n", [], id="field-that-begins-with-data"),
        pytest.param(b"\xef\xbb\xbfdata: a\n\n", [b"a"], id="byte-order-mark"),
        pytest.param(
            b"data: a\xe2\x80\xa8b\xc2\x85c\n\n", [b"a\xe2\x80\xa8b\xc2\x85c"], id="u2028"
        ),
        pytest.param(b"\n\n\ndata: a\n\n\n\n", [b"a"], id="blank-lines-around"),
        pytest.param(b"", [], id="empty"),
    ],
)
def test_a_body_gives_its_events_and_nothing_is_left(body, expected):
    events, is_unfinished = split_events(body)

    assert expected == [one.data for one in events]
    assert not is_unfinished


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"data: a\n\ndata: b", id="line-without-end"),
        pytest.param(b"data: a\n\ndata: b\n", id="data-without-blank-line"),
        pytest.param(b"data: a\n\n: ping", id="comment-without-end"),
    ],
)
def test_what_is_unfinished_at_the_end_is_seen_and_is_no_event(body):
    events, is_unfinished = split_events(body)

    assert [b"a"] == [one.data for one in events]
    assert is_unfinished


def test_an_event_ends_with_the_line_feed_of_its_blank_line():
    events, _ = split_events(b"data: a\r\n\r\ndata: b\n\n")

    assert [11, 20] == [one.end for one in events]


LINES = st.sampled_from(
    [
        "data: a",
        "data:b",
        "data",
        "data:  ",
        ": ping",
        ":",
        "",
        "",
        "event: x",
        "id: 1",
        "retry: 5",
        "other: y",
        "data: 你\u2028\u0085好",
        "data: {}",
    ]
)
BODIES = st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r"]))).map(
    lambda pairs: "".join(line + end for line, end in pairs)
)


def second_splitter(parts):
    """(data, number of the part that completed it) by httpx-sse; events without text left out."""
    lines, events = SSELineDecoder(), SSEDecoder()
    return [
        (found.data.encode(), number)
        for number, part in enumerate(parts)
        for line in lines.decode(part)
        if (found := events.decode(line)) is not None and found.data
    ]


@given(BODIES)
def test_a_second_splitter_finds_the_same_events(body):
    # A CR at the very end may be half of a CRLF for a splitter that reads on: it waits.
    text = body + "\n"

    mine = [data for data in data_of(text.encode()) if data]

    assert [data for data, _ in second_splitter([text])] == mine


@given(BODIES, st.lists(st.integers(0, 400), max_size=12))
def test_a_second_splitter_completes_each_event_with_the_same_read(body, cuts):
    text = (body.replace("\r\n", "\n").replace("\r", "\n")) + "\n"
    places = sorted({cut for cut in cuts if 0 < cut < len(text)})
    parts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    raw = head("close") + text.encode()
    counts = [len(part.encode()) for part in parts]
    counts[0] += len(head("close"))

    framed = frame_response(raw, [*counts, 0])
    mine = [
        (one.data, framed.read_of(one.end - 1)) for one in split_events(framed.body)[0] if one.data
    ]

    assert second_splitter(parts) == mine


def chunked_ends():
    """Offsets in the raw bytes after the last data byte of each event, one chunk per event."""
    ends, offset = [], len(head())
    for one in EVENTS:
        whole = chunk(one)
        ends.append(offset + len(whole) - len(b"\r\n"))
        offset += len(whole)
    return ends


def test_at_every_cut_each_frame_belongs_to_the_read_that_completed_it():
    raw, ends = response(EVENTS), chunked_ends()
    for cut in range(1, len(raw)):
        framed = frame_response(raw, [cut, len(raw) - cut, 0])
        frames, is_malformed = read_frames(framed)

        assert not is_malformed
        assert [0 if end <= cut else 1 for end in ends] == [frame.read for frame in frames]
        assert framed.end_read == 1


def test_at_every_cut_of_a_close_delimited_body_the_end_is_fin():
    raw = response(EVENTS, "close")
    for cut in range(1, len(raw)):
        framed = frame_response(raw, [cut, len(raw) - cut, 0])

        assert (2, "close", None) == (framed.end_read, framed.framing, framed.problem)
        assert b"".join(EVENTS) == framed.body


def test_byte_by_byte_the_end_is_the_last_byte_of_the_zero_length_chunk():
    raw = response(EVENTS)

    framed = frame_response(raw, [1] * len(raw) + [0])

    assert len(raw) - 1 == framed.end_read
    assert [end - 1 for end in chunked_ends()] == [frame.read for frame in read_frames(framed)[0]]


def test_trailers_belong_to_the_body_and_the_end_is_their_blank_line():
    raw = head() + chunk(DONE) + b"0\r\nx-a: 1\r\n" + b"\r\n"

    framed = frame_response(raw, [len(raw) - 2, 2, 0])

    assert (1, None) == (framed.end_read, framed.problem)


def test_an_informational_response_before_the_real_one_is_passed_over():
    raw = b"HTTP/1.1 103 Early Hints\r\n\r\n" + response(EVENTS)

    assert 200 == frame_response(raw, [len(raw), 0]).status


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_fin_at_every_place_before_the_end_is_an_early_end(framing):
    raw = response(EVENTS, framing)
    for size in range(len(raw)):
        counts = [size, 0] if size else [0]
        assert "early-eof" == frame_response(raw[:size], counts).problem


def test_without_fin_an_incomplete_body_has_neither_end_nor_problem():
    raw = response(EVENTS)[:-3]

    framed = frame_response(raw, [len(raw)])

    assert (None, None) == (framed.end_read, framed.problem)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", id="not-http"),
        pytest.param(head() + b"zz\r\n", id="chunk-size-not-hex"),
        pytest.param(head() + b"3\r\nabcXX" + END, id="chunk-without-its-end"),
        pytest.param(response(EVENTS) + b"x", id="one-byte-too-many"),
        pytest.param(response(EVENTS) + response(EVENTS), id="a-second-response"),
        pytest.param(response(EVENTS, "length") + b"x", id="more-than-its-length"),
    ],
)
def test_malformed_http_and_surplus_bytes_are_found_at_every_cut(raw):
    for cut in range(1, len(raw)):
        framed = frame_response(raw, [cut, len(raw) - cut, 0])
        assert ("http-framing", None) == (framed.problem, framed.end_read)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"NaN", id="nan"),
        pytest.param(b'{"a": Infinity}', id="infinity"),
        pytest.param(b'{"a": 1, "a": 1}', id="key-twice"),
        pytest.param(b'{"a": 1} x', id="something-after-it"),
        pytest.param(b'"\xff"', id="not-utf-8"),
        pytest.param(b"[" * 100_000, id="nested-too-deeply"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_strict_json_refuses(text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


def one_frame(data):
    framed = frame_response(head("close") + data, [len(head("close") + data), 0])
    (frame,), _ = read_frames(framed)
    return frame


def test_a_frame_with_five_tokens_counts_five():
    assert (1, 2, 3, 4, 5) == one_frame(token_event([1, 2, 3, 4, 5])).token_ids


def test_a_frame_without_choices_key_is_data_without_tokens():
    frame = one_frame(event({"usage": {"prompt_tokens": 1}}))

    assert ("data", (), {"prompt_tokens": 1}) == (frame.kind, frame.token_ids, frame.usage)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(ERROR, id="vllm-error"),
        pytest.param({"object": "error", "message": "x"}, id="older-error"),
        pytest.param({"error": "x", "choices": []}, id="error-beside-choices"),
    ],
)
def test_an_error_object_is_an_error_frame(value):
    assert "error" == one_frame(event(value)).kind


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([], id="a-list"),
        pytest.param({"choices": 1}, id="choices-not-a-list"),
        pytest.param({"choices": [1]}, id="a-choice-not-an-object"),
        pytest.param({"choices": [{"index": 0, "token_ids": ["a"]}]}, id="an-id-not-a-number"),
        pytest.param({"choices": [{"index": 0, "token_ids": [True]}]}, id="an-id-true"),
        pytest.param({"choices": [{"index": 0, "token_ids": [-1]}]}, id="an-id-below-zero"),
        pytest.param({"choices": [{"index": 0, "token_ids": 5}]}, id="ids-not-a-list"),
        pytest.param({"choices": [{"index": 0, "finish_reason": 1}]}, id="finish-not-text"),
        pytest.param({"choices": [], "usage": 3}, id="usage-not-an-object"),
    ],
)
def test_json_of_another_shape_is_malformed(value):
    assert "malformed" == one_frame(event(value)).kind


@pytest.mark.parametrize(
    "choices",
    [
        pytest.param([{"index": 1, "token_ids": [1]}], id="index-one"),
        pytest.param([{"token_ids": [1]}], id="no-index"),
        pytest.param([{"index": False, "token_ids": [1]}], id="index-false"),
        pytest.param([{"index": 0}, {"index": 0}], id="two-choices"),
    ],
)
def test_another_choice_is_seen(choices):
    assert one_frame(event({"choices": choices})).has_other_choice
