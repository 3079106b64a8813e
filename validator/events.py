"""The body of a stream -> Server-Sent Events -> what each says, as far as a verdict needs it."""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

LINE_END = re.compile(rb"\r\n|\n|\r")
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Event:
    """One event: its data, and the offset of the last byte of the blank line that ends it."""

    data: bytes
    last_byte: int


def events(body: bytes) -> tuple[list[Event], bool]:
    """Events of a body, and whether it ends inside of one or inside of a line.

    A line ends with CRLF, LF or CR. Fields other than `data`, and comments, say nothing; several
    `data` lines are joined with LF; one blank after the colon belongs to the field's name.
    """
    found: list[Event] = []
    pending: list[bytes] = []
    start = len(BOM) if body.startswith(BOM) else 0
    for end in LINE_END.finditer(body, start):
        line, start = body[start : end.start()], end.end()
        if line == b"data" or line.startswith(b"data:"):
            value = line[5:]
            pending.append(value[1:] if value[:1] == b" " else value)
        elif line == b"" and pending:
            found.append(Event(b"\n".join(pending), end.end() - 1))
            pending = []
    return found, start < len(body) or bool(pending)


@dataclass(frozen=True)
class Said:
    """What an event says. kind: "done", "error", "malformed" or "data"."""

    kind: str
    token_ids: tuple[int, ...] = ()
    echo: tuple[int, ...] | None = None
    finish: str | None = None
    is_foreign_choice: bool = False
    usage: dict[str, Any] | None = None


MALFORMED = Said("malformed")


def said(data: bytes) -> Said:
    """Read the data of an event of a completion stream."""
    if data == b"[DONE]":
        return Said("done")
    try:
        value = stream_json(data)
    except ValueError:
        return MALFORMED
    if not isinstance(value, dict):
        return MALFORMED
    if value.get("error") is not None or value.get("object") == "error":
        return Said("error")
    choices, usage = value.get("choices"), value.get("usage")
    if usage is not None and not isinstance(usage, dict):
        return MALFORMED
    if choices is None or choices == []:
        return Said("data", usage=usage)
    if not isinstance(choices, list) or any(not isinstance(one, dict) for one in choices):
        return MALFORMED
    first = choices[0]
    finish = first.get("finish_reason")
    ids, echo = (_ids(first.get(name)) for name in ("token_ids", "prompt_token_ids"))
    if ids is False or echo is False or not (finish is None or isinstance(finish, str)):
        return MALFORMED
    index = first.get("index")
    is_foreign = len(choices) != 1 or type(index) is not int or index != 0
    return Said("data", ids or (), echo, finish, is_foreign, usage)


def _ids(value: Any) -> Any:
    """Token IDs as a tuple, None for null, False for anything else."""
    if value is None:
        return None
    if not isinstance(value, list):
        return False
    if not all(type(one) is int and one >= 0 for one in value):
        return False
    return tuple(value)


def stream_json(data: bytes) -> Any:
    """JSON as a service may send it: floats are allowed, a key twice, NaN and Infinity are not.

    ValueError for everything that is not.
    """
    try:
        return json.loads(
            data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
