"""Validity rules on the service, its counters and its host, each with its planted fault."""

import pytest
from msgspec.structs import replace

from acceptance.evidence import Host
from acceptance.testing.evidence import engine, evidence, required, window
from acceptance.validity import examine


def _with_engine(kind="measured", number=1, **changes):
    """A clean attempt in which one engine counted something else in one window."""
    windows = tuple(
        replace(
            one,
            engines=tuple(
                replace(e, **changes) if (one.kind, e.engine) == (kind, number) else e
                for e in one.engines
            ),
        )
        for one in evidence().windows
    )
    return evidence(windows=windows)


def _with_engines(*engines):
    return evidence(windows=(window("warmup"), replace(window("measured"), engines=engines)))


def _expecting(**changes):
    return evidence(expected=replace(evidence().expected, **changes))


def _in_flight(before, after):
    measured = replace(window("measured"), in_flight=(before, after))
    return evidence(windows=(window("warmup"), measured))


def _proved(**changes):
    """Both proofs of the service changed alike."""
    proof = {**evidence().identity_before, **changes}
    return evidence(identity_before=proof, identity_after=dict(proof))


def _settings(**changes):
    return evidence(settings={**evidence().settings, **changes})


def _paths(**workers):
    return evidence(path_calls={"row_mask": workers})


READ = ("metrics", "foreign-traffic", "token-counters", "rank-routing", "preemptions",
        "prefix-hits", "service-errors", "draft-acceptance", "graph-replay")  # fmt: skip
"""Rules that need the counters of every engine in every window."""

COUNTED = [
    ("preemptions", "one", _with_engine(preemptions=1), "invalid", "preemptions"),
    ("preemptions", "in-warmup", _with_engine("warmup", preemptions=1), "invalid", "preemptions"),
    ("preemptions", "unreadable", _with_engine(preemptions=None), "unknown", "preemptions-unknown"),
    ("prefix-hits", "one", _with_engine(prefix_hit_tokens=1), "invalid", "prefix-hits"),
    ("service-errors", "one", _with_engine(requests_failed=1), "invalid", "service-errors"),
    ("service-errors", "sick", evidence(is_healthy_after=False), "invalid", "service-errors"),
    ("service-errors", "unknown", evidence(is_healthy_after=None), "unknown",
     "service-errors-unknown"),
    ("foreign-traffic", "one-more", _with_engine(requests=3), "invalid", "foreign-traffic"),
    ("foreign-traffic", "one-less", _with_engine(requests=1), "invalid", "foreign-traffic"),
    ("foreign-traffic", "all-on-one", _with_engines(engine("measured", 0, requests=4),
                                                    engine("measured", 1, requests=0)), "valid",
     None),
    ("token-counters", "all-on-one", _with_engines(
        engine("measured", 0, prompt_tokens=512, output_tokens=256),
        engine("measured", 1, prompt_tokens=0, output_tokens=0)), "valid", None),
    ("foreign-traffic", "unreadable", _with_engine(requests=None), "unknown",
     "foreign-traffic-unknown"),
    ("foreign-traffic", "running-before", _in_flight(1, 0), "invalid", "foreign-traffic"),
    ("foreign-traffic", "running-after", _in_flight(0, 1), "invalid", "foreign-traffic"),
    ("foreign-traffic", "in-flight-unknown", _in_flight(0, None), "unknown",
     "foreign-traffic-unknown"),
    ("token-counters", "prompt", _with_engine(prompt_tokens=257), "invalid", "token-counters"),
    ("token-counters", "output", _with_engine(output_tokens=127), "invalid", "token-counters"),
    ("token-counters", "unreadable", _with_engine(output_tokens=None), "unknown",
     "token-counters-unknown"),
    ("token-counters", "no-length", _expecting(output_tokens={"warmup": 16}), "unknown",
     "token-counters-unknown"),
    # Slots 0 and 2 go to engine 0, slots 1 and 3 to engine 1.
    ("rank-routing", "moved", _with_engines(engine("measured", 0, requests=3),
                                            engine("measured", 1, requests=1)), "invalid",
     "rank-routing"),
    ("rank-routing", "unreadable", _with_engine(requests=None), "unknown", "rank-routing-unknown"),
    ("restarts", "other-start", evidence(process_starts=("77", "77", "78")), "invalid",
     "service-changed"),
    ("restarts", "counter-back", _with_engine(requests=-1), "invalid", "service-changed"),
    ("restarts", "unknown-edge", evidence(process_starts=("77", None, "77")), "unknown",
     "restarts-unknown"),
    ("restarts", "no-edges", evidence(process_starts=()), "unknown", "restarts-unknown"),
    ("restarts", "unknown", evidence(process_starts=None), "unknown", "restarts-unknown"),
    ("draft-acceptance", "dead", _with_engine(accepted_tokens=0), "invalid", "draft-acceptance"),
    ("draft-acceptance", "one", _with_engine(accepted_tokens=1), "valid", None),
    ("draft-acceptance", "all", _with_engine(accepted_tokens=100), "valid", None),
    ("draft-acceptance", "too-many", _with_engine(accepted_tokens=101), "invalid",
     "draft-acceptance"),
    ("draft-acceptance", "no-draft", _with_engine(draft_tokens=0, accepted_tokens=0), "invalid",
     "draft-acceptance"),
    ("draft-acceptance", "idle-engine", _with_engine(requests=0, draft_tokens=0,
                                                     accepted_tokens=0), "valid", None),
    ("draft-acceptance", "unreadable", _with_engine(draft_tokens=None), "unknown",
     "draft-acceptance-unknown"),
    ("graph-replay", "none", _with_engine(graph_replays=0), "invalid", "graph-replay"),
    ("graph-replay", "one", _with_engine(graph_replays=1), "valid", None),
    ("graph-replay", "none-in-warmup", _with_engine("warmup", graph_replays=0), "valid", None),
    ("graph-replay", "idle-engine", _with_engine(requests=0, graph_replays=0), "valid", None),
    ("graph-replay", "unreadable", _with_engine(graph_replays=None), "unknown",
     "graph-replay-unknown"),
    ("metrics", "two-edges", evidence(edge_reads=2), "unknown", "metrics-missing"),
    ("metrics", "four-edges", evidence(edge_reads=4), "unknown", "metrics-missing"),
    ("metrics", "unknown", evidence(edge_reads=None), "unknown", "metrics-missing"),
]  # fmt: skip

