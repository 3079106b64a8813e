"""Where a decode step's time goes, beside stock vLLM serving a dense model of equal size.

    python bench/decode.py [--model DIR] [--levels 1,4,16] [--tokens 64] [--json FILE]

One process per variant, in turn and in the same run: this plugin without drafts, with DSpark,
and vLLM's own Llama of the same width and depth with random weights.  Times are of whole engine
steps (scheduler, model, sampler) in pure decode, prefill steps excluded; shares are of the
model's parts inside them, measured in a second pass so that the timers do not distort the first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = ("dsv41", "dsv41+dspark", "dense")
PROMPT_TOKENS = 64
SPECULATIVE = {
    "method": "custom_class",
    "model": "dsv41.engine.proposer.DSparkProposer",
    "num_speculative_tokens": 5,
}
# Part of the step -> functions to time, as (module, name); nested parts are subtracted.
PARTS = {
    "engram": [("dsv41.model.forward", "engram")],
    "mixes": [("dsv41.model.hyper", "mixes")],
    "attention": [("dsv41.model.forward", "attention")],
    "experts": [("dsv41.model.forward", "moe")],
    "head": [("dsv41.engine.served_model", "logits")],
    "draft": [
        ("dsv41.engine.proposer", "draft_hidden"),
        ("dsv41.engine.proposer", "greedy_drafts"),
        ("dsv41.engine.served_model", "write_context"),
    ],
    "rest of model": [("dsv41.engine.served_model", "run_layers")],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="checkpoint; default: the seeded small one")
    parser.add_argument("--levels", default="1,4,16")
    parser.add_argument("--tokens", type=int, default=64, help="tokens out per request")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--child", choices=VARIANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    levels = [int(level) for level in arguments.levels.split(",")]
    if arguments.child:
        figures = measure(arguments.child, arguments.model, levels, arguments.tokens)
        arguments.json.write_text(json.dumps(figures), encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        results = run_all(arguments, levels, Path(scratch))
    print(table(results, levels))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


def run_all(arguments: argparse.Namespace, levels: list[int], scratch: Path) -> dict[str, Any]:
    """Every variant in its own process, one after the other."""
    model = arguments.model or scratch / "small"
    if arguments.model is None:
        command = [sys.executable, "-m", "dsv41.model.make_checkpoint", "--out", str(model)]
        subprocess.run(command, check=True, cwd=ROOT)
    dense = write_dense(model, scratch / "dense")
    results = {}
    for variant in VARIANTS:
        out = scratch / "figures.json"
        command = [sys.executable, "-W", "ignore", str(Path(__file__)), "--child", variant]
        command += ["--model", str(dense if variant == "dense" else model)]
        command += ["--levels", ",".join(map(str, levels)), "--tokens", str(arguments.tokens)]
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_PLUGINS": "dsv41",
        }
        subprocess.run([*command, "--json", str(out)], check=True, env=environment)
        results[variant] = json.loads(out.read_text(encoding="utf-8"))
    return results


def write_dense(model: Path, out: Path) -> Path:
    """A Llama config of the model's width, depth, heads and vocabulary; weights are dummies."""
    text = json.loads((model / "config.json").read_text(encoding="utf-8"))["text_config"]
    shared = text["moe_intermediate_size"] * (text["num_experts_per_tok"] + 1)
    out.mkdir()
    (out / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": text["hidden_size"],
                "num_hidden_layers": text["num_hidden_layers"],
                "intermediate_size": shared,
                "num_attention_heads": text["num_attention_heads"],
                "num_key_value_heads": 1,
                "head_dim": text["head_dim"],
                "vocab_size": text["vocab_size"],
                "max_position_embeddings": text["max_position_embeddings"],
                "rms_norm_eps": 1e-6,
                "torch_dtype": "float32",
            }
        ),
        encoding="utf-8",
    )
    return out


def measure(variant: str, model: Path, levels: list[int], tokens: int) -> dict[str, Any]:
    """Figures of one variant at every level, in this process."""
    from vllm import LLM

    options: dict[str, Any] = {"load_format": "dummy"} if variant == "dense" else {}
    if variant == "dsv41+dspark":
        options["speculative_config"] = SPECULATIVE
    llm = LLM(
        model=str(model),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        block_size=32,
        num_gpu_blocks_override=1024,
        max_num_seqs=max(levels),
        max_num_batched_tokens=2048,
        disable_log_stats=True,
        enable_prefix_caching=False,
        **options,
    )
    figures: dict[str, Any] = {}
    for level in levels:
        wave(llm, level, tokens, seed=-level)
        steps, cpu, produced = wave(llm, level, tokens, seed=level)
        shares = {} if variant == "dense" else timed_shares(llm, level, tokens)
        figures[f"C{level}"] = {
            "steps": len(steps),
            "step_ms_median": statistics.median(steps) * 1e3,
            "step_cpu_ms_median": statistics.median(cpu) * 1e3,
            "step_ms_p90": statistics.quantiles(steps, n=10)[-1] * 1e3,
            "tokens_per_step": produced / len(steps) / level,
            "ms_per_token": sum(steps) / produced * level * 1e3,
            "parts_ms": shares,
        }
    return figures


