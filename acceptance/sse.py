"""Stored bytes -> HTTP response -> events -> frames, each with the read that completed it.

Pure, and after the fact: nothing here runs during a wave. A frame is complete with the blank line
that ends it, and has arrived with the read that brought the last byte of that line.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import h11

BOM = b"\xef\xbb\xbf"
DONE = b"[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An HTTP response as far as it came.

    status: None when no complete head came.
    framing: how the body is delimited; None without a head.
    problem: "http-framing" (malformed, or bytes after the end of the body) or "early-eof" (FIN
        before the end of the body), None otherwise, also when neither end nor FIN came.
    end_read: index of the read that completed the body: that with the terminating zero-length
        chunk, or FIN for a body delimited by close (P4.0); None when it is not complete.
    arrivals: (offset after the last byte, index of the read) for the body, in order.
    """

    status: int | None
    headers: tuple[tuple[str, str], ...]
    body: bytes
    framing: Literal["chunked", "length", "close"] | None
    problem: Literal["http-framing", "early-eof"] | None
    end_read: int | None
    arrivals: tuple[tuple[int, int], ...]

    def read_of(self, offset: int) -> int:
        """Index of the read that brought the byte of the body at `offset`."""
        return self.arrivals[bisect_right(self.arrivals, offset, key=lambda pair: pair[0])][1]


def frame_response(raw: bytes, counts: Sequence[int]) -> Response:
    """Frame the bytes of one connection that carried one response.

    counts: bytes of each read in order; their sum is len(raw), a 0 is FIN and the last.
    """
    framer = _Framer()
    offset = 0
    for index, count in enumerate(counts):
        framer.feed(raw[offset : offset + count], index)
        offset += count
    return framer.response()


class _Framer:
    """Feeds h11 one read at a time, so that whatever it emits has come with that read."""

    def __init__(self) -> None:
        self.connection = h11.Connection(h11.CLIENT)
        # h11 accepts a response only to a request; "Connection: close" is what ours says.
        headers = [("Host", "service"), ("Connection", "close")]
        self.connection.send(h11.Request(method="POST", target="/", headers=headers))
        self.connection.send(h11.EndOfMessage())
        self.head: h11.Response | None = None
        self.parts: list[bytes] = []
        self.size = 0
        self.arrivals: list[tuple[int, int]] = []
        self.problem: Literal["http-framing", "early-eof"] | None = None
        self.end_read: int | None = None

    def feed(self, data: bytes, index: int) -> None:
        if self.problem is not None:
            return
        if self.end_read is not None:
            self._refuse_more(data)
            return
        try:
            self.connection.receive_data(data)
            while True:
                event = self.connection.next_event()
                if isinstance(event, h11.Response):
                    self.head = event
                elif isinstance(event, h11.Data):
                    self._keep(bytes(event.data), index)
                elif isinstance(event, h11.EndOfMessage):
                    self.end_read = index
                    self._refuse_more(self.connection.trailing_data[0])
                    return
                elif not isinstance(event, h11.InformationalResponse):
                    return
        except h11.RemoteProtocolError:
            self.problem = "http-framing" if data else "early-eof"

    def _keep(self, data: bytes, index: int) -> None:
        if data:
            self.parts.append(data)
            self.size += len(data)
            self.arrivals.append((self.size, index))

    def _refuse_more(self, data: bytes) -> None:
        if data:
            self.problem = "http-framing"

    def response(self) -> Response:
        head = self.head
        headers = (
            ()
            if head is None
            else tuple(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers
            )
        )
        return Response(
            status=None if head is None else head.status_code,
            headers=headers,
            body=b"".join(self.parts),
            framing=None if head is None else _framing(dict(headers)),
            problem=self.problem,
            end_read=None if self.problem else self.end_read,
            arrivals=tuple(self.arrivals),
        )


def _framing(headers: dict[str, str]) -> Literal["chunked", "length", "close"]:
    if "transfer-encoding" in headers:
        return "chunked"
    return "length" if "content-length" in headers else "close"


