"""Sealed archives: any byte that is not as it was sealed is found, and the file is named."""

import hashlib
import json
import os
import py_compile
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import validator
from tests.strategies import runs
from tests.strategies.places import fast_directory


@pytest.fixture(scope="module")
def sealed():
    """One sealed run that tests must leave as it is."""
    with fast_directory() as path:
        draft = runs.run_draft(levels=("C1",))
        draft.files["results/report.md"] = b"a report\n"
        yield runs.seal(runs.write(draft, path))


@pytest.fixture
def copy(sealed, tmp_path):
    with fast_directory() as path:
        yield runs.clone(sealed, path / "copy")


def run_validator(*arguments, **options):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_an_intact_archive_reproduces_its_verdict(sealed):
    result = validator.verify(sealed)

    assert 0 == result.status, result.lines
    assert "PASS as recorded; reproduced" in result.lines[0]


def test_verifying_twice_gives_the_same_and_changes_nothing(sealed):
    before = {path: (sealed / path).read_bytes() for path in runs.paths_below(sealed)}

    first, second = validator.verify(sealed), validator.verify(sealed)

    assert first == second
    assert before == {path: (sealed / path).read_bytes() for path in runs.paths_below(sealed)}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_single_byte_mutation_is_found_and_the_file_named(sealed, data):
    path = data.draw(st.sampled_from(runs.paths_below(sealed)), label="path")
    file = sealed / path
    good = file.read_bytes()
    at = data.draw(st.integers(0, len(good) - 1), label="at")
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != good[at]), label="byte")
    try:
        file.write_bytes(good[:at] + bytes([byte]) + good[at + 1 :])

        result = validator.verify(sealed)
    finally:
        file.write_bytes(good)

    assert 1 == result.status
    assert path in result.lines[0]


@pytest.mark.parametrize(
    "path",
    [
        "plan/runspec.json",
        "results/report.md",
        "manifest.sha256",
        "results/B1/C1/attempt-1/measured-00.raw",
    ],
)
def test_a_truncated_file_is_found_and_named(copy, path):
    (copy / path).write_bytes((copy / path).read_bytes()[:-1])

    result = validator.verify(copy)

    assert (1, True) == (result.status, path in result.lines[0])


def test_a_missing_file_is_named(copy):
    (copy / "results/report.md").unlink()

    result = validator.verify(copy)

    assert (1, ("results/report.md: missing",)) == (result.status, result.lines)


@pytest.mark.parametrize(
    "path", ["extra.txt", "results/B1/C1/attempt-1/.hidden", "validator/__pycache__/x.pyc"]
)
def test_an_extra_file_is_named(copy, path):
    (copy / path).parent.mkdir(exist_ok=True)
    (copy / path).write_bytes(b"")

    result = validator.verify(copy)

    assert 1 == result.status
    assert (f"{path}: extra, it is not in the manifest",) == result.lines


def test_a_symbolic_link_in_place_of_a_file_is_named(copy):
    moved = copy.parent / "moved"
    (copy / "results/report.md").rename(moved)
    (copy / "results/report.md").symlink_to(moved)

    result = validator.verify(copy)

    assert (1, ("results/report.md: is a symbolic link",)) == (result.status, result.lines)


def test_a_symbolic_link_to_a_directory_is_named(copy):
    (copy / "more").symlink_to(copy.parent)

    result = validator.verify(copy)

    assert (1, ("more: is a symbolic link",)) == (result.status, result.lines)


def test_a_pipe_is_named_and_not_waited_for(copy):
    os.mkfifo(copy / "results/pipe")

    result = validator.verify(copy)

    assert (1, ("results/pipe: is no regular file",)) == (result.status, result.lines)


@pytest.mark.parametrize(
    "name", [b"two\nlines", b"\xff\xfe", b"-rf", "größer".encode(), b"a" * 200]
)
def test_odd_names_are_named_on_one_line(copy, name):
    Path(os.fsdecode(os.fsencode(copy) + b"/" + name)).write_bytes(b"x")

    done = run_validator("-m", "validator", copy, cwd=runs.ROOT)

    assert (1, 1, "") == (done.returncode, len(done.stdout.splitlines()), done.stderr)
    assert "extra" in done.stdout