def wave(llm: Any, level: int, tokens: int, seed: int) -> tuple[list[float], list[float], int]:
    """Seconds and CPU seconds of each step in which all `level` requests decode, and the tokens
    they made.  CPU time, of all threads, is the steadier figure on a machine that others use."""
    from vllm import SamplingParams

    source = random.Random(seed)
    params = SamplingParams(
        temperature=0.0, max_tokens=tokens, min_tokens=tokens, ignore_eos=True, detokenize=False
    )
    engine = llm.llm_engine
    for i in range(level):
        prompt = [source.randrange(20, 250) for _ in range(PROMPT_TOKENS)]
        engine.add_request(
            f"{seed}-{i}-{time.monotonic_ns()}", {"prompt_token_ids": prompt}, params
        )
    made: dict[str, int] = {}
    steps, cpu, produced = [], [], 0
    while engine.has_unfinished_requests():
        before, start, cpu_start = dict(made), time.perf_counter(), time.process_time()
        outputs = engine.step()
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        for output in outputs:
            made[output.request_id] = len(output.outputs[0].token_ids)
        if len(before) == level and len(outputs) == level:
            steps.append(seconds)
            cpu.append(cpu_seconds)
            produced += sum(made.values()) - sum(before.values())
    return steps, cpu, produced


def timed_shares(llm: Any, level: int, tokens: int) -> dict[str, float]:
    """Milliseconds per step of each part, own time only, from a pass with timers in place."""
    with timers() as spent:
        steps, _, _ = wave(llm, level, tokens, seed=1000 + level)
    # The prefill step is in `spent` too; it is one in dozens and the same parts.
    shares = {part: seconds / len(steps) * 1e3 for part, seconds in spent.items()}
    shares["engine"] = max(0.0, statistics.mean(steps) * 1e3 - sum(shares.values()))
    return shares


@contextlib.contextmanager
def timers() -> Iterator[dict[str, float]]:
    """Replace the timed functions by ones that add their own time, without nested parts."""
    import importlib

    spent = dict.fromkeys(PARTS, 0.0)
    nested = [0.0]
    originals = []

    def wrap(part: str, function: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer, nested[0] = nested[0], 0.0
            start = time.perf_counter()
            result = function(*args, **kwargs)
            seconds = time.perf_counter() - start
            spent[part] += seconds - nested[0]
            nested[0] = outer + seconds
            return result

        return timed

    for part, places in PARTS.items():
        for module_name, name in places:
            module = importlib.import_module(module_name)
            originals.append((module, name, getattr(module, name)))
            setattr(module, name, wrap(part, getattr(module, name)))
    try:
        yield spent
    finally:
        for module, name, function in originals:
            setattr(module, name, function)


def table(results: dict[str, Any], levels: list[int]) -> str:
    """The figures as text, with the ratio to the dense model at each level."""
    lines = [
        "level variant        step ms     p90  cpu ms tok/step  ms/tok  x step  x cpu  x token"
    ]
    for level in levels:
        dense = results["dense"][f"C{level}"]
        for variant in VARIANTS:
            f = results[variant][f"C{level}"]
            lines.append(
                f"{'C' + str(level):>5} {variant:<13} {f['step_ms_median']:8.2f}"
                f" {f['step_ms_p90']:7.2f} {f['step_cpu_ms_median']:7.2f}"
                f" {f['tokens_per_step']:8.2f} {f['ms_per_token']:7.2f}"
                f" {f['step_ms_median'] / dense['step_ms_median']:7.2f}"
                f" {f['step_cpu_ms_median'] / dense['step_cpu_ms_median']:6.2f}"
                f" {f['ms_per_token'] / dense['ms_per_token']:8.2f}"
            )
    for level in levels:
        for variant in VARIANTS[:2]:
            parts = results[variant][f"C{level}"]["parts_ms"]
            shown = ", ".join(f"{part} {ms:.2f}" for part, ms in parts.items() if ms)
            lines.append(f"C{level} {variant} ms per step: {shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