SERVED = [
    ("attempt", "second", evidence(attempt=2, previous="attempt-1", previous_valid=False,
                                   previous_reason="no-done"), "valid", None),
    ("attempt", "zero", evidence(attempt=0, previous="attempt-1", previous_valid=False,
                                 previous_reason="no-done"), "invalid", "attempt"),
    ("attempt", "after-valid", evidence(attempt=2, previous="attempt-1", previous_valid=True,
                                        previous_reason="noise"), "invalid", "attempt"),
    ("attempt", "no-link", evidence(attempt=2, previous=None, previous_valid=False,
                                    previous_reason="no-done"), "invalid", "attempt"),
    ("attempt", "no-reason", evidence(attempt=2, previous="attempt-1", previous_valid=False,
                                      previous_reason=""), "invalid", "attempt"),
    ("attempt", "unknown", evidence(attempt=2, previous="attempt-1", previous_valid=None,
                                    previous_reason="no-done"), "unknown", "attempt-unknown"),
    ("attempt", "first-with-link", evidence(previous="attempt-0"), "invalid", "attempt"),
    ("observer", "inside", evidence(window_reads=1), "invalid", "observer"),
    ("observer", "unknown", evidence(window_reads=None), "unknown", "observer-unknown"),
    ("observer", "no-cost", evidence(observer_cost_ns=None), "unknown", "observer-unknown"),
    ("service-identity", "not-ours", _proved(source="abd"), "invalid", "service-changed"),
    ("service-identity", "changed", evidence(identity_after={"pid": "8", "source": "abc"}),
     "invalid", "service-changed"),
    ("service-identity", "key-gone", evidence(identity_after={"source": "abc"}), "invalid",
     "service-changed"),
    ("service-identity", "not-proved", evidence(identity_before={"pid": "7"},
                                                identity_after={"pid": "7"}), "unknown",
     "service-identity-unknown"),
    ("service-identity", "value-unknown", _proved(pid=None), "unknown",
     "service-identity-unknown"),
    ("service-identity", "none-before", evidence(identity_before=None), "unknown",
     "service-identity-unknown"),
    ("service-identity", "empty-after", evidence(identity_after={}), "unknown",
     "service-identity-unknown"),
    ("effective-config", "other", _settings(block_size=64), "invalid", "effective-config"),
    ("effective-config", "int-to-bool", _settings(enable_fused_mc2=True), "invalid",
     "effective-config"),
    ("effective-config", "bool-to-int", _settings(prefix_caching=1), "invalid",
     "effective-config"),
    ("effective-config", "int-to-text", _settings(block_size="128"), "invalid",
     "effective-config"),
    ("effective-config", "dropped", evidence(settings={"block_size": 128, "prefix_caching": True}),
     "invalid", "effective-config"),
    ("effective-config", "unknown-value", _settings(block_size=None), "unknown",
     "effective-config-unknown"),
    ("effective-config", "not-read", evidence(settings=None), "unknown",
     "effective-config-unknown"),
    ("effective-config", "nothing-frozen", _expecting(settings={}), "unknown",
     "effective-config-unknown"),
    ("kv-capacity", "ranks-differ", evidence(kv_tokens=(184960, 185088)), "valid", None),
    ("kv-capacity", "one-short", evidence(kv_tokens=(999, 1128)), "invalid", "kv-capacity"),
    # Two sequences of 128 + 64 tokens a rank: 384 must fit, whatever the profile's minimum.
    ("kv-capacity", "fits", replace(_expecting(kv_tokens_min=1), kv_tokens=(384, 384)), "valid",
     None),
    ("kv-capacity", "does-not-fit", replace(_expecting(kv_tokens_min=1), kv_tokens=(384, 383)),
     "invalid", "kv-capacity"),
    ("kv-capacity", "odd-slots", replace(_expecting(kv_tokens_min=1, concurrency=5),
                                         kv_tokens=(575, 576)), "invalid", "kv-capacity"),
    ("kv-capacity", "one-rank", evidence(kv_tokens=(1000,)), "unknown", "kv-capacity-unknown"),
    ("kv-capacity", "rank-unknown", evidence(kv_tokens=(1000, None)), "unknown",
     "kv-capacity-unknown"),
    ("kv-capacity", "unknown", evidence(kv_tokens=None), "unknown", "kv-capacity-unknown"),
    ("fused-mc2", "draft-never", evidence(fused_mc2_calls={"target": 9, "draft": 0}), "invalid",
     "fused-mc2"),
    ("fused-mc2", "draft-unread", evidence(fused_mc2_calls={"target": 9}), "unknown",
     "fused-mc2-unknown"),
    ("fused-mc2", "unknown", evidence(fused_mc2_calls=None), "unknown", "fused-mc2-unknown"),
    ("flashcomm", "never", evidence(flashcomm_calls={"target": 0}), "invalid", "flashcomm"),
    ("flashcomm", "no-counter", evidence(flashcomm_calls={}), "unknown", "flashcomm-unknown"),
    ("profiler-off", "on", evidence(is_profiler_on=True), "invalid", "profiler-off"),
    ("profiler-off", "unknown", evidence(is_profiler_on=None), "unknown", "profiler-off-unknown"),
    ("deployment", "differs", evidence(deployed_differences=("a.py",)), "invalid", "deployment"),
    ("deployment", "unknown", evidence(deployed_differences=None), "unknown",
     "deployment-unknown"),
    ("weights", "differs", evidence(weights_differences=("w.bin",)), "invalid", "weights"),
    ("weights", "unknown", evidence(weights_differences=None), "unknown", "weights-unknown"),
    ("device-preflight", "busy", evidence(device_problems=("card 3 is used by pid 9",)), "invalid",
     "device-preflight"),
    ("device-preflight", "unknown", evidence(device_problems=None), "unknown",
     "device-preflight-unknown"),
    ("host-load", "high-is-reported", evidence(host=Host(load_milli=99_000, steal_ppm=9,
     throttle_events=None, temperature_milli_c=None)), "valid", None),
    ("host-load", "unknown", evidence(host=None), "unknown", "host-load-unknown"),
    ("host-throttling", "unread", evidence(host=Host(load_milli=1, steal_ppm=0,
     throttle_events=None, temperature_milli_c=1)), "unknown", "host-throttling-unknown"),
    ("candidate-path", "never", _paths(a=0, b=0), "invalid", "candidate-path"),
    ("candidate-path", "on-one-of-two", _paths(a=3, b=0), "invalid", "candidate-path"),
    ("candidate-path", "one-worker-unread", _paths(a=3), "unknown", "candidate-path-unknown"),
    ("candidate-path", "value-unread", _paths(a=3, b=None), "unknown", "candidate-path-unknown"),
    ("candidate-path", "no-counter", evidence(path_calls={}), "unknown", "candidate-path-unknown"),
    ("candidate-path", "no-counters", evidence(path_calls=None), "unknown",
     "candidate-path-unknown"),
    ("candidate-path", "no-workers", _expecting(worker_count=0), "unknown",
     "candidate-path-unknown"),
    ("candidate-path", "one-of-one", replace(_paths(a=1), expected=_expecting(
        worker_count=1).expected), "valid", None),
    ("candidate-path", "no-candidate", evidence(paths_claimed=(), path_calls=None), "valid", None),
    ("candidate-path", "claim-unknown", evidence(paths_claimed=None), "unknown",
     "candidate-path-unknown"),
]  # fmt: skip


