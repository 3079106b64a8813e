"""Validity rules on requests and waves: each holds on a clean attempt and finds its own fault."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from acceptance.evidence import Outcome, wave_evidence
from acceptance.records import ClientReport, Request, RequestFigures, Wave
from acceptance.testing.evidence import evidence, request, required
from acceptance.validity import examine, level_codes


def _with_request(kind="measured", slot=1, **changes):
    """A clean attempt in which one request is different."""
    clean = evidence()
    waves = tuple(
        replace(
            wave,
            requests=tuple(
                replace(one, **changes) if (wave.kind, one.slot) == (kind, slot) else one
                for one in wave.requests
            ),
        )
        for wave in clean.waves
    )
    return replace(clean, waves=waves)


def _with_wave(kind="measured", **changes):
    clean = evidence()
    waves = tuple(replace(w, **changes) if w.kind == kind else w for w in clean.waves)
    return replace(clean, waves=waves)


def _with_requests(*requests, kind="measured"):
    return _with_wave(kind, requests=requests)


def _expecting(changed, **changes):
    return replace(changed, expected=replace(changed.expected, **changes))


def _findings(changed):
    return {finding.id: finding for finding in examine(changed, required())}


def _said(changed, id):
    finding = _findings(changed)[id]
    return finding.outcome.value, finding.codes


MEASURED = evidence().waves[1].requests
WARMUP = evidence().waves[0]

CASES = [
    ("wave-count", "missing", _with_requests(*MEASURED[:3]), "invalid", "wave-count"),
    ("wave-count", "doubled", _with_requests(*MEASURED, MEASURED[2]), "invalid", "wave-count"),
    (
        "wave-count",
        "surplus",
        _with_requests(*MEASURED, replace(MEASURED[0], slot=4)),
        "invalid",
        "wave-count",
    ),
    ("wave-count", "clean", evidence(), "valid", None),
    ("wave-count", "no-warmup", _with_requests(kind="warmup"), "invalid", "wave-count"),
    ("wave-count", "no-waves", replace(evidence(), waves=()), "invalid", "wave-count"),
    ("wave-count", "unknown", replace(evidence(), waves=None), "unknown", "wave-count-unknown"),
    (
        "wave-order",
        "swapped",
        replace(evidence(), waves=evidence().waves[::-1]),
        "invalid",
        "wave-order",
    ),
    (
        "wave-order",
        "twice",
        replace(evidence(), waves=(WARMUP, *evidence().waves)),
        "invalid",
        "wave-order",
    ),
    # The warm-up's origin is 10^12 ns and its last byte comes 9000 ns later; starts are at 10.
    ("wave-order", "touching", _with_wave(origin_ns=str(10**12 + 8990)), "valid", None),
    ("wave-order", "overlap-1ns", _with_wave(origin_ns=str(10**12 + 8989)), "invalid",
     "wave-order"),
    ("wave-order", "no-origin", _with_wave(origin_ns=None), "unknown", "wave-order-unknown"),
    ("wave-order", "bad-origin", _with_wave(origin_ns="-5"), "unknown", "wave-order-unknown"),
    (
        "wave-order",
        "no-end",
        _with_request("warmup", end_ns=None),
        "unknown",
        "wave-order-unknown",
    ),
    (
        "wave-order",
        "no-start",
        _with_request("measured", start_ns=None),
        "unknown",
        "wave-order-unknown",
    ),
    ("wave-order", "unknown", replace(evidence(), waves=None), "unknown", "wave-order-unknown"),
    ("wave-complete", "aborted", _with_wave(aborted="client died"), "invalid", "wave-aborted"),
    ("wave-complete", "unknown", _with_wave(aborted=None), "unknown", "wave-complete-unknown"),
    ("prompt-order", "index", _with_request(prompt_index=2), "invalid", "prompt-order"),
    ("prompt-order", "content", _with_request(prompt_sha256="x"), "invalid", "prompt-order"),
    (
        "prompt-order",
        "short-bank",
        _expecting(evidence(), prompts={"warmup": ("w0",), "measured": ("m0",)}),
        "invalid",
        "prompt-order",
    ),
    (
        "prompt-order",
        "warmup-is-measured",
        _expecting(
            _with_request("measured", slot=0, prompt_sha256="w0"),
            prompts={"warmup": ("w0", "w1", "w2", "w3"), "measured": ("w0", "m1", "m2", "m3")},
        ),
        "invalid",
        "prompt-order",
    ),
    (
        "prompt-order",
        "no-bank",
        _expecting(evidence(), prompts=None),
        "unknown",
        "prompt-order-unknown",
    ),
    ("salts", "empty", _with_request(cache_salt=""), "invalid", "salt-reused"),
    ("salts", "doubled", _with_request(cache_salt="measured-0"), "invalid", "salt-reused"),
    ("salts", "of-warmup", _with_request(cache_salt="warmup-1"), "invalid", "salt-reused"),
    (
        "salts",
        "of-earlier-attempt",
        replace(evidence(), salts_before=("measured-3",)),
        "invalid",
        "salt-reused",
    ),
    ("salts", "unknown", replace(evidence(), salts_before=None), "unknown", "salts-unknown"),
    ("rank-header", "wrong", _with_request(rank=0), "invalid", "request-mismatch"),
    ("rank-header", "not-modulo", _with_request(slot=2, rank=2), "invalid", "request-mismatch"),
    ("request-bytes", "other", _with_request(codes=("request-mismatch",)), "invalid",
     "request-mismatch"),
    ("barrier", "equal", _with_wave(barrier_wait_ns=600), "valid", None),
    ("barrier", "late", _with_wave(barrier_wait_ns=601), "invalid", "barrier"),
    ("barrier", "unknown", _with_wave(barrier_wait_ns=None), "unknown", "barrier-unknown"),
    # All other requests start at 10 ns; the limit of the skew is 50 ns.
    ("send-skew", "equal", _with_request(start_ns=60), "valid", None),
    ("send-skew", "late", _with_request(start_ns=61), "invalid", "send-skew"),
    ("send-skew", "early", _with_request(start_ns=-41), "invalid", "send-skew"),
    ("send-skew", "in-warmup", _with_request("warmup", start_ns=61), "invalid", "send-skew"),
    ("send-skew", "unknown", _with_request(start_ns=None), "unknown", "send-skew-unknown"),
    ("client-stall", "equal", _with_wave(stall_ns_max=70), "valid", None),
    ("client-stall", "longer", _with_wave(stall_ns_max=71), "invalid", "client-stall"),
    ("client-stall", "unknown", _with_wave(stall_ns_max=None), "unknown", "client-stall-unknown"),
    ("transport", "reset", _with_request(outcome="reset"), "invalid", "outcome-reset"),
    ("transport", "refused", _with_request(outcome="refused"), "invalid", "outcome-refused"),
    ("transport", "died", _with_request(outcome="client-died"), "invalid", "outcome-client-died"),
    ("transport", "by-code", _with_request(codes=("outcome-aborted",)), "invalid",
     "outcome-aborted"),
    ("transport", "timeout-is-another", _with_request(outcome="timeout"), "valid", None),
    ("transport", "unknown", _with_request(outcome=None), "unknown", "transport-unknown"),
    ("timeouts", "outcome", _with_request(outcome="timeout"), "invalid", "outcome-timeout"),
    ("timeouts", "reset-is-another", _with_request(outcome="reset"), "valid", None),
    # start is 10, the timeout 100000 ns.
    ("timeouts", "equal", _with_request(end_ns=100_010), "valid", None),
    ("timeouts", "late", _with_request(end_ns=100_011), "invalid", "outcome-timeout"),
    ("error-frame", "error", _with_request(codes=("error-frame",)), "invalid", "error-frame"),
    ("prompt-echo", "other", _with_request(codes=("prompt-echo",)), "invalid", "prompt-echo"),
    ("output-length", "code", _with_request(codes=("token-count",)), "invalid", "token-count"),
    ("output-length", "none", _with_request(codes=("no-token",)), "invalid", "no-token"),
    ("output-length", "short", _with_request(output_tokens=63), "invalid", "token-count"),
    ("output-length", "long", _with_request(output_tokens=65), "invalid", "token-count"),
    ("output-length", "in-warmup", _with_request("warmup", output_tokens=64), "invalid",
     "token-count"),
    ("output-length", "unknown", _with_request(output_tokens=None), "unknown",
     "output-length-unknown"),
    ("usage", "missing", _with_request(codes=("usage-missing",)), "invalid", "usage-missing"),
    ("usage", "differs", _with_request(codes=("usage-mismatch",)), "invalid", "usage-mismatch"),
    ("finish-reason", "stop", _with_request(codes=("finish-reason",)), "invalid", "finish-reason"),
    ("cached-tokens", "hit", _with_request(codes=("cached-tokens",)), "invalid", "cached-tokens"),
    ("cached-tokens", "not-said", _with_request(codes=("cached-unknown",)), "unknown",
     "cached-unknown"),
    ("clock", "code", _with_request(codes=("clock",)), "invalid", "clock"),
    ("clock", "all-equal", _with_request(start_ns=30, connected_ns=30, sent_ns=30, first_ns=30,
                                         last_token_ns=30, end_ns=30), "valid", None),
    ("clock", "first-before-sent", _with_request(first_ns=29), "invalid", "clock"),
    ("clock", "end-before-last", _with_request(end_ns=7999), "invalid", "clock"),
    ("clock", "at-the-origin", _with_request(start_ns=0), "valid", None),
    ("clock", "negative", _with_request(start_ns=-1), "invalid", "clock"),
    ("clock", "unknown", _with_request(first_ns=None), "unknown", "clock-unknown"),
    ("stream-framing", "no-done", _with_request(codes=("no-done",)), "invalid", "no-done"),
    ("stream-framing", "early-eof", _with_request(codes=("early-eof",)), "invalid", "early-eof"),
    ("stream-framing", "new-code", _with_request(codes=("some-new-code",)), "invalid",
     "some-new-code"),
    ("stream-framing", "others-code", _with_request(codes=("usage-missing",)), "valid", None),
]  # fmt: skip


@pytest.mark.rule("P4.1")
@pytest.mark.parametrize(
    ("id", "changed", "outcome", "code"),
    [pytest.param(id, *rest, id=f"{id}-{name}") for id, name, *rest in CASES],
)
def test_a_rule_finds_its_fault(id, changed, outcome, code):
    assert (outcome, (code,) if code else ()) == _said(changed, id)


STREAM_RULES = (
    "request-bytes", "stream-framing", "error-frame", "prompt-echo", "output-length",
    "usage", "finish-reason", "cached-tokens", "clock",
)  # fmt: skip


@pytest.mark.rule("P4.1")
@pytest.mark.parametrize("id", [pytest.param(id, id=id) for id in STREAM_RULES])
def test_a_stream_that_was_not_parsed_leaves_its_rules_unknown(id):
    outcome, codes = _said(_with_request(codes=None), id)

    assert id == "clock" or (outcome, codes) == ("unknown", (f"{id}-unknown",))
    assert (Outcome.UNKNOWN, (f"{id}-unknown",)) == _said(replace(evidence(), waves=None), id)


@pytest.mark.rule("P4.1")
def test_a_stream_with_a_fault_beside_one_not_parsed_is_invalid():
    changed = _with_requests(
        replace(MEASURED[0], codes=None), replace(MEASURED[1], codes=("usage-missing",))
    )

    assert ("invalid", ("usage-missing",)) == _said(changed, "usage")


def test_every_documented_code_of_a_request_breaks_exactly_one_rule(request_codes):
    for code in request_codes:
        broken = [
            finding.id
            for finding in _findings(_with_request(codes=(code,))).values()
            if finding.outcome in (Outcome.INVALID, Outcome.UNKNOWN)
        ]
        assert [code] == list(level_codes(examine(_with_request(codes=(code,)), required())))
        assert 1 == len(broken), f"{code}: {broken}"


@pytest.fixture
def request_codes():
    """The codes of docs/run-directory.md, from its table."""
    text = (Path(__file__).parent.parent / "docs/run-directory.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    codes = [row.split("`")[1] for row in rows]
    assert len(codes) >= 20
    return [*(code for code in codes if "<" not in code), "outcome-timeout", "outcome-reset"]


def test_many_faults_are_counted_and_three_are_told():
    changed = replace(
        evidence(),
        waves=(WARMUP, replace(WARMUP, kind="measured", requests=())),
    )

    reason = _findings(changed)["wave-count"].reason
    assert (
        "measured slot 0 missing; measured slot 1 missing; measured slot 2 missing; and 1 more"
        == reason
    )


def test_a_wave_of_the_run_directory_becomes_evidence():
    one = Request(
        slot=0,
        prompt_index=0,
        prompt_sha256="m0",
        rank=0,
        cache_salt="s",
        start_ns=10,
        connected_ns=20,
        sent_ns=30,
        outcome="fin",
        request="a",
        raw="b",
        reads="c",
    )
    figures = RequestFigures(
        slot=0,
        ttft_ns=1,
        e2e_ns=2,
        output_tokens=64,
        tpot_ns="1/1",
        tpot_last_token_ns="1/1",
        tpot_per_later_token_ns=None,
        first_frame_tokens=1,
        first_ns=1000,
        last_token_ns=8000,
        end_ns=9000,
        token_ids_sha256="t",
    )
    client = ClientReport(
        pid=1,
        scheduler="other",
        nice=0,
        affinity=(0,),
        gc_collections=0,
        ticks=1,
        tick_ns=1,
        stall_ns_max=70,
        read_ns_max=1,
        barrier_wait_ns=600,
    )
    wave = Wave(
        kind="measured", origin_ns="5", started_utc="", requests=(one, replace(one, slot=1)),
        client=client, aborted=None,
    )  # fmt: skip

    found = wave_evidence(wave, {0: figures}, {0: ()})

    wanted = request("measured", 0, cache_salt="s")
    assert wanted == found.requests[0]
    assert (None, None, None) == (
        found.requests[1].end_ns, found.requests[1].output_tokens, found.requests[1].codes,
    )  # fmt: skip
    assert ("", 600, 70) == (found.aborted, found.barrier_wait_ns, found.stall_ns_max)
    unknown = wave_evidence(replace(wave, client=None, aborted="reset"), {}, {})
    assert ("reset", None, None) == (
        unknown.aborted, unknown.barrier_wait_ns, unknown.stall_ns_max,
    )  # fmt: skip
