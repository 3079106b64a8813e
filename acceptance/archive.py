"""Bytes -> files that are written once, and directories that are sealed (P6.1 to P6.3)."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from acceptance.canonical import canonical, sha256
from acceptance.errors import UsageError
from acceptance.records import SCHEMA, FileHash, Manifest

MANIFEST = "manifest.json"
MANIFEST_HASH = "manifest.sha256"


def write_once(path: Path, data: bytes) -> FileHash:
    """Write a file that does not exist yet: temporary name, fsync, link, so that it is whole or
    absent. FileExistsError if the name is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
    return FileHash(path=path.name, size=len(data), sha256=sha256(data))


def write_record(path: Path, record: Any) -> FileHash:
    """Write a record as canonical JSON, once."""
    return write_once(path, canonical(record))


def hash_file(path: Path, root: Path) -> FileHash:
    """Size and SHA-256 of a file, named relative to `root`."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileHash(path=path.relative_to(root).as_posix(), size=path.stat().st_size, sha256=digest)


def files_below(directory: Path) -> list[Path]:
    """All regular files below a directory, sorted; caches of Python left out."""
    found = directory.rglob("*")
    return sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts)


def hash_below(directory: Path, root: Path) -> tuple[FileHash, ...]:
    """Hashes of `files_below`."""
    return tuple(hash_file(path, root) for path in files_below(directory))


def check_run_dir(runs: Path, run_id: str, bytes_needed: int) -> None:
    """A used id (P6.3) or a disk without room is a UsageError; nothing is made but `runs`."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(runs).free
    except OSError as error:
        raise UsageError(f"{runs}: can't keep runs there: {error.strerror}") from None
    if free < bytes_needed:
        raise UsageError(
            f"{runs}: {free >> 20} MiB free, {bytes_needed >> 20} MiB needed for the archive; "
            "free some space or set ACCEPTANCE_RUNS to another disk"
        )
    if os.path.lexists(runs / run_id):
        raise UsageError(
            f"{runs / run_id}: this run id was used; a run id is used once, give another --run-id"
        )


def create_run_dir(runs: Path, run_id: str, bytes_needed: int) -> Path:
    """Make `runs/<run-id>/`. UsageError as in `check_run_dir`, or if somebody was faster."""
    check_run_dir(runs, run_id, bytes_needed)
    try:
        (runs / run_id).mkdir()
    except OSError as error:
        raise UsageError(f"{runs / run_id}: can't be made: {error.strerror}") from None
    return runs / run_id


def seal(run_dir: Path, run_id: str, runspec_sha256: str) -> str:
    """Write the manifest of everything in the run directory; returns its SHA-256."""
    manifest = Manifest(
        schema=SCHEMA,
        run_id=run_id,
        runspec_sha256=runspec_sha256,
        files=hash_below(run_dir, run_dir),
    )
    data = canonical(manifest)
    write_once(run_dir / MANIFEST, data)
    write_once(run_dir / MANIFEST_HASH, (sha256(data) + "\n").encode())
    return sha256(data)
