"""Files that are malformed, truncated, foreign or from another version: one line, never a
traceback, and the file stays as it is."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import validator
from acceptance import evidence, plan, proof, records, runspec
from acceptance.accuracy.records import AccuracyRun, ServiceEdge
from acceptance.service.spec import Command
from tests.strategies import runs
from tests.strategies.places import fast_directory
from validator import attempts
from validator.accuracy import Edge, Run
from validator.claim import Outcome
from validator.exposition import Counters, snapshot
from validator.runspec import RUNSPEC, Profile, RunSpec
from validator.strict import Refused, canonical, exact, read


@pytest.fixture(scope="module")
def good():
    with fast_directory() as path:
        yield runs.seal(runs.write(runs.run_draft(levels=("C1",)), path))


@pytest.fixture
def copy(good):
    with fast_directory() as path:
        yield runs.clone(good, path / "copy")


ATTEMPT = "results/B1/C1/attempt-1/attempt.json"
RUNSPEC_FILE = "plan/runspec.json"


def edit(run_dir, path, change):
    """Change the value of a JSON file and write it back canonically."""
    value = json.loads((run_dir / path).read_bytes())
    change(value)
    (run_dir / path).write_bytes(canonical(value))


def set_at(*keys, to):
    def change(value):
        for key in keys[:-1]:
            value = value[key]
        value[keys[-1]] = to

    return change


def drop(*keys):
    def change(value):
        for key in keys[:-1]:
            value = value[key]
        del value[keys[-1]]

    return change


REFUSED = {
    "future-runspec": (RUNSPEC_FILE, set_at("schema", to=2), "schema: schema 2 is not known here"),
    "unknown-key": (RUNSPEC_FILE, set_at("colour", to="red"), "colour: this key is not known"),
    "missing-key": (RUNSPEC_FILE, drop("targets"), "targets: is missing"),
    "another-kind": (RUNSPEC_FILE, set_at("kind", to="try"), 'kind: "try" is none of final'),
    "unknown-level": (RUNSPEC_FILE, set_at("profile", "levels", to=["C2"]), "profile.levels"),
    "levels-out-of-order": (
        RUNSPEC_FILE, set_at("profile", "levels", to=["C4", "C1"]), "profile.levels"),
    "no-levels": (RUNSPEC_FILE, set_at("profile", "levels", to=[]), "profile.levels"),
    "one-output-token": (
        RUNSPEC_FILE, set_at("profile", "measured", "output_tokens", to=1),
        "profile.measured.output_tokens: 1 is less than 2"),
    "no-engines": (RUNSPEC_FILE, set_at("profile", "data_parallel_size", to=0), "is less than 1"),
    "scope-left-out": (RUNSPEC_FILE, drop("profile", "scopes", "accuracy"), "profile.scopes"),
    "excused-without-reason": (
        RUNSPEC_FILE, set_at("profile", "rules", "usage", to="not_applicable: "),
        "profile.rules.usage: must be"),
    "ratio-not-in-lowest-terms": (
        RUNSPEC_FILE, set_at("limits_tpot_ns", "C1", to="4/2"), 'not in lowest terms'),
    "ratio-as-a-number": (RUNSPEC_FILE, set_at("limits_tpot_ns", "C1", to=25), "25 is no text"),
    "attempt-of-another-run": (ATTEMPT, set_at("run_id", to="x"), "run_id: is another run's"),
    "attempt-of-another-runspec": (
        ATTEMPT, set_at("runspec_sha256", to="0" * 64), "runspec_sha256: is another RunSpec's"),
    "attempt-in-another-place": (ATTEMPT, set_at("level", to="C4"), "is the record of B1/C4"),
    "future-attempt": (ATTEMPT, set_at("schema", to=9), "schema: schema 9 is not known here"),
    "time-as-text": (
        ATTEMPT, set_at("waves", 1, "requests", 0, "start_ns", to="5"),
        'waves[1].requests[0].start_ns: "5" is no integer'),
    "origin-as-a-number": (
        ATTEMPT, set_at("waves", 0, "origin_ns", to=5), "waves[0].origin_ns: 5 is no text"),
    "true-for-a-slot": (
        ATTEMPT, set_at("waves", 1, "requests", 0, "slot", to=True),
        "waves[1].requests[0].slot: true is no integer"),
    "an-outcome-of-its-own": (
        ATTEMPT, set_at("waves", 1, "requests", 0, "outcome", to="fine"), '"fine" is none of fin'),
    "a-file-elsewhere": (
        ATTEMPT, set_at("waves", 1, "requests", 0, "raw", to="../../secret"),
        '"../../secret" is no plain file name'),
    "a-file-that-is-not-there": (
        ATTEMPT, set_at("waves", 1, "requests", 0, "raw", to="other.raw"),
        "results/B1/C1/attempt-1/other.raw: No such file or directory"),
    "one-file-for-two-requests": (
        ATTEMPT, set_at("waves", 1, "requests", 0, "raw", to="warmup-00.raw"),
        "names warmup-00.raw more than once"),
    "a-short-bank": ("plan/banks/measured.json", drop(0), "31 prompts, not 32"),
    "a-long-prompt": (
        "plan/banks/measured.json", set_at(3, to=[1, 2, 3, 4]), "[3]: 4 tokens, not 3"),
    "prompts-in-both-banks": (
        "plan/banks/measured.json", set_at(3, to=[100, 101, 7]), "64 prompts are not all distinct"),
    "a-negative-token": (
        "plan/banks/measured.json", set_at(3, 1, to=-4), "[3][1]: -4 is negative"),
    "a-proof-with-a-float": (
        "results/B1/C1/attempt-1/identity-0.json", set_at("host", "steal_ppm", to="0.5"),
        'host.steal_ppm: "0.5" is no integer'),
    "a-port-as-text": (
        "results/B1/service/command.json", set_at("port", to="8001"), 'port: "8001" is no integer'),
}  # fmt: skip


@pytest.mark.parametrize(("path", "change", "says"), REFUSED.values(), ids=REFUSED)
def test_a_record_that_is_not_what_it_should_be_is_refused(copy, path, change, says):
    edit(copy, path, change)
    if path == RUNSPEC_FILE or path.startswith("plan/banks"):
        refreeze(copy)
    runs.reseal(copy)
    before = (copy / path).read_bytes()

    result = validator.verify(copy)

    assert 2 == result.status, result.lines
    assert 1 == len(result.lines)
    assert says in result.lines[0]
    assert before == (copy / path).read_bytes()


def refreeze(run_dir):
    """Let the RunSpec name the banks as they are, and every attempt the RunSpec."""
    value = json.loads((run_dir / RUNSPEC_FILE).read_bytes())
    names = [one["path"] for one in value["files"]]
    value["files"] = [runs.file_hash(run_dir, name) for name in names]
    (run_dir / RUNSPEC_FILE).write_bytes(canonical(value))
    digest = runs.sha256((run_dir / RUNSPEC_FILE).read_bytes())
    for path in run_dir.glob("results/*/*/attempt-*/attempt.json"):
        edit(run_dir, path.relative_to(run_dir), set_at("runspec_sha256", to=digest))


MANIFESTS = {
    "future": (set_at("schema", to=2), "manifest.json: schema: schema 2 is not known here"),
    "unknown-key": (set_at("signed", to=True), "manifest.json: signed: this key is not known"),
    "path-outside": (
        set_at("files", 0, "path", to="../secret"),
        "manifest.json: files[0].path: is no path of a file inside the archive"),
    "path-twice": (
        lambda value: value["files"].append(value["files"][0]),
        "manifest.json: files: a path is listed twice"),
    "size-as-text": (set_at("files", 3, "size", to="1"), 'files[3].size: "1" is no integer'),
    "short-hash": (set_at("files", 3, "sha256", to="ab"), 'files[3].sha256: "ab" is no SHA-256'),
}  # fmt: skip


@pytest.mark.parametrize(("change", "says"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_that_is_not_what_it_should_be_is_refused(copy, change, says):
    edit(copy, "manifest.json", change)
    digest = runs.sha256((copy / "manifest.json").read_bytes())
    (copy / "manifest.sha256").write_text(f"{digest}\n")

    result = validator.verify(copy)

    assert (2, 1) == (result.status, len(result.lines))
    assert says in result.lines[0]


def test_a_third_attempt_is_more_than_planned(copy):
    target = copy / "results/B1/C1/attempt-3"
    target.mkdir()
    (target / "attempt.json").write_bytes((copy / ATTEMPT).read_bytes())
    runs.reseal(copy)

    result = validator.verify(copy)

    assert (2, True) == (result.status, "at most 2 attempts are planned" in result.lines[0])


def test_a_run_that_never_got_to_a_level_is_inconclusive(copy):
    for path in (copy / "results/B2/C1/attempt-1").iterdir():
        path.unlink()

    figures = validator.recompute(copy)

    assert [("B1", "C1")] == [(one["round"], one["level"]) for one in figures["levels"]]
    assert ("INCONCLUSIVE", {}) == (figures["verdict"], figures["tpot_ns"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def mutations(draw, value):
    """The value with one place in it replaced, dropped or added to."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 7)) == 0:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: draw(mutations(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        at = draw(st.integers(0, len(value) - 1))
        return [draw(mutations(one)) if n == at else one for n, one in enumerate(value)]
    return draw(JSON)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_record_however_odd_gives_a_traceback(good, data):
    path = data.draw(st.sampled_from([
        RUNSPEC_FILE, ATTEMPT, "plan/banks/warmup.json", "results/B2/service/command.json",
        "results/B2/C1/attempt-1/identity-1.json", "results/B2/C1/attempt-1/measured-00.reads",
        "results/figures.json",
    ]))  # fmt: skip
    file = good / path
    before = file.read_bytes()
    value = data.draw(mutations(json.loads(before)))
    try:
        file.write_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())
        sealed = {n: (good / n).read_bytes() for n in ("manifest.json", "manifest.sha256")}
        try:
            runs.reseal(good)
        except (TypeError, KeyError):
            return  # a RunSpec without a run id can't be sealed at all

        result = validator.verify(good)
    finally:
        file.write_bytes(before)
        for name, data_ in sealed.items():
            (good / name).write_bytes(data_)

    assert result.status in (0, 1, 2)
    assert all("\n" not in line for line in result.lines)


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes_in_place_of_a_record_are_read_or_refused(data):
    said = []
    for reader in (RUNSPEC, attempts.ATTEMPT, attempts.READS, attempts.PROOF, attempts.BANK):
        try:
            read(data, "some.json", reader)
        except Refused as error:
            said.append(str(error))

    assert all(line.startswith("some.json: ") and "\n" not in line for line in said)


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet='vlm:_{}="engine0123456789.eE+-NaIf \n#\\,', max_size=120))
def test_any_text_in_place_of_metrics_is_read_or_refused(text):
    try:
        snapshot(text.encode())
    except ValueError:
        return