def test_a_very_deep_directory_is_no_trouble(copy):
    made = [copy]
    while len(str(made[-1])) < 3500:
        made.append(made[-1] / "d")
        made[-1].mkdir()

    result = validator.verify(copy)

    for directory in reversed(made[1:]):
        directory.rmdir()
    assert 0 == result.status, "directories hold no bytes"


def test_a_resealed_archive_with_another_figure_is_found_by_its_raw_bytes(copy):
    path = copy / "results/figures.json"
    path.write_bytes(
        path.read_bytes().replace(b'"mean_tpot_ns":"1000/1"', b'"mean_tpot_ns":"999/1"', 1)
    )
    runs.reseal(copy)

    result = validator.verify(copy)

    line = 'levels[0].mean_tpot_ns: "999/1" recorded, "1000/1" from the raw bytes'
    assert (1, (f"results/figures.json: {line}",)) == (result.status, result.lines)


def test_a_resealed_archive_with_another_verdict_is_found(copy):
    path = copy / "validator/recomputation.json"
    path.write_bytes(path.read_bytes().replace(b'"PASS"', b'"FAIL"'))
    runs.reseal(copy)

    result = validator.verify(copy)

    assert 1 == result.status
    assert any('verdict: "FAIL" recorded' in line for line in result.lines)


def test_the_wording_of_a_reason_is_free(copy):
    path = copy / "results/figures.json"
    path.write_bytes(path.read_bytes().replace(b"every level is within", b"all levels are inside"))
    runs.reseal(copy)

    assert 0 == validator.verify(copy).status


def test_a_resealed_archive_with_another_bank_is_not_what_was_frozen(copy):
    path = copy / "plan/banks/warmup.json"
    path.write_bytes(path.read_bytes().replace(b"[100,131,7]", b"[100,131,8]"))
    runs.reseal(copy)

    result = validator.verify(copy)

    assert (1, ("plan/banks/warmup.json: not as frozen in the RunSpec",)) == (
        result.status,
        result.lines,
    )


def test_a_validator_module_that_was_not_frozen_is_found(copy):
    (copy / "validator/more.py").write_text("")
    runs.reseal(copy)

    result = validator.verify(copy)

    line = "validator/more.py: was not frozen in the RunSpec"
    assert (1, (line,)) == (result.status, result.lines)


def test_a_runspec_that_froze_no_banks_is_found(copy):
    set_json(copy, "plan/runspec.json", "files", to=[])

    result = validator.verify(copy)

    assert 1 == result.status
    assert "plan/banks/measured.json: was not frozen in the RunSpec" in result.lines


def test_a_manifest_of_another_runspec_is_found(copy):
    path = copy / "plan/runspec.json"
    manifest = (copy / "manifest.json").read_bytes()
    old = hashlib.sha256(path.read_bytes()).hexdigest().encode()
    (copy / "manifest.json").write_bytes(
        manifest.replace(b'"runspec_sha256":"' + old, b'"runspec_sha256":"' + b"0" * 64)
    )
    (copy / "manifest.sha256").write_text(
        hashlib.sha256((copy / "manifest.json").read_bytes()).hexdigest() + "\n"
    )

    result = validator.verify(copy)

    assert 1 == result.status
    assert "plan/runspec.json: is not the RunSpec that manifest.json names" == result.lines[0]


def set_json(run_dir, path, *keys, to):
    value = whole = json.loads((run_dir / path).read_bytes())
    for key in keys[:-1]:
        value = value[key]
    value[keys[-1]] = to
    (run_dir / path).write_bytes(runs.canonical(whole))
    runs.reseal(run_dir)


def claim(run_dir, verdict):
    set_json(run_dir, "results/verdict.json", "verdict", to=verdict)
    set_json(run_dir, "results/verdict.json", "line", to=f"{verdict} made-up-1 made up")


def test_a_verdict_better_than_a_planned_test_is_found(copy):
    set_json(copy, "results/outcomes.json", 1, "verdict", to="NOT_RUN")

    result = validator.verify(copy)

    line = "results/verdict.json: verdict: PASS recorded, its tests give NOT_RUN"
    assert (1, (line,)) == (result.status, result.lines)