@dataclass(frozen=True, slots=True)
class Event:
    """One Server-Sent Event: its data, lines joined with LF, and the offset after its blank
    line."""

    data: bytes
    end: int


def split_events(body: bytes) -> tuple[tuple[Event, ...], bool]:
    """The events of a whole body, and whether something unfinished stands at its end.

    Lines end with LF, CRLF or CR and with nothing else (not with U+2028). Comments and the fields
    `event`, `id`, `retry` and unknown ones are passed over. An event without a `data` field is
    none. Unfinished: a line without its end, or a `data` field without the blank line.
    """
    events: list[Event] = []
    data: list[bytes] = []
    position = len(BOM) if body.startswith(BOM) else 0
    while position < len(body):
        line, after = _next_line(body, position)
        if after is None:
            return tuple(events), True
        position = after
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" "))
        elif data:
            events.append(Event(b"\n".join(data), position))
            data = []
    return tuple(events), bool(data)


def _next_line(body: bytes, position: int) -> tuple[bytes, int | None]:
    """The line at `position` and the offset after its end; None when it has no end."""
    feed = body.find(b"\n", position)
    carriage = body.find(b"\r", position, None if feed < 0 else feed)
    if carriage >= 0:
        width = 2 if feed == carriage + 1 else 1
        return body[position:carriage], carriage + width
    if feed >= 0:
        return body[position:feed], feed + 1
    return body[position:], None


def parse_json(data: bytes) -> Any:
    """Strict JSON of UTF-8 bytes. ValueError also for NaN, Infinity and a key given twice."""
    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is given twice")
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One event of a completion stream, read.

    kind: "done" is `[DONE]`; "error" a JSON object that reports an error; "malformed" what is
        neither JSON nor `[DONE]`, or JSON of another shape; "data" the rest.
    read: index of the read that completed it.
    token_ids: generated IDs of its choice; empty when there are none.
    """

    kind: Literal["data", "done", "error", "malformed"]
    read: int
    token_ids: tuple[int, ...] = ()
    prompt_token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None
    has_other_choice: bool = False
    usage: dict[str, Any] | None = None


def read_frames(response: Response) -> tuple[tuple[Frame, ...], bool]:
    """The frames of a stream, and whether its text is malformed as a whole: not UTF-8, or
    something unfinished at its end."""
    events, is_unfinished = split_events(response.body)
    frames = tuple(_read_frame(event.data, response.read_of(event.end - 1)) for event in events)
    return frames, is_unfinished or not _is_utf8(response.body)


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _read_frame(data: bytes, read: int) -> Frame:
    if data == DONE:
        return Frame(kind="done", read=read)
    try:
        value = parse_json(data)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        if value.get("error") is not None or value.get("object") == "error":
            return Frame(kind="error", read=read)
        return _read_object(value, read)
    except ValueError:
        return Frame(kind="malformed", read=read)


def _read_object(value: dict[str, Any], read: int) -> Frame:
    """ValueError when a field that we read has another type than vLLM gives it."""
    usage = value.get("usage")
    choices = value.get("choices")
    choices = [] if choices is None else choices
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ValueError("choices is not a list of objects")
    if not isinstance(usage, dict | None):
        raise ValueError("usage is not an object")
    if not choices:
        return Frame(kind="data", read=read, usage=usage)
    choice, index = choices[0], choices[0].get("index")
    finish = choice.get("finish_reason")
    if not isinstance(finish, str | None):
        raise ValueError("finish_reason is not a string")
    return Frame(
        kind="data",
        read=read,
        token_ids=_ids(choice.get("token_ids")) or (),
        prompt_token_ids=_ids(choice.get("prompt_token_ids")),
        finish_reason=finish,
        has_other_choice=len(choices) > 1 or type(index) is not int or index != 0,
        usage=usage,
    )


def _ids(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or any(type(one) is not int or one < 0 for one in value):
        raise ValueError("token IDs are not a list of natural numbers")
    return tuple(value)