METRICS = {
    "no-samples": (b"# nothing\n", {}),
    "engine-by-default": (b"vllm:num_preemptions_total 3.0\n", {0: Counters(preemptions=3)}),
    "exponent": (
        b'vllm:prompt_tokens_total{engine="1"} 1.5e+03\n', {1: Counters(prompt_tokens=1500)}),
    "a-brace-in-a-label": (
        b'vllm:num_requests_running{a="}",engine="2"} 4 1700000000\n', {2: Counters(running=4)}),
    "newest-name-counts": (
        b"vllm:gpu_prefix_cache_hits_total 7.0\nvllm:prefix_cache_hits_total 5.0\n",
        {0: Counters(prefix_hit_tokens=5)}),
    "series-are-added-up": (
        b'vllm:request_success_total{finished_reason="length"} 2.0\n'
        b'vllm:request_success_total{finished_reason="abort"} 1.0\n',
        {0: Counters(requests=3, requests_failed=1)}),
    "others-do-not-matter": (b"python_gc 0.25\nx NaN\n", {}),
}  # fmt: skip


@pytest.mark.parametrize(("text", "counters"), METRICS.values(), ids=METRICS)
def test_counters_are_read_per_engine(text, counters):
    assert counters == snapshot(text)


@pytest.mark.parametrize(
    "text",
    [
        b"vllm:num_preemptions_total NaN\n",
        b"vllm:num_preemptions_total -1.0\n",
        b"vllm:num_preemptions_total 0.5\n",
        b"vllm:num_preemptions_total 1e40\n",
        b'vllm:num_preemptions_total{engine="a"} 1.0\n',
        b"<html>\n",
        b"\xff\n",
        b"vllm:num_preemptions_total\n",
    ],
    ids=["nan", "negative", "half", "inexact", "engine-a", "html", "not-utf8", "no-value"],
)
def test_what_is_no_count_makes_no_snapshot(text):
    with pytest.raises(ValueError, match=r"."):
        snapshot(text)


