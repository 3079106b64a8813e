"""Values -> canonical bytes (RFC 8785) and their SHA-256. Equal content means equal bytes."""

import hashlib
from typing import Any

import msgspec
import rfc8785


def canonical(value: Any) -> bytes:
    """The one serialisation of a record or of plain JSON values.

    Raises ValueError for an integer beyond 2^53-1 or a float that is not finite.
    """
    return rfc8785.dumps(msgspec.to_builtins(value))


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256 of the bytes as stored."""
    return hashlib.sha256(data).hexdigest()
