"""What a log says: why a server ended, and with which settings its engine runs."""

import pytest

from acceptance.service.effective import settings
from acceptance.service.log import LINE_CHARS_MAX, engine_settings, last_error

STAMP = "(EngineCore pid=20543) ERROR 12-01 04:45:22 [core.py:133] "

LOGS = {
    "root-cause-before-its-report": (
        f"{STAMP}Traceback (most recent call last):\n"
        f'{STAMP}  File "loader.py", line 1, in load\n'
        f"{STAMP}ValueError: weights were not initialized from checkpoint: {{'a'}}\n"
        "Traceback (most recent call last):\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n",
        "ValueError: weights were not initialized from checkpoint: {'a'}",
    ),
    "only-the-report": (
        "RuntimeError: Engine core initialization failed. See root cause above.\nbye bye\n",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ),
    "argument-error": (
        "usage: api_server.py [-h]\napi_server.py: error: unrecognized arguments: --blok-size 3\n",
        "api_server.py: error: unrecognized arguments: --blok-size 3",
    ),
    "qualified-exception": (
        "torch.OutOfMemoryError: no memory\n\n   ▄▄ ▄█\n",
        "torch.OutOfMemoryError: no memory",
    ),
    "port-taken": (
        "OSError: [Errno 98] Address already in use\n[rank0]: cleaning up\n",
        "OSError: [Errno 98] Address already in use",
    ),
    "no-error": (
        "(APIServer pid=1) INFO 12-01 04:45:26 [entry.py:140] Loading the model\n"
        "Loading shards: 100% 1/1 [00:00<00:00, 20.14it/s]\n ---- \n\n",
        "Loading the model",
    ),
    "a-mention-of-an-error-is-none": (
        "WARNING: an Error: may follow\nIt ended quietly\n",
        "It ended quietly",
    ),
    "empty": ("", None),
}


@pytest.mark.parametrize(("log", "line"), LOGS.values(), ids=LOGS.keys())
def test_the_line_that_says_why_is_found(log, line):
    assert line == last_error(log)


def test_a_long_line_is_cut():
    assert LINE_CHARS_MAX == len(last_error("ValueError: " + "x" * 5000))


CONFIG_LINE = (
    "(EngineCore pid=15500) INFO 12-01 04:50:30 [core.py:133] Initializing a V1 LLM engine "
    "(v0.32.0) with config: model='/m', speculative_config=SpeculativeConfig(method='custom_class'"
    ", model=None, num_spec_tokens=5), tokenizer='/m', tokenizer_mode=hf, dtype=torch.float32, "
    "max_seq_len=2048, tensor_parallel_size=1, data_parallel_size=2, quantization=None, "
    "enforce_eager=True, kv_cache_dtype=auto, device_config=cpu, seed=0, "
    "served_model_name=dsv41-0day, enable_prefix_caching=True, enable_chunked_prefill=True, "
    "pooler_config=None, compilation_config={'mode': 0, 'custom_ops': ['all']}\n"
)


def test_the_engines_settings_are_read_in_their_kinds():
    found = engine_settings("noise\n" + CONFIG_LINE)

    assert 2048 == found["model_config.max_model_len"]
    assert found["model_config.enforce_eager"] is True
    assert "torch.float32" == found["model_config.dtype"]
    assert "null" == found["model_config.quantization"]
    assert "dsv41-0day" == found["model_config.served_model_name"]
    assert (0, 2) == (found["model_config.seed"], found["parallel_config.data_parallel_size"])
    assert found["scheduler_config.enable_chunked_prefill"] is True


def test_a_log_without_the_engines_line_tells_no_setting():
    assert {} == engine_settings("Engine 000: running\n")


def test_settings_are_found_by_dotted_name_and_absent_ones_left_out():
    config = {"a": {"b": {"c": True}, "d": 1}, "e": "x"}

    found = settings(config, ("a.b.c", "a.d", "e", "a.x", "e.f", "z"))
    assert {"a.b.c": True, "a.d": 1, "e": "x"} == found
    assert found["a.b.c"] is True