SAME = {
    "RunSpec": (RunSpec, runspec.RunSpec),
    "Attempt": (attempts.Attempt, records.Attempt),
    "Request": (attempts.Request, records.Request),
    "Client": (attempts.Client, records.ClientReport),
    "Wave": (attempts.Wave, records.Wave),
    "Proof": (attempts.Proof, proof.Proof),
    "Command": (attempts.Command, Command),
    "Host": (attempts.Host, evidence.Host),
    "Profile": (Profile, runspec.RunProfile),
    "AccuracyRun": (Run, AccuracyRun),
    "ServiceEdge": (Edge, ServiceEdge),
    "Outcome": (Outcome, plan.Outcome),
}


@pytest.mark.parametrize(("mine", "theirs"), SAME.values(), ids=SAME)
def test_the_validator_knows_each_record_as_it_is_written(mine, theirs):
    assert sorted(f.name for f in msgspec.structs.fields(theirs)) == sorted(mine.__annotations__)


@settings(max_examples=200, deadline=None)
@given(value=JSON.filter(lambda v: all(abs(n) < 2**53 for n in integers(v))))
def test_canonical_bytes_are_those_of_rfc_8785(value):
    import rfc8785

    try:
        expected = rfc8785.dumps(value)
    except (UnicodeEncodeError, rfc8785.CanonicalizationError):
        return

    assert expected == canonical(value)


def integers(value):
    if isinstance(value, list):
        return [n for one in value for n in integers(one)]
    if isinstance(value, dict):
        return [n for one in value.values() for n in integers(one)]
    return [value] if isinstance(value, int) else []


@pytest.mark.parametrize("text", ["5", "2/4", "-0/1", "1/0", "01/2", " 1/2", "1/-2", "", "a/b"])
def test_one_number_has_one_spelling(text):
    with pytest.raises(ValueError, match=r"ratio|lowest"):
        exact(text)
