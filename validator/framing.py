"""The bytes of one connection -> one HTTP/1.1 response: its status, its body, and where both end.

Read after the fact from the whole of the bytes. Positions are offsets in the raw bytes, so that
every byte of the body can be traced to the read that brought it.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

HEAD_END = re.compile(rb"\n\r?\n")
STATUS_LINE = re.compile(rb"HTTP/[0-9]\.[0-9] ([0-9]{3})(?: [^\x00\r\n\x0b\x0c]*)?")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00\r\n\x0b\x0c]*)")
CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;[^\n]*?)?[ \t]*")
LENGTH = re.compile(rb"[0-9]{1,20}")


class Malformed(Exception):
    """These bytes are no HTTP response."""


class Cut(Exception):
    """The bytes end before the response does."""


@dataclass(frozen=True)
class Piece:
    """A run of bytes of the body: its offset in the body, in the raw bytes, and its size."""

    body_at: int
    raw_at: int
    size: int


@dataclass(frozen=True)
class Response:
    """status: None without a complete head. delimiter: "chunked", "length" or "close".
    problem: "http-framing", "early-eof" or None. end_read: index of the read that completed the
    body, None when nothing did. pieces: where the body lies in the raw bytes, in order."""

    status: int | None
    delimiter: str | None
    body: bytes
    problem: str | None
    end_read: int | None
    pieces: tuple[Piece, ...]
    ends: tuple[int, ...]

    def read_at(self, offset: int) -> int:
        """Index of the read that brought the byte of the body at `offset`."""
        index = bisect_right(self.pieces, offset, key=lambda piece: piece.body_at) - 1
        piece = self.pieces[index]
        return bisect_right(self.ends, piece.raw_at + offset - piece.body_at)


def frame(raw: bytes, counts: list[int]) -> Response:
    """Frame the bytes of a connection. counts: bytes of each read, a last 0 being FIN."""
    return _Reading(raw, counts).response()


class _Reading:
    def __init__(self, raw: bytes, counts: list[int]) -> None:
        self.raw = raw
        self.has_fin = bool(counts) and counts[-1] == 0
        self.fin_read = len(counts) - 1
        self.ends = tuple(accumulate(counts))
        self.at = 0
        self.status: int | None = None
        self.delimiter: str | None = None
        self.pieces: list[Piece] = []
        self.size = 0

    def response(self) -> Response:
        problem, end_read = None, None
        try:
            length = self._head()
            end_read = self._body(length)
            if self.at < len(self.raw):
                raise Malformed
        except Malformed:
            problem, end_read = "http-framing", None
        except Cut:
            problem = "early-eof" if self.has_fin else None
        body = b"".join(self.raw[p.raw_at : p.raw_at + p.size] for p in self.pieces)
        return Response(
            self.status, self.delimiter, body, problem, end_read, tuple(self.pieces), self.ends
        )

    def _head(self) -> int:
        """Read up to the blank line of the final response; the body's length where it is known."""
        while True:
            if self.raw[self.at : self.at + 1] < b"!" and self.at < len(self.raw):
                raise Malformed
            first, *lines = self._lines()
            found = STATUS_LINE.fullmatch(first)
            if found is None:
                raise Malformed
            fields = _fields(lines)
            status = int(found[1])
            if status == 101 or status < 100:
                raise Malformed
            if status < 200:
                continue
            delimiter, length = _delimiter(status, fields)
            self.status, self.delimiter = status, delimiter
            return length

    def _lines(self) -> list[bytes]:
        """The lines up to the next blank line, which ends the head."""
        end = HEAD_END.search(self.raw, self.at)
        if end is None:
            raise Cut
        lines = self.raw[self.at : end.start()].split(b"\n")
        self.at = end.end()
        return [line.removesuffix(b"\r") for line in lines]

    def _body(self, length: int) -> int | None:
        if self.delimiter == "chunked":
            while size := self._chunk_size():
                self._take(size)
                footer = self.raw[self.at : self.at + 2]
                if not b"\r\n".startswith(footer):
                    raise Malformed
                if len(footer) < 2:
                    raise Cut
                self.at += 2
            self._trailer()
            return bisect_right(self.ends, self.at - 1)
        if self.delimiter == "length":
            self._take(length)
            return bisect_right(self.ends, self.at - 1)
        self._take(len(self.raw) - self.at)
        if not self.has_fin:
            raise Cut
        return self.fin_read

    def _take(self, size: int) -> None:
        """The next `size` bytes of the body, as far as they came."""
        here = min(size, len(self.raw) - self.at)
        if here:
            self.pieces.append(Piece(self.size, self.at, here))
            self.size += here
            self.at += here
        if here < size:
            raise Cut

    def _chunk_size(self) -> int:
        end = self.raw.find(b"\r\n", self.at)
        if end < 0:
            raise Cut
        found = CHUNK_LINE.fullmatch(self.raw, self.at, end)
        if found is None:
            raise Malformed
        self.at = end + 2
        return int(found[1], 16)

    def _trailer(self) -> None:
        for empty in (b"\n", b"\r\n"):
            if self.raw.startswith(empty, self.at):
                self.at += len(empty)
                return
        _fields(self._lines())


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Header fields, names in lower case; a line that begins with a blank continues the last."""
    unfolded: list[bytes] = []
    for line in lines:
        if line[:1] in (b" ", b"\t"):
            if not unfolded:
                raise Malformed
            unfolded[-1] += b" " + line.lstrip(b" \t")
        else:
            unfolded.append(line)
    fields = []
    for line in unfolded:
        found = FIELD.fullmatch(line)
        if found is None:
            raise Malformed
        fields.append((found[1].lower(), found[2].strip(b" \t")))
    return fields


def _delimiter(status: int, fields: list[tuple[bytes, bytes]]) -> tuple[str, int]:
    """How the body ends (RFC 9112, 6.3), and its length where that is how."""
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    values = [value for name, value in fields if name == b"content-length"]
    lengths = {one.strip(b" \t") for value in values for one in value.split(b",")}
    if codings not in ([], [b"chunked"]) or len(lengths) > 1:
        raise Malformed
    if not all(LENGTH.fullmatch(one) for one in lengths):
        raise Malformed
    if status in (204, 304):
        return "length", 0
    if codings:
        return "chunked", 0
    return ("length", int(lengths.pop())) if lengths else ("close", 0)
