"""Segments in /dev/shm: which ones a service made, and whether they are gone with it.

A server that is killed leaves segments behind, and they hold memory until the next boot.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from acceptance.processes import mapped_files, open_files

SHARED_MEMORY = Path("/dev/shm")


def segments() -> set[str]:
    """Names of all segments and named semaphores; empty where the machine has no /dev/shm."""
    try:
        return set(os.listdir(SHARED_MEMORY))
    except OSError:
        return set()


def held(pids: Iterable[int]) -> set[str]:
    """Segments that these processes have mapped or open, and that still have a name."""
    prefix = f"{SHARED_MEMORY}/"
    return {
        path.removeprefix(prefix).partition("/")[0]
        for pid in pids
        for path in (*mapped_files(pid), *open_files(pid))
        if path.startswith(prefix) and not path.endswith(" (deleted)")
    }


def named_for(names: Iterable[str], pids: Iterable[int]) -> set[str]:
    """Segments whose name holds one of the pids as a number, as OpenMP's registration does."""
    wanted = {str(pid) for pid in pids}
    return {name for name in names if wanted & set(re.findall(r"\d+", name))}


def remove(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove segments; returns (removed, left), sorted. One that is gone already is in neither."""
    removed, left = [], []
    for name in sorted(names):
        try:
            (SHARED_MEMORY / name).unlink()
            removed.append(name)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(name)
    return tuple(removed), tuple(left)
