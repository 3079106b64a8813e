"""A profile's model -> the checkpoint directory that is served, made by its script if need be."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from acceptance.canonical import canonical, sha256
from acceptance.errors import UsageError
from acceptance.profile import Profile
from acceptance.settings import ROOT, models_dir


def prepare_model(profile: Profile) -> Path:
    """The checkpoint directory; made by the profile's command where it is missing."""
    named = Path(profile.model.directory)
    if not profile.model.build:
        return _check_model(named if named.is_absolute() else ROOT / named)
    sources = [
        path
        for source in profile.model.build_sources
        for path in sorted((ROOT / source).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    key = sha256(canonical([profile.model.build, *(sha256(p.read_bytes()) for p in sources)]))[:12]
    directory = models_dir() / f"{profile.model.directory}-{key}"
    if directory.is_dir():
        return _check_model(directory)
    temporary = directory.with_name(f".part-{directory.name}-{os.getpid()}")
    names = {"python": sys.executable, "model": str(temporary)}
    command = [part.format(**names) for part in profile.model.build]
    temporary.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(temporary, ignore_errors=True)
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UsageError(f"making the checkpoint failed: {' '.join(command)}: {last}")
    if not directory.exists():
        temporary.rename(directory)
    return _check_model(directory)


def _check_model(directory: Path) -> Path:
    config = directory / "config.json"
    try:
        json.loads(config.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{config}: not there; `model.directory` must be a checkpoint") from None
    except ValueError as error:
        raise UsageError(f"{config}: not JSON: {error}") from None
    if not list(directory.glob("*.safetensors")):
        raise UsageError(f"{directory}: holds no *.safetensors; the checkpoint has no weights")
    return directory
