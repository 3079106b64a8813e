"""Files are hashed once and again on any change; what differs is named (P2.1)."""

import hashlib
import os
import subprocess

import pytest

from acceptance import deployment
from acceptance.deployment import (
    GitState,
    differences,
    git_state,
    hash_tree,
    installed_versions,
    loaded_libraries,
)
from acceptance.errors import RunFailure
from acceptance.records import FileHash

LATER_NS = 10**19
"""A clock so late that every file has settled."""


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "sub/__pycache__").mkdir(parents=True)
    (root / "b.bin").write_bytes(b"weights")
    (root / "sub/a.py").write_bytes(b"code")
    (root / "sub/__pycache__/a.pyc").write_bytes(b"compiled")
    return root


@pytest.fixture
def reads(monkeypatch):
    """Names of the files whose bytes were read to be hashed, in any order."""
    names = []
    digest = hashlib.file_digest

    def count(file, kind):
        names.append(os.path.basename(file.name))
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", count)
    return names


def hashes(tree, cache, now_ns=LATER_NS):
    return hash_tree([tree], cache, root=tree, now_ns=lambda: now_ns)


def test_a_tree_is_hashed_file_by_file_without_caches_of_python(tree):
    assert (
        FileHash(path="b.bin", size=7, sha256=hashlib.sha256(b"weights").hexdigest()),
        FileHash(path="sub/a.py", size=4, sha256=hashlib.sha256(b"code").hexdigest()),
    ) == hashes(tree, None)


def test_single_files_and_absolute_paths(tree):
    (found,) = hash_tree([tree / "b.bin", tree / "b.bin"], None)

    assert str(tree / "b.bin") == found.path


def test_an_unchanged_file_is_not_read_again(tree, tmp_path, reads):
    cache = tmp_path / "cache/hashes.json"
    first = hashes(tree, cache)
    second = hashes(tree, cache)

    assert first == second
    assert ["a.py", "b.bin"] == sorted(reads)


def test_changed_bytes_of_the_same_size_and_time_are_seen(tree, tmp_path, reads):
    cache, path = tmp_path / "hashes.json", tree / "b.bin"
    before = hashes(tree, cache)
    times = path.stat()
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = hashes(tree, cache)

    assert ("b.bin (changed)",) == differences(before, after)
    assert ["a.py", "b.bin", "b.bin"] == sorted(reads)


def test_a_replaced_file_of_the_same_size_and_time_is_seen(tree, tmp_path):
    cache, path = tmp_path / "hashes.json", tree / "b.bin"
    before = hashes(tree, cache)
    times = path.stat()
    new = tree / "new"
    new.write_bytes(b"WEIGHTS")
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.rename(path)

    assert ("b.bin (changed)",) == differences(before, hashes(tree, cache))


def test_a_file_that_has_just_changed_is_not_trusted_yet(tree, tmp_path, reads):
    cache = tmp_path / "hashes.json"
    now_ns = (tree / "b.bin").stat().st_ctime_ns + deployment.SETTLED_NS // 2
    hashes(tree, cache, now_ns)
    hashes(tree, cache, now_ns)

    assert ["a.py", "a.py", "b.bin", "b.bin"] == sorted(reads)
    assert not cache.exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("{", id="damaged"),
        pytest.param('{"schema": 99, "files": {}}', id="other-schema"),
        pytest.param('{"schema": 1, "files": {}, "more": 1}', id="unknown-key"),
    ],
)
def test_a_cache_that_can_not_be_used_means_hashing_anew(tree, tmp_path, reads, content):
    cache = tmp_path / "hashes.json"
    cache.write_text(content)
    hashes(tree, cache)

    assert ["a.py", "b.bin"] == sorted(reads)


def test_a_link_is_hashed_as_what_it_points_to(tree, tmp_path):
    (tree / "b.bin").rename(tmp_path / "blob")
    (tree / "b.bin").symlink_to(tmp_path / "blob")

    assert hashlib.sha256(b"weights").hexdigest() == hashes(tree, None)[0].sha256


def test_a_file_that_changes_while_it_is_read_is_refused(tree, monkeypatch):
    digest = hashlib.file_digest

    def change(file, kind):
        with open(file.name, "ab") as more:
            more.write(b"x")
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", change)

    with pytest.raises(RunFailure, match=r"P2\.1: .* changes while it is hashed"):
        hash_tree([tree / "b.bin"], None)


def test_a_missing_file_is_an_error(tree):
    with pytest.raises(FileNotFoundError):
        hash_tree([tree / "nothing"], None)


def test_differences_name_what_changed_is_missing_or_new():
    def file(path, sha256):
        return FileHash(path=path, size=1, sha256=sha256)

    frozen = [file("a", "1"), file("b", "2"), file("c", "3")]

    assert ("b (changed)", "c (missing)", "d (new)") == differences(
        frozen, [file("a", "1"), file("b", "9"), file("d", "4")]
    )
    assert () == differences(frozen, reversed(frozen))


def git(root, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def test_the_state_of_a_repository_names_every_dirty_file(tree):
    git(tree, "init")
    git(tree, "add", "b.bin", "sub/a.py")
    git(tree, "commit", "-m", "one")
    clean_but_untracked = git_state(tree)
    (tree / ".gitignore").write_text("__pycache__/\n.gitignore\n")
    clean = git_state(tree)
    (tree / "b.bin").write_bytes(b"x")
    (tree / "ü n.txt").write_bytes(b"x")
    dirty = git_state(tree)

    assert ("sub/__pycache__/",) == clean_but_untracked.dirty_files
    assert (False, ()) == (clean.is_dirty, clean.dirty_files)
    assert 40 == len(clean.head)
    assert (True, ("b.bin", "ü n.txt")) == (dirty.is_dirty, dirty.dirty_files)


def test_outside_of_git_everything_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))

    assert GitState(head=None, is_dirty=None, dirty_files=None) == git_state(tmp_path)


def test_a_package_that_is_not_installed_has_no_version():
    found = installed_versions(["pytest", "no-such-distribution"])

    assert {"pytest": pytest.__version__, "no-such-distribution": None} == found


def test_loaded_libraries_are_told_from_those_replaced_since(monkeypatch):
    maps = {
        1: {"/lib/libc.so.6", "/opp/libcust_opapi.so (deleted)", "/usr/share/locale"},
        2: {"/lib/libc.so.6", "/x/_C.cpython-311.so"},
    }
    monkeypatch.setattr(deployment, "mapped_files", maps.get)
    files, replaced = loaded_libraries([1, 2])

    assert ["/lib/libc.so.6", "/x/_C.cpython-311.so"] == [str(path) for path in files]
    assert ("/opp/libcust_opapi.so",) == replaced


def test_loaded_libraries_of_this_process_can_be_hashed():
    files, _ = loaded_libraries([os.getpid()])

    assert any("libc" in path.name for path in files)
    assert all(file.size > 0 for file in hash_tree(files[:1], None))
