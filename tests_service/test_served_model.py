"""Served greedy tokens are the oracle's, under every condition that a paged engine brings.

Fifty prompts of mixed length at once, against the oracle's stored outputs.  Make them anew with

    python -m dsv41.model.make_checkpoint --out /tmp/small --seed 0
    python -m tests_ops.oracle.make_goldens /tmp/small --out FILE
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from acceptance.service import Service, ServiceSpec, start
from dsv41.model.make_checkpoint import main as make_checkpoint
from tests_ops.oracle import goldens

pytestmark = pytest.mark.service
ROOT = Path(__file__).resolve().parents[1]
GOLDENS = ROOT / "tests_ops" / "goldens" / "small-bigram-seed0.json"
NAME = "small"
DSPARK = "dsv41.engine.proposer.DSparkProposer"
NOISE = "tests_service.noise_drafter.NoiseProposer"
# The seeded checkpoint's drafts are right about half the time; a dead drafter gives 1.0.
ACCEPTANCE_LENGTH_MIN = 1.5


@dataclass(frozen=True, kw_only=True)
class Condition:
    """How a service is started; `drafter` is a dotted path or None."""

    block_size: int
    blocks: int
    budget: int  # tokens per step
    drafter: str | None = None
    ranks: int = 1


TIGHT = Condition(block_size=8, blocks=34, budget=33, drafter=DSPARK)
DEEP = {
    "blocks-of-8-odd-chunks": Condition(block_size=8, blocks=512, budget=17),
    "blocks-of-16-tight": Condition(block_size=16, blocks=32, budget=64),
    "blocks-of-32-drafts": Condition(block_size=32, blocks=256, budget=512, drafter=DSPARK),
    "blocks-of-64": Condition(block_size=64, blocks=128, budget=65),
    "blocks-of-128-drafts": Condition(block_size=128, blocks=64, budget=129, drafter=DSPARK),
}
TWO_RANKS = Condition(block_size=32, blocks=128, budget=256, drafter=DSPARK, ranks=2)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "small"
    assert make_checkpoint(["--out", str(directory), "--seed", "0"]) == 0
    return directory


@pytest.fixture(scope="session")
def prompts() -> list[goldens.Golden]:
    return goldens.read(GOLDENS)


def spec(checkpoint: Path, condition: Condition) -> ServiceSpec:
    argv = [
        *("{python}", "-W", "ignore", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", "{model}", "--served-model-name", NAME),
        *("--host", "127.0.0.1", "--port", "{port}"),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", "256"),
        *("--block-size", str(condition.block_size)),
        *("--num-gpu-blocks-override", str(condition.blocks)),
        *("--max-num-batched-tokens", str(condition.budget), "--max-num-seqs", "16"),
        *("--enable-prompt-tokens-details", "--disable-uvicorn-access-log"),
        *("--data-parallel-size", str(condition.ranks)),
        *("--distributed-executor-backend", "uni"),
    ]
    if condition.drafter:
        config = {
            "method": "custom_class",
            "model": condition.drafter,
            "num_speculative_tokens": 5,
        }
        argv += ["--speculative-config", json.dumps(config).replace("{", "{{").replace("}", "}}")]
    return ServiceSpec(
        argv=tuple(argv),
        environment={
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_PLUGINS": "dsv41",
            "DSV41_FORK": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        },
        inherit=("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR"),
        model=str(checkpoint),
        served_name=NAME,
        data_parallel_size=condition.ranks,
        startup_timeout_s=300,
        stop_timeout_s=30,
    )


def serve(checkpoint: Path, condition: Condition, directory: Path) -> Service:
    return start(spec(checkpoint, condition), directory / "service")


def ask(service: Service, golden: goldens.Golden, rank: int | None = None) -> list[int]:
    """One greedy completion; the token ids out."""
    count = len(golden.tokens)
    response = httpx.post(
        f"http://127.0.0.1:{service.port}/v1/completions",
        json={
            "model": NAME,
            "prompt": golden.prompt,
            "max_tokens": count,
            "min_tokens": count,
            "ignore_eos": True,
            "temperature": 0,
            "return_token_ids": True,
        },
        headers={} if rank is None else {"X-data-parallel-rank": str(rank)},
        timeout=500,
    )
    response.raise_for_status()
    return response.json()["choices"][0]["token_ids"]


def ask_all(
    service: Service, prompts: list[goldens.Golden], ranks: int = 1
) -> dict[str, list[int]]:
    """All prompts at once, spread over the ranks."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        jobs = {g.id: pool.submit(ask, service, g, i % ranks) for i, g in enumerate(prompts)}
        return {name: job.result() for name, job in jobs.items()}