def test_a_planned_test_that_did_not_run_is_found(copy):
    outcomes = json.loads((copy / "results/outcomes.json").read_bytes())
    (copy / "results/outcomes.json").write_bytes(runs.canonical(outcomes[:2]))
    runs.reseal(copy)

    result = validator.verify(copy)

    assert (1, True) == (result.status, "its tests give NOT_RUN" in result.lines[0])


def test_a_verdict_better_than_the_raw_bytes_is_found(copy):
    """The seal fits and the tests say PASS; the bytes say that a level was preempted."""
    path = copy / "results/B2/C1/attempt-1/metrics-2.txt"
    path.write_bytes(re.sub(rb"(preemptions_total\S+) 0", rb"\1 1", path.read_bytes()))
    runs.reseal(copy)

    result = validator.verify(copy)

    assert 1 == result.status
    assert "results/verdict.json: verdict: PASS recorded, its raw bytes give INCONCLUSIVE" in (
        result.lines
    )


@pytest.mark.parametrize(
    ("verdict", "status"), [("PASS", 0), ("INCONCLUSIVE", 0), ("NOT_RUN", 0), ("FAIL", 1)]
)
def test_a_run_may_end_worse_than_its_figures_but_a_fail_has_its_test(copy, verdict, status):
    claim(copy, verdict)

    assert status == validator.verify(copy).status


def test_a_line_that_says_another_verdict_is_found(copy):
    set_json(copy, "results/verdict.json", "verdict", to="INCONCLUSIVE")

    result = validator.verify(copy)

    assert (1, True) == (result.status, result.lines[0].startswith("results/verdict.json: line"))


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sha256"])
def test_without_a_seal_it_is_no_archive(copy, name):
    (copy / name).unlink()

    result = validator.verify(copy)

    assert (2, (f"{name}: is not there: no sealed run directory",)) == (result.status, result.lines)


def test_the_folder_in_the_archive_judges_it_with_python_alone(copy):
    done = run_validator("-I", "-S", copy / "validator", copy)

    assert (0, "") == (done.returncode, done.stderr)
    assert "PASS as recorded" in done.stdout
    assert 0 == validator.verify(copy).status, "and leaves nothing behind"


def test_a_planted_compiled_module_is_neither_used_nor_overlooked(copy, tmp_path):
    """A compiled module that Python takes without looking at its source, and that says 0."""
    source = tmp_path / "planted.py"
    source.write_text("raise SystemExit(0)\n")
    cache = copy / f"validator/__pycache__/verification.{sys.implementation.cache_tag}.pyc"
    cache.parent.mkdir()
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(cache), doraise=True, invalidation_mode=mode)

    done = run_validator("-I", copy / "validator", copy)

    assert (1, "") == (done.returncode, done.stderr)
    assert "__pycache__/verification" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [[], ["a", "b"], ["--what"], ["--recompute"], ["/no/such/directory"], ["/dev/null"]],
)
def test_a_wrong_request_is_one_line_and_status_2(arguments):
    done = run_validator("-m", "validator", *arguments, cwd=runs.ROOT)

    assert 2 == done.returncode
    assert 1 == len((done.stdout + done.stderr).splitlines())


def test_recompute_stores_what_it_found_once_and_compares_it(copy):
    (copy / "validator/recomputation.json").unlink()

    first = run_validator("-m", "validator", "--recompute", copy, cwd=runs.ROOT)
    second = run_validator("-m", "validator", "--recompute", copy, cwd=runs.ROOT)

    assert (0, 2) == (first.returncode, second.returncode)
    assert "nothing is overwritten" in second.stdout
    assert 0 == validator.verify(copy).status


def test_recompute_names_the_figure_on_which_the_live_side_differs(copy):
    (copy / "validator/recomputation.json").unlink()
    path = copy / "results/figures.json"
    path.write_bytes(path.read_bytes().replace(b'"ttft_ns":1000000', b'"ttft_ns":1000001', 1))

    done = run_validator("-m", "validator", "--recompute", copy, cwd=runs.ROOT)

    assert 1 == done.returncode
    assert "levels[0].requests[0].ttft_ns: 1000001 recorded, 1000000" in done.stdout
