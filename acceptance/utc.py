"""UTC texts -> integers of nanoseconds since 1970, exact to the last digit that is written."""

import re
from datetime import UTC, datetime

_UTC = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)", re.ASCII)

NS_PER_S = 1_000_000_000


def parse_utc(text: str) -> int:
    """ "2026-11-07T12:14:20.25Z" -> ns. ValueError for anything that is not a UTC time: a time
    without a zone is nobody's, and another zone is another spelling of the same moment."""
    found = _UTC.fullmatch(text)
    if found is None:
        raise ValueError(f"not a UTC time like 2026-11-07T12:14:20Z: {text[:40]!r}")
    whole = datetime.fromisoformat(found.group(1)).replace(tzinfo=UTC)
    return int(whole.timestamp()) * NS_PER_S + int((found.group(2) or "0").ljust(9, "0"))