def counter(service: Service, name: str) -> float:
    """A counter of `/metrics`, summed over engines."""
    text = service.metrics()[0].decode()
    samples = (s for f in text_string_to_metric_families(text) for s in f.samples)
    return sum(s.value for s in samples if s.name == f"vllm:{name}_total")


def acceptance_length(service: Service) -> float:
    """1 + accepted drafts per draft forward, as the engine counts them."""
    drafts = counter(service, "spec_decode_num_drafts")
    return 1 + counter(service, "spec_decode_num_accepted_tokens") / drafts


def test_the_goldens_are_those_of_this_checkpoint(checkpoint: Path) -> None:
    for name, expected in goldens.checkpoint_files(GOLDENS).items():
        found = hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()
        assert found == expected, f"{name} differs: make the goldens anew, see this file's head"


@pytest.fixture(scope="module")
def tight(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Drafts, small blocks, few of them, and steps of 33 tokens: chunks end inside groups."""
    with serve(checkpoint, TIGHT, tmp_path_factory.mktemp("tight")) as service:
        yield service


def test_served_tokens_equal_the_oracles_under_preemption_and_odd_chunks(
    tight: Service, prompts: list[goldens.Golden]
) -> None:
    served = ask_all(tight, prompts)

    assert goldens.faults(prompts, served) == []
    assert max(len(g.prompt) for g in prompts) > TIGHT.budget
    assert counter(tight, "num_preemptions") > 0


def test_served_tokens_equal_the_oracles_after_prefix_hits(
    tight: Service, prompts: list[goldens.Golden]
) -> None:
    long = [g for g in prompts if len(g.prompt) > 2 * TIGHT.block_size][-6:]
    first = {g.id: ask(tight, g) for g in long}
    before = counter(tight, "prefix_cache_hits")
    # The last one's blocks were used last, so they are certainly still there.
    again = {g.id: ask(tight, g) for g in reversed(long)}

    assert counter(tight, "prefix_cache_hits") > before
    assert goldens.faults(long, again) == []
    assert first == again


def test_drafts_are_accepted(tight: Service, prompts: list[goldens.Golden]) -> None:
    ask(tight, prompts[0])

    assert acceptance_length(tight) > ACCEPTANCE_LENGTH_MIN


@pytest.mark.deep
@pytest.mark.parametrize("name", DEEP)
def test_served_tokens_equal_the_oracles(
    name: str, checkpoint: Path, prompts: list[goldens.Golden], tmp_path: Path
) -> None:
    with serve(checkpoint, DEEP[name], tmp_path) as service:
        served = ask_all(service, prompts)
        again = ask_all(service, prompts)

    assert goldens.faults(prompts, served) == []
    assert goldens.faults(prompts, again) == []


@pytest.mark.deep
def test_two_ranks_serve_the_oracles_tokens(
    checkpoint: Path, prompts: list[goldens.Golden], tmp_path: Path
) -> None:
    with serve(checkpoint, TWO_RANKS, tmp_path) as service:
        served = ask_all(service, prompts, ranks=2)

    assert goldens.faults(prompts, served) == []


@pytest.mark.deep
def test_a_drafter_of_noise_changes_no_token_and_shows_in_the_metrics(
    checkpoint: Path, prompts: list[goldens.Golden], tmp_path: Path
) -> None:
    """The planted fault of `test_drafts_are_accepted`."""
    condition = Condition(block_size=32, blocks=256, budget=512, drafter=NOISE)
    with serve(checkpoint, condition, tmp_path) as service:
        served = ask_all(service, prompts)
        length = acceptance_length(service)

    assert goldens.faults(prompts, served) == []
    assert length < ACCEPTANCE_LENGTH_MIN
