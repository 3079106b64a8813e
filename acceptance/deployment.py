"""What is deployed: files -> hashes, a repository -> its state, packages -> versions (P2.1).

HEAD alone proves nothing, so every file is hashed. Hashing is parallel, and a file that is the
same inode with the same size and times as when it was hashed is not read again.
"""

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from acceptance.errors import RunFailure
from acceptance.processes import mapped_files
from acceptance.records import SCHEMA, FileHash, Record

SETTLED_NS = 2_000_000_000
"""A file that changed less than this ago may change again within one tick of its clock, unseen."""

READ_TRIES = 3
DELETED = " (deleted)"


class CachedHash(Record, frozen=True, kw_only=True):
    """A hash with what its file looked like. `ctime_ns` moves even if somebody resets mtime."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


class HashCache(Record, frozen=True, kw_only=True):
    """The cache file: absolute path -> hash."""

    schema: int
    files: dict[str, CachedHash]


class GitState(Record, frozen=True, kw_only=True):
    """A working tree against its HEAD; all None where it is no git repository.

    `dirty_files` are relative to the repository, untracked ones (not ignored) included.
    """

    head: str | None
    is_dirty: bool | None
    dirty_files: tuple[str, ...] | None


def hash_tree(
    paths: Iterable[Path],
    cache_file: Path | None,
    *,
    root: Path | None = None,
    now_ns: Callable[[], int] = time.time_ns,
) -> tuple[FileHash, ...]:
    """Hashes of files and of all regular files below directories, sorted by path.

    Paths are relative to `root` where it is given, else absolute; Python's caches are left out,
    links are followed. FileNotFoundError for a path that is not there; RunFailure (P2.1) for a
    file that changes while it is read.
    """
    cache = _read_cache(cache_file)
    files = sorted({file for path in paths for file in _files(path)})
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        hashed = list(pool.map(lambda path: _hash(path, cache.get(str(path.absolute()))), files))
    limit_ns = now_ns() - SETTLED_NS
    fresh = {
        str(path.absolute()): entry
        for path, entry in zip(files, hashed, strict=True)
        if max(entry.mtime_ns, entry.ctime_ns) < limit_ns
    }
    if cache_file is not None and any(cache.get(path) != entry for path, entry in fresh.items()):
        _write_cache(cache_file, {**cache, **fresh})
    return tuple(
        FileHash(
            path=(path.relative_to(root) if root else path).as_posix(),
            size=entry.size,
            sha256=entry.sha256,
        )
        for path, entry in zip(files, hashed, strict=True)
    )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        path.stat()
        return [path]
    return [p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts]


def _hash(path: Path, cached: CachedHash | None) -> CachedHash:
    seen = _look(path)
    if cached is not None and msgspec.structs.replace(cached, sha256="") == seen:
        return cached
    for _ in range(READ_TRIES):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        before, seen = seen, _look(path)
        if before == seen:
            return msgspec.structs.replace(seen, sha256=digest)
    raise RunFailure("P2.1", f"{path} changes while it is hashed; stop what writes to it")


def _look(path: Path) -> CachedHash:
    stat = path.stat()
    return CachedHash(
        device=stat.st_dev,
        inode=stat.st_ino,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
        sha256="",
    )


def _read_cache(path: Path | None) -> dict[str, CachedHash]:
    """A cache that is missing, of another version or damaged is an empty one: all is hashed."""
    try:
        cache = msgspec.json.decode(path.read_bytes(), type=HashCache) if path else None
    except (OSError, msgspec.DecodeError):
        return {}
    return cache.files if cache is not None and cache.schema == SCHEMA else {}


def _write_cache(path: Path, files: dict[str, CachedHash]) -> None:
    """Replace the cache: it is no evidence, and two writers may race, so the last one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    with os.fdopen(handle, "wb") as file:
        file.write(msgspec.json.encode(HashCache(schema=SCHEMA, files=files)))
    os.replace(temporary, path)


def differences(frozen: Iterable[FileHash], found: Iterable[FileHash]) -> tuple[str, ...]:
    """Paths whose content differs, that are missing, or that nobody froze, each with its word."""
    before = {file.path: file.sha256 for file in frozen}
    after = {file.path: file.sha256 for file in found}
    lines = []
    for path in sorted(before.keys() | after.keys()):
        if path not in after:
            lines.append(f"{path} (missing)")
        elif path not in before:
            lines.append(f"{path} (new)")
        elif before[path] != after[path]:
            lines.append(f"{path} (changed)")
    return tuple(lines)


def git_state(root: Path) -> GitState:
    """HEAD and what differs from it; unknown where git or its repository is not there."""
    head = _git(root, "rev-parse", "HEAD")
    status = _git(root, "status", "--porcelain", "-z", "--no-renames")
    if head is None or status is None:
        return GitState(head=None, is_dirty=None, dirty_files=None)
    files = tuple(sorted(entry[3:] for entry in status.split("\0") if entry))
    return GitState(head=head.strip(), is_dirty=bool(files), dirty_files=files)


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=root,
            capture_output=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else None


def installed_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Versions of distributions in this interpreter; None for one that is not installed."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def loaded_libraries(pids: Iterable[int]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Shared libraries that processes have mapped: (files to hash, names of replaced ones).

    A replaced one was deleted or overwritten by name after it was loaded: what runs is not what
    lies on the disk, and its hash proves nothing.
    """
    mapped = {path for pid in pids for path in mapped_files(pid) if ".so" in path}
    replaced = sorted(p.removesuffix(DELETED) for p in mapped if p.endswith(DELETED))
    return tuple(sorted(Path(p) for p in mapped if not p.endswith(DELETED))), tuple(replaced)
