"""Path in a run directory -> bytes, or one line that says why not."""

import stat
from pathlib import Path

from .strict import Refused


def load(root: Path, path: str) -> bytes:
    """Bytes of a regular file of the run. Refused if it can't be read."""
    try:
        if not stat.S_ISREG((root / path).stat().st_mode):
            raise Refused(path, "", "is no regular file")
        return (root / path).read_bytes()
    except OSError as error:
        raise Refused(path, "", error.strerror or "can't be read") from None