def _said(changed, id):
    finding = next(one for one in examine(changed, required()) if one.id == id)
    return finding.outcome.value, finding.codes


@pytest.mark.rule("P2.4")
@pytest.mark.rule("P2.6")
@pytest.mark.parametrize(
    ("id", "changed", "outcome", "code"),
    [pytest.param(id, *rest, id=f"{id}-{name}") for id, name, *rest in COUNTED],
)
def test_a_rule_on_counters_finds_its_fault(id, changed, outcome, code):
    assert (outcome, (code,) if code else ()) == _said(changed, id)


@pytest.mark.rule("P2.1")
@pytest.mark.rule("P7.3")
@pytest.mark.parametrize(
    ("id", "changed", "outcome", "code"),
    [pytest.param(id, *rest, id=f"{id}-{name}") for id, name, *rest in SERVED],
)
def test_a_rule_on_the_service_finds_its_fault(id, changed, outcome, code):
    assert (outcome, (code,) if code else ()) == _said(changed, id)


@pytest.mark.rule("P2.4a")
@pytest.mark.parametrize("id", [pytest.param(id, id=id) for id in READ])
@pytest.mark.parametrize(
    "windows",
    [
        pytest.param(None, id="not-read"),
        pytest.param((), id="no-window"),
        pytest.param((window("measured"),), id="warmup-missing"),
        pytest.param((window("warmup"), window("measured"), window("measured")), id="doubled"),
        pytest.param(
            (window("warmup"), replace(window("measured"), engines=(engine("measured", 0),))),
            id="engine-missing",
        ),
        pytest.param(
            (
                window("warmup"),
                replace(window("measured"), engines=(*window("measured").engines,
                                                     engine("measured", 1, requests=0))),
            ),
            id="engine-doubled",
        ),
    ],
)  # fmt: skip
def test_counters_that_were_not_all_read_are_unknown(id, windows):
    outcome, codes = _said(evidence(windows=windows), id)

    assert outcome != "valid"
    assert codes


def test_the_reading_names_what_it_found():
    found = {one.id: one.reason for one in examine(_with_engine(preemptions=3), required())}

    assert "measured engine 1: preemptions moved by 3" == found["preemptions"]
    assert "load/1000 900, steal ppm 0" == found["host-load"]
    assert "KV tokens by rank: 1000, 1128" == found["kv-capacity"]


@pytest.mark.rule("P7.3")
def test_a_path_that_ran_on_one_worker_says_so():
    found = {one.id: one.reason for one in examine(_paths(a=1, b=0), required())}

    assert "row_mask: ran on 1 of 2 workers" == found["candidate-path"]


def test_a_coerced_option_is_named_with_both_values():
    found = {one.id: one.reason for one in examine(_settings(enable_fused_mc2=True), required())}

    assert "enable_fused_mc2 is True, asked 1" == found["effective-config"]
