"""Write once, whole or not at all; seal everything."""

import json

import pytest

from acceptance import archive
from acceptance.canonical import sha256
from acceptance.errors import UsageError


@pytest.mark.rule("P6.3")
def test_nothing_is_overwritten(tmp_path):
    archive.write_once(tmp_path / "a", b"first")

    with pytest.raises(FileExistsError):
        archive.write_once(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert ["a"] == [path.name for path in tmp_path.iterdir()]


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive.os, "fsync", full)

    with pytest.raises(OSError, match="No space"):
        archive.write_once(tmp_path / "a", b"data")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.rule("P6.3")
def test_a_used_run_id_is_refused(tmp_path):
    archive.create_run_dir(tmp_path, "run-1", 0)

    with pytest.raises(UsageError, match="run-1: this run id was used"):
        archive.create_run_dir(tmp_path, "run-1", 0)


def test_no_room_is_said_before_anything_is_made(tmp_path):
    with pytest.raises(UsageError, match="MiB needed for the archive"):
        archive.create_run_dir(tmp_path, "run-1", 1 << 60)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.rule("P6.1")
def test_the_seal_lists_every_file_with_its_hash(tmp_path):
    archive.write_once(tmp_path / "results/x", b"1")
    archive.write_once(tmp_path / "plan/y", b"22")

    digest = archive.seal(tmp_path, "run-1", "ab")

    data = (tmp_path / "manifest.json").read_bytes()
    assert digest == sha256(data) == (tmp_path / "manifest.sha256").read_text().strip()
    assert [("plan/y", 2, sha256(b"22")), ("results/x", 1, sha256(b"1"))] == [
        (f["path"], f["size"], f["sha256"]) for f in json.loads(data)["files"]
    ]
