"""Counters of /metrics by engine, over versions and names; what is not counted is unknown."""

from fractions import Fraction
from pathlib import Path

import pytest

from acceptance.probes import (
    Counters,
    Snapshot,
    acceptance_by_position,
    acceptance_length,
    difference,
    in_flight,
    kv_tokens,
    path_calls,
    snapshot,
    window,
)

DATA = Path(__file__).parent / "data/metrics"


def sample(name):
    return snapshot((DATA / name).read_bytes())


@pytest.fixture(scope="module")
def recorded():
    """Snapshots of a service with two engines, around three requests of ours."""
    return sample("vllm-0.32.0-dp2-before.txt"), sample("vllm-0.32.0-dp2-after.txt")


def test_each_engine_moved_by_what_we_sent_to_it(recorded):
    moved = difference(*recorded)

    # Rank 0: two prompts of 100 tokens with one salt, 16 tokens each; 3 blocks of 32 hit.
    # Rank 1: one prompt of 100 tokens, 24 tokens. Five tokens are drafted a step.
    assert {
        0: Counters(
            requests=2,
            requests_failed=0,
            prompt_tokens=200,
            output_tokens=32,
            preemptions=0,
            prefix_query_tokens=200,
            prefix_hit_tokens=96,
            drafts=16,
            draft_tokens=80,
            accepted_tokens=14,
            accepted_per_position=(8, 4, 2, 0, 0),
            running=0,
            waiting=0,
        ),
        1: Counters(
            requests=1,
            requests_failed=0,
            prompt_tokens=100,
            output_tokens=24,
            preemptions=0,
            prefix_query_tokens=100,
            prefix_hit_tokens=0,
            drafts=16,
            draft_tokens=80,
            accepted_tokens=7,
            accepted_per_position=(4, 2, 1, 0, 0),
            running=0,
            waiting=0,
        ),
    } == moved


def test_acceptance_is_exact(recorded):
    moved = difference(*recorded)

    assert Fraction(15, 8) == acceptance_length(moved[0])  # 1 + 14/16
    assert Fraction(23, 16) == acceptance_length(moved[1])  # 1 + 7/16
    assert (Fraction(1, 4), Fraction(1, 8), Fraction(1, 16), 0, 0) == acceptance_by_position(
        moved[1]
    )


def test_a_window_holds_the_differences_by_engine(recorded):
    found = window("measured", *recorded)

    assert ("measured", (0, 0)) == (found.kind, found.in_flight)
    assert [0, 1] == [engine.engine for engine in found.engines]
    assert (2, 96, 80, 14, None) == (
        found.engines[0].requests,
        found.engines[0].prefix_hit_tokens,
        found.engines[0].draft_tokens,
        found.engines[0].accepted_tokens,
        found.engines[0].graph_replays,
    )


def test_the_names_of_0_27_are_known():
    (found,) = sample("vllm-0.27.1-names.txt").engines.values()

    assert (
        Counters(
            requests=15,
            requests_failed=3,
            prompt_tokens=8192,
            output_tokens=1_024_000,
            preemptions=3,
            prefix_query_tokens=8192,
            prefix_hit_tokens=128,
            drafts=300,
            draft_tokens=900,
            accepted_tokens=100,
            accepted_per_position=(60, 30, 10),
            running=2,
            waiting=1,
        )
        == found
    )


def test_older_names_are_known_and_what_they_lack_is_unknown():
    found = sample("vllm-old-names.txt").engines

    assert [0] == list(found)
    assert (640, 64, 4) == (
        found[0].prefix_query_tokens,
        found[0].prefix_hit_tokens,
        found[0].requests,
    )
    assert (None, None, None, None) == (
        found[0].preemptions,
        found[0].drafts,
        found[0].accepted_tokens,
        found[0].accepted_per_position,
    )


def test_the_newer_name_wins_where_both_are_there():
    text = (
        "vllm:gpu_prefix_cache_hits_total 1.0\n"
        "vllm:prefix_cache_hits_total 2.0\n"
        "vllm:unknown_total 3.0\n"
    )

    assert 2 == snapshot(text).engines[0].prefix_hit_tokens


def test_the_series_of_one_engine_are_added_up():
    text = (
        'vllm:prompt_tokens_total{engine="3",model_name="a"} 5\n'
        'vllm:prompt_tokens_total{engine="3",model_name="b"} 7\n'
    )

    assert {3: Counters(prompt_tokens=12)} == snapshot(text).engines


def test_nothing_of_vllm_is_no_engine_and_not_zero():
    empty = snapshot("python_info 1.0\n")

    assert {} == empty.engines
    assert in_flight(empty) is None
    assert {} == difference(empty, empty)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("NaN", id="nan"),
        pytest.param("+Inf", id="infinite"),
        pytest.param("-1", id="negative"),
        pytest.param("1.5", id="half"),
        pytest.param("1e17", id="inexact"),
    ],
)
def test_a_count_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match="vllm:prompt_tokens_total"):
        snapshot(f"vllm:prompt_tokens_total {value}\n")


