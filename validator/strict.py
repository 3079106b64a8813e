"""Bytes of a record -> checked values, or one line that says which file, where in it, and why not.

JSON as the run directory has it: UTF-8, canonical (RFC 8785), no floats, no key twice, every key
known. A reader takes a value and its place and gives the checked value.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection
from fractions import Fraction
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
Reader = Callable[[Any, str], T]

INTEGER_MAX = (1 << 53) - 1
"""Largest integer of canonical JSON."""

RATIO = re.compile(r"(0|-?[1-9][0-9]*)/([1-9][0-9]*)")
RATIO_LENGTH_MAX = 4096


class Refused(Exception):
    """A file that can't be read as what it should be. `str()` is one line."""

    def __init__(self, file: str, place: str, reason: str) -> None:
        self.file, self.place, self.reason = file, place, reason
        parts = (file, place, reason) if place else (file, reason)
        super().__init__(" ".join(": ".join(parts).split()))


class Misfit(Exception):
    """A value that a reader does not take."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place, self.reason = place, reason


def read(data: bytes, file: str, reader: Reader[T]) -> T:
    """A canonical JSON file, checked. Refused when it is anything else."""
    value = parse(data, file)
    try:
        return reader(value, "")
    except Misfit as error:
        raise Refused(file, error.place, error.reason) from None


def parse(data: bytes, file: str) -> Any:
    """Canonical JSON without floats."""
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_number,
            parse_float=_no_number,
            parse_int=_integer,
        )
        is_canonical = canonical(value) == data
    except json.JSONDecodeError as error:
        raise Refused(file, f"character {error.pos}", f"not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise Refused(file, f"byte {error.start}", "not UTF-8") from None
    except UnicodeEncodeError:
        raise Refused(file, "", "text with half a surrogate pair") from None
    except ValueError as error:
        raise Refused(file, "", str(error)) from None
    except RecursionError:
        raise Refused(file, "", "nested too deeply") from None
    if not is_canonical:
        raise Refused(file, "", "not canonical JSON (RFC 8785)")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"key {key[:60]!r} is given twice")
        seen[key] = value
    return seen


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is no integer; records hold integers only")


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"an integer of {len(text)} digits is beyond 2^53-1")
    return int(text)


def canonical(value: Any) -> bytes:
    """RFC 8785 for null, booleans, integers, strings, lists and objects; nothing else is ours."""
    return _text(value).encode("utf-8")


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        # RFC 8785 sorts by UTF-16 code units, which differs from code points beyond the BMP.
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_text(name)}:{_text(value[name])}" for name in names) + "}"
    raise TypeError(f"{type(value).__name__} has no place in a record")


def digest(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def exact(text: str) -> Fraction:
    """ "n/d" in lowest terms -> Fraction. ValueError for any other spelling."""
    found = RATIO.fullmatch(text) if len(text) <= RATIO_LENGTH_MAX else None
    if found is None:
        raise ValueError(f"{text[:60]!r} is no exact ratio n/d")
    value = Fraction(int(found[1]), int(found[2]))
    if ratio_text(value) != text:
        raise ValueError(f"{text[:60]!r} is not in lowest terms")
    return value


def ratio_text(value: Fraction) -> str:
    """Fraction -> "n/d"."""
    return f"{value.numerator}/{value.denominator}"


def integer(value: Any, place: str) -> int:
    """Any integer of canonical JSON; true and false are none."""
    if type(value) is not int:
        raise Misfit(place, f"{_show(value)} is no integer")
    if abs(value) > INTEGER_MAX:
        raise Misfit(place, f"{_show(value)} is beyond 2^53-1")
    return value


def natural(value: Any, place: str) -> int:
    """0, 1, 2, ..."""
    if integer(value, place) < 0:
        raise Misfit(place, f"{value} is negative")
    return int(value)


def boolean(value: Any, place: str) -> bool:
    """true or false, not 1 or 0."""
    if type(value) is not bool:
        raise Misfit(place, f"{_show(value)} is neither true nor false")
    return value


def text(value: Any, place: str) -> str:
    """A string of real characters."""
    if not isinstance(value, str):
        raise Misfit(place, f"{_show(value)} is no text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Misfit(place, "text with half a surrogate pair") from None
    return value


def sha256(value: Any, place: str) -> str:
    """64 lower-case hexadecimal digits."""
    if not re.fullmatch(r"[0-9a-f]{64}", text(value, place)):
        raise Misfit(place, f"{_show(value)} is no SHA-256")
    return str(value)


def decimal(value: Any, place: str) -> int:
    """An integer that was written as text, because it may be beyond 2^53-1."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,29}", text(value, place)):
        raise Misfit(place, f"{_show(value)} is no decimal integer")
    return int(value)


def ratio(value: Any, place: str) -> Fraction:
    """An exact ratio, "n/d" in lowest terms."""
    try:
        return exact(text(value, place))
    except ValueError as error:
        raise Misfit(place, str(error)) from None


def file_name(value: Any, place: str) -> str:
    """The name of a file in the same directory, and no path."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}", text(value, place)):
        raise Misfit(place, f"{_show(value)} is no plain file name")
    return str(value)


def one_of(known: Collection[str]) -> Reader[str]:
    """One of some words."""

    def reader(value: Any, place: str) -> str:
        if text(value, place) not in known:
            raise Misfit(place, f"{_show(value)} is none of {', '.join(known)}")
        return str(value)

    return reader


def schema(known: int) -> Reader[int]:
    """The schema number that this validator knows."""

    def reader(value: Any, place: str) -> int:
        if integer(value, place) != known:
            raise Misfit(place, f"schema {value} is not known here, only {known}")
        return known

    return reader


def nullable(reader: Reader[T]) -> Reader[T | None]:
    """What the reader takes, or null: unknown."""
    return lambda value, place: None if value is None else reader(value, place)


def array(reader: Reader[T]) -> Reader[tuple[T, ...]]:
    """A list whose items the reader takes."""

    def read_array(value: Any, place: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise Misfit(place, f"{_show(value)} is no list")
        return tuple(reader(one, f"{place}[{number}]") for number, one in enumerate(value))

    return read_array


def mapping(reader: Reader[T]) -> Reader[dict[str, T]]:
    """An object with any keys, whose values the reader takes."""

    def read_mapping(value: Any, place: str) -> dict[str, T]:
        if not isinstance(value, dict):
            raise Misfit(place, f"{_show(value)} is no object")
        return {text(k, place): reader(v, _below(place, k)) for k, v in value.items()}

    return read_mapping


def record(make: Callable[..., T], **fields: Reader[Any]) -> Reader[T]:
    """An object with exactly these keys."""

    def read_record(value: Any, place: str) -> T:
        if not isinstance(value, dict):
            raise Misfit(place, f"{_show(value)} is no object")
        for name in value:
            if name not in fields:
                raise Misfit(_below(place, name), "this key is not known")
        for name in fields:
            if name not in value:
                raise Misfit(_below(place, name), "is missing")
        return make(**{n: reader(value[n], _below(place, n)) for n, reader in fields.items()})

    return read_record


def _below(place: str, name: str) -> str:
    shown = name[:60].encode("ascii", "backslashreplace").decode()
    return f"{place}.{shown}" if place else shown


def _show(value: Any) -> str:
    """The value as JSON, in ASCII, cut to something that can be read."""
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
