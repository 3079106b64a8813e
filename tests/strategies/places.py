"""Where made-up runs are written: in memory where the machine offers it, many small files are
slow on a disk."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")


@contextmanager
def fast_directory() -> Iterator[Path]:
    """A directory of its own, gone afterwards."""
    base = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 64 << 20 else None
    with tempfile.TemporaryDirectory(prefix="made-up-runs-", dir=base) as name:
        yield Path(name)
