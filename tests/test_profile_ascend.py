"""The frozen service configuration of P2 in profile `ascend-910c`, item by item."""

import json
from pathlib import Path

import pytest

from acceptance.accuracy.plan import check_profile
from acceptance.prepare import find_profile, read_profile, service_spec
from acceptance.service.spec import expand
from acceptance.validity import RULES, check_table

PROFILE, _ = read_profile(find_profile("ascend-910c"))
ARGV = expand(service_spec(PROFILE, Path("/weights")), 8000)


def option(name):
    return ARGV[ARGV.index(name) + 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("--served-model-name", "dsv41-0day", id="name"),
        pytest.param("--host", "127.0.0.1", id="loopback"),
        pytest.param("--tensor-parallel-size", "4", id="tp"),
        pytest.param("--data-parallel-size", "4", id="dp"),
        pytest.param("--max-model-len", "153600", id="context"),
        pytest.param("--block-size", "128", id="block"),
        pytest.param("--max-num-seqs", "8", id="sequences"),
        pytest.param("--max-num-batched-tokens", "8192", id="step"),
        pytest.param("--reasoning-parser", "deepseek_v3", id="reasoning"),
        pytest.param("--chat-template-content-format", "openai", id="content"),
    ],
)
def test_an_option_of_p2_is_in_the_command(name, value):
    assert value == option(name)


def test_switches_of_p2_are_in_the_command_with_their_kinds():
    assert {"--enable-expert-parallel", "--enable-prefix-caching"} <= set(ARGV)
    assert 5 == json.loads(option("--speculative-config"))["num_speculative_tokens"]
    compilation = json.loads(option("--compilation-config"))
    assert (0, "FULL_DECODE_ONLY", [24, 48]) == (
        compilation["mode"], compilation["cudagraph_mode"], compilation["cudagraph_capture_sizes"]
    )  # fmt: skip
    switches = json.loads(option("--additional-config"))
    assert 1 == switches.pop("enable_fused_mc2")
    assert int is type(json.loads(option("--additional-config"))["enable_fused_mc2"])
    wanted = ("enable_dsa_cp", "enable_flashcomm1", "enable_shared_expert_dp")
    assert dict.fromkeys(wanted, True) == switches
    assert "1" == PROFILE.service.environment["VLLM_ASCEND_ENABLE_FLASHCOMM1"]


@pytest.mark.rule("P2.2")
def test_what_the_command_asks_is_read_back_in_value_and_kind():
    expect = PROFILE.service.expect
    asked = json.loads(option("--additional-config"))
    read_back = {
        key.partition(".")[2]: value
        for key, value in expect.items()
        if key.startswith("additional_config.")
    }
    assert asked == read_back
    assert [type(asked[key]) for key in sorted(asked)] == [
        type(read_back[key]) for key in sorted(read_back)
    ]
    for key, name in (
        ("model_config.max_model_len", "--max-model-len"),
        ("cache_config.block_size", "--block-size"),
        ("scheduler_config.max_num_seqs", "--max-num-seqs"),
        ("scheduler_config.max_num_batched_tokens", "--max-num-batched-tokens"),
        ("parallel_config.tensor_parallel_size", "--tensor-parallel-size"),
        ("parallel_config.data_parallel_size", "--data-parallel-size"),
    ):
        assert expect[key] == int(option(name))


@pytest.mark.rule("P3.3")
def test_load_limits_and_rules_are_those_of_the_protocol():
    load = PROFILE.load
    assert (8192, 32) == (load.warmup.input_tokens, load.warmup.output_tokens)
    assert (8192, 1024) == (load.measured.input_tokens, load.measured.output_tokens)
    assert "gsm8k-train" == load.banks.source
    assert (1800, 60) == (PROFILE.timeouts.http_s, PROFILE.timeouts.barrier_s)
    assert {"C1": 25_000_000, "C4": 25_000_000, "C16": 25_000_000} == PROFILE.targets_ns()
    assert 153600 == PROFILE.service.kv_tokens_min
    assert {rule.id for rule in RULES} == set(PROFILE.rules)
    assert {"required"} == set(PROFILE.rules.values())
    check_table(PROFILE.rules, "ascend-910c.toml")
    check_profile(PROFILE.accuracy, "ascend-910c.toml")
    assert 16 == PROFILE.preflight.npu_dies == PROFILE.service.workers


def test_it_says_that_it_was_not_run():
    assert "not yet run on hardware" in PROFILE.notes
