"""A sealed run directory -> what in it is not as it was sealed (P6.1)."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .attempts import SCHEMA
from .files import load
from .runspec import FILE_HASH, PATH, RUNSPEC, FileHash
from .strict import Misfit, Reader, Refused, array, digest, read, record, schema, sha256, text

MANIFEST = "manifest.json"
SEAL = "manifest.sha256"
RECOMPUTED = "validator/recomputation.json"
FROZEN = ("plan", "validator", "patch")
NEEDED = ("plan/banks/measured.json", "plan/banks/warmup.json", "plan/plan.txt")


@dataclass(frozen=True)
class Manifest:
    """Every file of the archive but the manifest and its hash."""

    schema: int
    run_id: str
    runspec_sha256: str
    files: tuple[FileHash, ...]


def _files(value: Any, place: str) -> tuple[FileHash, ...]:
    files = array(FILE_HASH)(value, place)
    paths = [one.path for one in files]
    if len(set(paths)) < len(paths):
        raise Misfit(place, "a path is listed twice")
    for number, path in enumerate(paths):
        parts = path.split("/")
        if path in (MANIFEST, SEAL) or "" in parts or "." in parts or ".." in parts:
            raise Misfit(f"{place}[{number}].path", "is no path of a file inside the archive")
    return files


RECORD: Reader[Manifest] = record(
    Manifest, schema=schema(SCHEMA), run_id=text, runspec_sha256=sha256, files=_files
)


def differences(root: Path) -> list[str]:
    """One line for each file that was changed, is missing or was added; empty for an intact
    archive. Refused when there is no seal to compare with."""
    data = _sealed(root, MANIFEST)
    seal = _sealed(root, SEAL)
    if seal != f"{digest(data)}\n".encode():
        return [f"{MANIFEST} or {SEAL}: changed: the one is not the hash of the other"]
    manifest = read(data, MANIFEST, RECORD)
    found = list(_compared(root, {one.path: one for one in manifest.files}))
    return found or _frozen(root, manifest)


def _sealed(root: Path, path: str) -> bytes:
    if not (root / path).is_file():
        raise Refused(path, "", "is not there: no sealed run directory")
    return load(root, path)


def _compared(root: Path, listed: dict[str, FileHash]) -> Iterator[str]:
    present = dict(_walk(root))
    for path in sorted(listed.keys() | present.keys()):
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in path)
        if path in (MANIFEST, SEAL):
            continue
        if path not in present:
            yield f"{shown}: missing"
        elif present[path]:
            yield f"{shown}: {present[path]}"
        elif path not in listed:
            yield f"{shown}: extra, it is not in the manifest"
        elif reason := _changed(root / path, listed[path]):
            yield f"{shown}: {reason}"


def _walk(root: Path) -> Iterator[tuple[str, str]]:
    """(path, why it is no regular file or "") of all that lies below a directory."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            entries = list(os.scandir(root / prefix))
        except OSError as error:
            yield prefix.rstrip("/"), f"can't be read: {error.strerror}"
            continue
        for entry in entries:
            path = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")
            elif entry.is_file(follow_symlinks=False):
                yield path, ""
            else:
                yield path, "is a symbolic link" if entry.is_symlink() else "is no regular file"


def _changed(path: Path, listed: FileHash) -> str:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"can't be read: {error.strerror}"
    if size != listed.size:
        return f"changed: {size} bytes, sealed were {listed.size}"
    return "" if found == listed.sha256 else f"changed: SHA-256 {found[:16]}..., not as sealed"


def _frozen(root: Path, manifest: Manifest) -> list[str]:
    """The sealed files against the RunSpec: a seal can be renewed, what was frozen can't."""
    data = load(root, PATH)
    if digest(data) != manifest.runspec_sha256:
        return [f"{PATH}: is not the RunSpec that {MANIFEST} names"]
    runspec = read(data, PATH, RUNSPEC)
    if runspec.run_id != manifest.run_id:
        return [f"{PATH}: run_id {runspec.run_id}, in {MANIFEST} {manifest.run_id}"]
    sealed = {one.path: one for one in manifest.files}
    frozen = {one.path for one in runspec.files}
    return [
        f"{one.path}: not as frozen in the RunSpec"
        for one in runspec.files
        if one.path.split("/")[0] in FROZEN and sealed.get(one.path) != one
    ] + [
        f"{path}: was not frozen in the RunSpec"
        for path in sorted(sealed.keys() | set(NEEDED))
        if (path.startswith("validator/") or path in NEEDED) and path not in {*frozen, RECOMPUTED}
    ]
