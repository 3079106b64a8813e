"""Calibration and candidates on the stand-in: what is frozen before, refused after, and shown."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.strategies.gates import ALL, ROOT, candidate_profile, fake_profile, verify

CANDIDATE = ("--candidate", "fast-001")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory, model):
    """A runs directory with a calibration and a parent of the stand-in, made once."""
    place = tmp_path_factory.mktemp("campaign")
    profile = place / "fake.toml"
    profile.write_text(candidate_profile(place).replace("@MODEL@", str(model)))
    for command, run_id in (("calibrate", "calibration"), ("gate", "parent")):
        status, output = command_line(place, command, run_id)
        assert 0 == status, output
    return place


def command_line(place, command, run_id, *more):
    done = subprocess.run(
        [sys.executable, "-m", "acceptance", command, "--profile", str(place / "fake.toml"),
         "--run-id", run_id, *more],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "ACCEPTANCE_RUNS": str(place / "runs"), "ACCEPTANCE_PLAIN": "1"},
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).strip()


def record(place, run_id, name):
    return json.loads((place / "runs" / run_id / name).read_text())


@pytest.mark.rule("P4.5")
def test_a_calibration_is_six_services_sealed_with_exact_thresholds(campaign):
    run_dir = campaign / "runs/calibration"
    report = record(campaign, "calibration", "results/calibration.json")

    roles = [service["role"] for service in report["services"]]
    assert ["parent", "candidate", "candidate", "parent", "parent", "candidate"] == roles
    assert 6 == len({service["service_id"] for service in report["services"]})
    assert set(ALL) == set(report["thresholds"])
    assert all("/" in text for text in report["thresholds"].values())
    assert "# Calibration of fake" in (run_dir / "results/calibration.md").read_text()
    assert 0 == verify(run_dir)[0]


@pytest.mark.rule("P4.5")
def test_a_threshold_that_does_not_follow_is_found_by_the_validator(campaign, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(campaign / "runs/calibration", copy)
    for name in ("manifest.json", "manifest.sha256", "validator/recomputation.json"):
        (copy / name).unlink()
    path = copy / "results/calibration.json"
    report = json.loads(path.read_text())
    report["thresholds"]["C4"] = "1/3"
    path.write_text(json.dumps(report, sort_keys=True, separators=(",", ":")))
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(copy / "validator"), "--recompute", str(copy)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert 1 == done.returncode
    assert "results/calibration.json: thresholds.C4: does not follow" in done.stdout


@pytest.mark.rule("P4.5")
def test_a_calibration_with_one_bad_service_freezes_nothing(gate):
    run = gate(fake_profile(fault="short"), command="calibrate")
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-1 P3.7: S1 C1: no valid attempt")
    assert not (run.run_dir / "results/calibration.json").exists()
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P4.7")
def test_a_candidate_passes_and_its_verdict_is_final(campaign):
    status, output = command_line(campaign, "gate", "first", *CANDIDATE)
    again, says = command_line(campaign, "gate", "second", *CANDIDATE)

    assert 0 == status, output
    assert 0 == verify(campaign / "runs/first")[0]
    scope = record(campaign, "first", "results/figures.json")["scopes"][0]
    assert ("PASS", "P4.2.4") == (scope["verdict"], scope["rule"])
    reference = record(campaign, "first", "plan/reference.json")
    assert [("parent", "B1"), ("parent", "B2")] == [
        (one["run_id"], one["round"]) for one in reference["rounds"]
    ]
    assert "calibration" == reference["calibration"]["run_id"]
    assert "measured" in reference["disclosure"]
    runspec = record(campaign, "first", "plan/runspec.json")
    assert "1" == runspec["service"]["environment"]["FAKE_FAST"]
    assert (2, 1) == (again, len(says.splitlines()))
    assert "first judged" in says
    assert "P4.7" in says
    assert not (campaign / "runs/second").exists()


@pytest.mark.rule("P6.3")
def test_the_record_of_runs_shows_a_changed_line(campaign, tmp_path):
    shutil.copytree(campaign / "runs", tmp_path / "runs")
    shutil.copy(campaign / "fake.toml", tmp_path)
    path = tmp_path / "runs/lineage.jsonl"
    path.write_bytes(path.read_bytes().replace(b"P4.4", b"P4.5", 1))
    status, says = command_line(tmp_path, "gate", "third")

    assert (2, 1) == (status, len(says.splitlines())), says
    assert "lineage.jsonl: line" in says


@pytest.mark.rule("P4.2.1")
def test_without_parent_and_calibration_nothing_starts_and_it_says_how_to_make_them(gate, tmp_path):
    run = gate(candidate_profile(tmp_path), more=CANDIDATE)
    status, last, output = run.end()

    assert 10 == status, output
    assert last.startswith("INCONCLUSIVE run-1 P4.2.1: the parent has no round on record")
    assert "./gate --profile fake" in last
    assert "python -m acceptance calibrate --profile fake" in last
    assert not (run.run_dir / "results/B1/service").exists()
    scope = run.json("results/figures.json")["scopes"][0]
    assert ("INCONCLUSIVE", "P4.2.1") == (scope["verdict"], scope["rule"])
    assert 0 == verify(run.run_dir)[0]


@pytest.mark.rule("P7.3")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param("switch-ignored", "ran on none, or not on all, workers", id="never-ran"),
        pytest.param("no-counters", "has no counter that shows that it ran", id="no-counter"),
    ],
)
def test_a_path_that_is_not_shown_is_inconclusive_whatever_the_figures(
    campaign, tmp_path, fault, says
):
    shutil.copytree(campaign / "runs", tmp_path / "runs", ignore=shutil.ignore_patterns(".*"))
    forget(tmp_path / "runs", "first")
    shutil.copy(campaign / "fake.toml", tmp_path)
    (campaign / "fault").write_text(fault)
    try:
        status, output = command_line(tmp_path, "gate", "candidate", *CANDIDATE)
    finally:
        (campaign / "fault").unlink()

    assert 10 == status, output
    assert f"INCONCLUSIVE candidate P7.3: the candidate's new path {says}" in output
    assert 0 == verify(tmp_path / "runs/candidate")[0]
    lines = (tmp_path / "runs/lineage.jsonl").read_text().splitlines()
    assert ("candidate", "P7.3") == tuple(json.loads(lines[-1])[key] for key in ("run_id", "rule"))


def forget(runs, run_id):
    """A record of runs that ends before a run began."""
    path = runs / "lineage.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if json.loads(line)["run_id"] != run_id))


@pytest.mark.rule("P6.3")
def test_a_run_without_a_verdict_is_followed_by_the_next_with_its_fault(gate, tmp_path):
    text = candidate_profile(tmp_path)
    assert 10 == gate(text, more=CANDIDATE).end()[0]
    second = gate(text, more=CANDIDATE, run_id="run-2")
    assert 10 == second.end()[0]
    lines = map(json.loads, (second.runs / "lineage.jsonl").read_text().splitlines())

    assert [
        ("run-1", "started", None, None),
        ("run-1", "ended", None, None),
        ("run-2", "started", "run-1", "INCONCLUSIVE (P4.2.1)"),
        ("run-2", "ended", "run-1", "INCONCLUSIVE (P4.2.1)"),
    ] == [(one["run_id"], one["event"], one["follows"], one["fault"]) for one in lines]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"targets": []}, "no target level is set", id="no-target"),
        pytest.param({"targets": ["C32"]}, "target C32 is no level", id="other-level"),
        pytest.param({"paths": []}, "no path counter is named", id="no-path"),
        pytest.param({"claim": "tolerance"}, "a tolerance is declared", id="no-tolerance"),
        pytest.param({"parent": "fast-001"}, "leads to no baseline", id="own-parent"),
        pytest.param({"name": "fast-002"}, "the nearest is fast-002", id="other-name"),
    ],
)
def test_a_candidate_that_can_not_be_judged_is_one_line(gate, tmp_path, changes, says):
    run = gate(candidate_profile(tmp_path, changes=changes), more=CANDIDATE)
    status, last, output = run.end()

    assert (2, 1) == (status, len(output.strip().splitlines())), output
    assert says in last