def test_what_is_no_metrics_text_is_refused():
    with pytest.raises(ValueError, match=r"."):
        snapshot(b"<html>502 Bad Gateway</html>")


def test_an_engine_that_only_one_edge_knows_has_unknown_differences():
    both = Snapshot(engines={0: Counters(requests=1), 1: Counters(requests=1)})
    one = Snapshot(engines={0: Counters(requests=4)})

    assert {0: Counters(requests=3), 1: Counters()} == difference(both, one)
    assert Counters() == difference(one, both)[1] == difference(both, one)[1]


def test_a_replaced_process_shows_as_a_negative_difference():
    before = Snapshot(engines={0: Counters(requests=9)})
    after = Snapshot(engines={0: Counters(requests=2)})

    assert -7 == difference(before, after)[0].requests


def test_unknown_on_one_side_is_unknown_and_never_zero():
    known, unknown = Counters(preemptions=0, accepted_per_position=(1, 0)), Counters()
    longer = Counters(preemptions=0, accepted_per_position=(1, 0, 0))

    def moved(before, after):
        return difference(Snapshot(engines={0: before}), Snapshot(engines={0: after}))[0]

    assert moved(known, unknown).preemptions is None
    assert moved(unknown, known).preemptions is None
    assert moved(known, longer).accepted_per_position is None
    assert (0, 0) == moved(known, known).accepted_per_position


def test_a_missing_position_makes_all_positions_unknown():
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

    assert snapshot(f'{name}{{position="1"}} 4\n').engines[0].accepted_per_position is None


def test_acceptance_without_drafts_is_unknown():
    assert acceptance_length(Counters(drafts=0, accepted_tokens=0)) is None
    assert acceptance_length(Counters(accepted_tokens=1)) is None
    assert acceptance_length(Counters(drafts=1)) is None
    assert acceptance_by_position(Counters(drafts=0, accepted_per_position=(0,))) is None
    assert Fraction(1) == acceptance_length(Counters(drafts=7, accepted_tokens=0))


def test_in_flight_is_unknown_if_one_engine_does_not_tell():
    full = Counters(running=2, waiting=3)

    assert 10 == in_flight(Snapshot(engines={0: full, 1: full}))
    assert in_flight(Snapshot(engines={0: full, 1: Counters(running=0)})) is None


def test_capacity_is_read_for_each_engine_of_two_where_the_metrics_give_the_sum():
    log = (DATA / "vllm-0.32.0-dp2.log").read_text()

    # 512 blocks of 32 tokens an engine; /metrics says num_gpu_blocks="1024" for both.
    assert (512 * 32, 512 * 32) == kv_tokens(log, 2)
    assert 'num_gpu_blocks="1024"' in (DATA / "vllm-0.32.0-dp2-after.txt").read_text()


@pytest.mark.parametrize(
    ("log", "size", "expected"),
    [
        pytest.param(
            "(EngineCore_DP0 pid=1) INFO GPU KV cache size: 184,960 tokens\n"
            "(EngineCore_DP1 pid=2) INFO GPU KV cache size: 185,088 tokens\n",
            2,
            (184960, 185088),
            id="ranks-differ",
        ),
        pytest.param(
            "(EngineCore_DP1 pid=2) INFO GPU KV cache size: 185,088 tokens\n",
            2,
            (None, 185088),
            id="one-engine-silent",
        ),
        pytest.param(
            "(EngineCore pid=2) INFO NPU KV cache size: 16 tokens\n"
            "(EngineCore pid=2) INFO NPU KV cache size: 15 tokens\n"
            "(EngineCore pid=2) INFO NPU KV cache size: 17 tokens\n",
            1,
            (15,),
            id="workers-differ",
        ),
        pytest.param("INFO GPU KV cache size: 99 tokens\n", 1, (99,), id="no-prefix"),
        pytest.param("INFO GPU KV cache size: 99 tokens\n", 2, (None, None), id="whose"),
        pytest.param("nothing", 1, (None,), id="nothing"),
    ],
)
def test_capacity_is_told_by_rank(log, size, expected):
    assert expected == kv_tokens(log, size)


def test_paths_are_counted_by_worker_and_a_path_not_taken_is_zero():
    files = {
        "paths/11.json": b'{"schema":1,"pid":11,"paths":{"moe/fused":{"calls":4,"rows":9}}}',
        "paths/12.json": b'{"schema":1,"pid":12,"paths":{"moe/native":{"calls":2,"rows":2}}}',
    }

    assert {
        "moe/fused": {"11": 4, "12": 0},
        "moe/native": {"11": 0, "12": 2},
    } == path_calls(files)


@pytest.mark.parametrize(
    "data", [pytest.param(b"{", id="cut"), pytest.param(b'{"paths": {"a": 1}}', id="other-form")]
)
def test_a_file_of_paths_that_can_not_be_read_is_refused(data):
    with pytest.raises(ValueError, match=r"7\.json: no path counters"):
        path_calls({"7.json": data})
