"""Hypothesis strategies: answers of a service, what may happen to their bytes, and reads."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.strategies import wire

PROMPT = (1, 2, 3)


@dataclass(frozen=True)
class Answer:
    """A complete answer: the IDs of its token frames, its events and its bytes."""

    frames: tuple[tuple[int, ...], ...]
    events: tuple[bytes, ...]
    raw: bytes

    @property
    def count(self) -> int:
        return sum(map(len, self.frames))


NOISE = (b": ping\n\n", b":\n", b"event: x\nid: 7\n\n", b"retry: 5\n\n", b"unknown\n\n", b"\n")


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """A right answer: any grouping of tokens, any line ends, noise between events, either
    framing, any grouping of bytes into chunks."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    frames = tuple(
        tuple(draw(st.lists(st.integers(0, 99999), min_size=size, max_size=size))) for size in sizes
    )
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    events = [one.replace(b"\n", end) for one in wire.stream(PROMPT, frames)]
    for _ in range(draw(st.integers(0, 2))):
        noise = draw(st.sampled_from(NOISE)).replace(b"\n", end)
        events.insert(draw(st.integers(0, len(events))), noise)
    body = b"".join(events)
    if draw(st.booleans()):
        return Answer(frames, tuple(events), wire.CLOSE + body)
    cuts = draw(st.lists(st.integers(1, len(body) - 1), max_size=6, unique=True))
    parts = split(body, sorted(cuts))
    extension = draw(st.sampled_from([b"", b";a=b", b';q="x y"']))
    chunks = [b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts]
    trailer = draw(st.sampled_from([b"", b"x-took: 5\r\n"]))
    raw = wire.CHUNKED + b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"
    return Answer(frames, tuple(events), raw)


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The pieces between sorted cuts."""
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@st.composite
def reads_of(draw: st.DrawFn, raw: bytes) -> tuple[tuple[int, int], ...]:
    """Any grouping of the bytes into reads, later ones not earlier, then FIN."""
    largest = max(len(raw) - 1, 1)
    cuts = draw(st.lists(st.integers(1, largest), max_size=12, unique=True))
    sizes = [len(part) for part in split(raw, sorted(cuts)) if part]
    gaps = draw(st.lists(st.integers(0, 10**7), min_size=len(sizes) + 1, max_size=len(sizes) + 1))
    reads, now = [], 100
    for gap, size in zip(gaps, [*sizes, 0], strict=True):
        now += gap
        reads.append((now, size))
    return tuple(reads)


SNIPPETS = (
    b"\r\n", b"\n", b"\r", b"\n\n", wire.END, wire.DONE, b": x\n\n", b"\xff", b"\x00", b" ", b"{",
    b"5;ext=1\r\nhello\r\n", b"content-length: 5\r\n", b"HTTP/1.1 100 Continue\r\n\r\n",
    b"data: {}\n\n", b'data: {"error":{}}\n\n', b"data: ", b'"token_ids":[1]',
)  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with one to three changes: a byte, a cut, an insertion, a repetition."""
    data = bytearray(raw)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["byte", "cut", "insert", "end", "twice"])):
            case "byte":
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case "cut":
                del data[at : at + draw(st.integers(1, 8))]
            case "insert":
                data[at:at] = draw(st.sampled_from(SNIPPETS))
            case "end":
                del data[at:]
            case "twice":
                data[at:at] = data[max(0, at - 40) : at]
    return bytes(data)
