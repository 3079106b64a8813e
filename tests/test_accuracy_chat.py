"""Raw chat streams -> reply and faults; the body as AISBench sends it (P5.3, P5.4)."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acceptance.accuracy.chat import body_bytes, chat_body, check_reads, parse_reply
from acceptance.testing.answers import Reply, frames, response, stream

# 2 characters of reasoning and 8 of content: 10 tokens by the script's rule.
GOOD = Reply(reasoning="so", content="answer:7")


def parse(raw, outcome="fin", max_tokens=64):
    return parse_reply(raw, outcome=outcome, max_tokens=max_tokens)


def spoiled(change):
    """The stream of GOOD with its list of event texts changed."""
    events = [json.dumps(frame) for frame in frames(GOOD, "chatcmpl-1")] + ["[DONE]"]
    change(events)
    return response(f"data: {event}\n\n".encode() for event in events)


def edit(index, **changes):
    """Change top-level keys of one frame."""

    def change(events):
        events[index] = json.dumps(json.loads(events[index]) | changes)

    return change


def delta(place, **changes):
    """Change the delta, or with `finish_reason` and `index` the choice, of one frame."""

    def change(events):
        frame = json.loads(events[place])
        for key, value in changes.items():
            choice = frame["choices"][0]
            (choice if key in ("finish_reason", "index") else choice["delta"])[key] = value
        events[place] = json.dumps(frame)

    return change


def usage(**changes):
    def change(events):
        frame = json.loads(events[-2])
        frame["usage"] |= changes
        events[-2] = json.dumps(frame)

    return change


@pytest.mark.rule("P5.4")
def test_a_whole_stream_is_a_valid_reply():
    reply = parse(stream(GOOD, "chatcmpl-1"))

    assert ("so", "answer:7", "stop", ()) == (
        reply.reasoning,
        reply.content,
        reply.finish_reason,
        reply.failed,
    )
    assert ("chatcmpl-1", 9, 10) == (reply.id, reply.prompt_tokens, reply.completion_tokens)


@pytest.mark.rule("P5.5")
def test_a_truncated_reply_is_valid_and_says_so():
    reply = parse(stream(Reply(content="", finish_reason="length", tokens=64), "a"))

    assert ("so", "", "length", ()) == (
        reply.reasoning,
        reply.content,
        reply.finish_reason,
        reply.failed,
    )


def test_the_older_name_of_reasoning_is_read_first():
    raw = spoiled(delta(1, reasoning_content="old", reasoning="new"))

    assert "old" == parse(raw).reasoning


@pytest.mark.rule("P5.4")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(lambda e: e.pop(), "no-done", id="no-done"),
        pytest.param(lambda e: e.append("{}"), "after-done", id="after-done"),
        pytest.param(lambda e: e.insert(2, '{"error": {"code": 500}}'), "error-frame", id="error"),
        pytest.param(lambda e: e.insert(2, '{"cut'), "sse-malformed", id="not-json"),
        pytest.param(lambda e: e.insert(2, "[1]"), "sse-malformed", id="not-an-object"),
        pytest.param(lambda e: e.insert(2, "[" * 9999), "sse-malformed", id="deep"),
        pytest.param(edit(1, choices=None), "sse-malformed", id="no-choices"),
        pytest.param(edit(1, choices=["x"]), "sse-malformed", id="choice-is-text"),
        pytest.param(edit(1, usage="x"), "sse-malformed", id="usage-is-text"),
        pytest.param(delta(1, content=5), "sse-malformed", id="content-is-a-number"),
        pytest.param(delta(1, content="\ud800"), "sse-malformed", id="lone-surrogate"),
        pytest.param(edit(1, choices=[{}, {}]), "choice", id="two-choices"),
        pytest.param(delta(1, index=1), "choice", id="index-1"),
        pytest.param(delta(1, tool_calls=[{}]), "choice", id="tool-call"),
        pytest.param(edit(1, id="other"), "response-id", id="two-ids"),
        pytest.param(edit(1, id=None), "response-id", id="no-id"),
        pytest.param(lambda e: e.pop(-3), "finish-reason", id="never-finished"),
        pytest.param(lambda e: e.insert(-3, e[-3]), "finish-reason", id="finished-twice"),
        pytest.param(delta(-3, finish_reason="abort"), "finish-reason", id="abort"),
        pytest.param(lambda e: e.insert(-2, e[2]), "finish-reason", id="text-after-the-finish"),
        pytest.param(lambda e: e.pop(-2), "usage-missing", id="no-usage"),
        pytest.param(lambda e: e.insert(-2, e[-2]), "usage-missing", id="usage-twice"),
        pytest.param(usage(total_tokens=20), "usage-mismatch", id="total"),
        pytest.param(usage(completion_tokens=None), "usage-mismatch", id="no-count"),
        pytest.param(usage(completion_tokens=True), "usage-mismatch", id="count-is-a-truth"),
        pytest.param(usage(completion_tokens=65, total_tokens=74), "usage-mismatch", id="cap"),
        pytest.param(usage(prompt_tokens=0, total_tokens=10), "usage-mismatch", id="no-prompt"),
        pytest.param(delta(-3, finish_reason="length"), "usage-mismatch", id="length-below-cap"),
    ],
)
def test_a_fault_in_the_stream_fails_the_request(change, code):
    assert (code,) == parse(spoiled(change)).failed


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        pytest.param(lambda raw: raw[:-5], {"early-eof"}, id="last-chunk-missing"),
        pytest.param(lambda raw: raw + b"x", {"http-framing"}, id="bytes-after-the-body"),
        pytest.param(
            lambda raw: raw.replace(b"200 OK", b"500 No", 1), {"http-status"}, id="status-500"
        ),
        pytest.param(
            lambda raw: raw.replace(b"HTTP/1.1", b"nonsense", 1),
            {"http-framing", "no-done", "finish-reason", "usage-missing", "response-id"},
            id="not-http",
        ),
        pytest.param(
            lambda raw: b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
            {"http-framing", "no-done", "finish-reason", "usage-missing", "response-id"},
            id="switched-protocol",
        ),
        pytest.param(
            lambda raw: b"",
            {"early-eof", "no-done", "finish-reason", "usage-missing", "response-id"},
            id="empty",
        ),
    ],
)
def test_a_fault_of_http_fails_the_request(change, codes):
    assert codes == set(parse(change(stream(GOOD, "a"))).failed)


@pytest.mark.parametrize("outcome", ["timeout", "reset", "refused", "aborted", "client-died"])
def test_every_end_but_fin_fails_the_request(outcome):
    assert f"outcome-{outcome}" in parse(stream(GOOD, "a"), outcome=outcome).failed


def test_an_error_with_status_200_and_no_stream_is_a_failure():
    body = b'{"error": {"message": "no"}}'
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    assert {"no-done", "finish-reason", "usage-missing"} < set(parse(raw).failed)


def test_an_event_without_its_blank_line_is_no_event():
    whole = b"data: [DONE]\n\n"

    assert "sse-malformed" in parse(response([whole[:-1]])).failed
    assert "sse-malformed" not in parse(response([whole])).failed


def test_a_stream_that_is_not_utf8_is_malformed_even_in_a_comment():
    assert "sse-malformed" in parse(response([b": \xff\n\n", b"data: [DONE]\n\n"])).failed


def test_line_ends_comments_and_other_separators_do_not_matter():
    text = json.dumps(frames(Reply(content="a\u2028b\u0085c"), "x")[2], ensure_ascii=False)
    lines = f": ping\r\n\r\ndata:{text}\r\rdata: [DONE]\n\n".encode()

    assert "a\u2028b\u0085c" == parse(response([lines])).content


@given(raw=st.binary(max_size=300), outcome=st.sampled_from(["fin", "reset"]))
@example(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", outcome="fin")
def test_any_bytes_give_a_reply_and_none_of_them_a_valid_one(raw, outcome):
    assert parse(raw, outcome=outcome).failed


@given(data=st.data())
def test_a_changed_byte_of_a_stream_never_crashes_and_a_cut_one_never_passes(data):
    raw = bytearray(stream(GOOD, "a"))
    place = data.draw(st.integers(0, len(raw) - 1))

    assert parse(bytes(raw[:place])).failed
    raw[place] = data.draw(st.integers(0, 255))
    parse(bytes(raw))


@given(data=st.data())
def test_how_the_body_is_chunked_does_not_matter(data):
    events = [f"data: {json.dumps(f, ensure_ascii=False)}\n\n" for f in frames(
        Reply(reasoning="\u00e9t\u00e9", content="\U0001f600 7 \u20ac"), "a")]  # fmt: skip
    body = "".join([*events, "data: [DONE]\n\n"]).encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=20)))
    edges = [0, *cuts, len(body)]

    reply = parse(response(body[a:b] for a, b in itertools.pairwise(edges)))

    assert ("\u00e9t\u00e9", "\U0001f600 7 \u20ac", ()) == (
        reply.reasoning,
        reply.content,
        reply.failed,
    )


@pytest.mark.parametrize(
    ("reads", "is_good"),
    [
        pytest.param([(1, 3), (5, 4), (5, 0)], True, id="adds-up"),
        pytest.param([(1, 3), (5, 3)], False, id="a-byte-short"),
        pytest.param([(5, 3), (1, 4)], False, id="backwards"),
        pytest.param([], False, id="none"),
    ],
)
def test_reads_must_add_up_and_run_forward(reads, is_good):
    assert is_good is check_reads(reads, 7)


@pytest.mark.rule("P5.3")
def test_the_body_is_the_one_of_aisbench_to_the_byte():
    body = chat_body(
        model="m",
        prompt="2 \u20ac?",
        max_tokens=4096,
        generation_kwargs={"chat_template_kwargs": {"enable_thinking": True}, "seed": 1},
    )

    assert (
        b'{"stream": true, "messages": [{"content": "2 \\u20ac?", "role": "user"}], '
        b'"stream_options": {"include_usage": true}, '
        b'"chat_template_kwargs": {"enable_thinking": true}, "seed": 1, '
        b'"max_tokens": 4096, "model": "m"}'
    ) == body_bytes(body)
