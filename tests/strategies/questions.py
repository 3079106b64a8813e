"""A made-up run that also asked questions: the stage's own code on a scripted service, with the
hand-made performance part of `runs` before it."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from acceptance.accuracy import dataset, plan, stage
from acceptance.accuracy.records import AccuracyProfile, ServiceEdge
from acceptance.accuracy.store import judge_and_store
from acceptance.client.spec import WaveSpec
from acceptance.records import Request, Wave
from acceptance.testing.answers import Reply, ScriptedClient
from tests.strategies import runs

QUESTIONS = Path(__file__).parent.parent / "data/gsm8k/questions.jsonl"
GOLDS = ("7", "1500", "7", "-5", "36", "210", "0", "512", "4", "12000", "45", "18")
IDLE = b"vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"


def a_plan(**changes: Any) -> plan.Plan:
    """Twelve questions, eleven of which must be right."""
    digest = dataset.sha256(QUESTIONS.read_bytes())
    profile = AccuracyProfile(
        questions="questions.jsonl",
        questions_sha256=digest,
        count=12,
        threshold=11,
        concurrency=4,
        max_tokens=64,
        timeout_s=30,
        template="Q: {question}",
        evaluator="released",
        needs_reasoning=True,
        generation_kwargs={"temperature": 0, "seed": 0, "chat_template_kwargs": {"think": True}},
    )
    profile = msgspec.structs.replace(profile, **changes)
    questions = dataset.load_questions(QUESTIONS, digest, 12)
    return plan.freeze(profile, questions, model="model", encoding=())


def right(question: int) -> Reply:
    """A right answer, with a thought of its own."""
    return Reply(reasoning=f"thought {question}", content=f"answer:{GOLDS[question]}")


def wrong_at(*questions: int) -> Callable[[int], Reply]:
    """Right answers but for some."""
    return lambda n: Reply(reasoning=f"t {n}", content="answer:99") if n in questions else right(n)


def run_with_answers(
    root: Path,
    reply: Callable[[int], Reply | bytes] = right,
    *,
    change: Callable[[list[Request]], Sequence[Request]] = list,
    edges: dict[str, Any] | None = None,
    metrics: bytes = IDLE,
    binding: dict[str, Any] | None = None,
    origin_ns: str = str(9 * 10**15),
    aborted: str | None = None,
    **profile: Any,
) -> Path:
    """A whole run directory without figures; the accuracy stage's own files are in it."""
    asked = a_plan(**profile)
    draft = runs.run_draft(levels=("C1",))
    draft.runspec["profile"]["scopes"]["accuracy"] = "planned"
    with tempfile.TemporaryDirectory() as name:
        for file in plan.write_plan(Path(name), asked):
            draft.files[file.path] = (Path(name) / file.path).read_bytes()
    run_dir = runs.write(draft, root)
    directory = run_dir / "results/accuracy"

    def edge(name: str) -> ServiceEdge:
        (directory / f"metrics-{name}.txt").write_bytes(metrics)
        given: dict[str, Any] = {
            "identity": f"identity-{name}.json",
            "identity_sha256": "0" * 64,
            "metrics": f"metrics-{name}.txt",
            "running": 0,
            "waiting": 0,
        }
        return ServiceEdge(**{**given, **(edges or {}).get(name, {})})

    def send(spec: WaveSpec, where: Path) -> Wave:
        client = ScriptedClient(reply=reply, change=change, aborted=aborted)
        return msgspec.structs.replace(client(spec, where), origin_ns=origin_ns)

    given: dict[str, Any] = {
        "accuracy_id": "made-up-1.accuracy",
        "runspec_sha256": runs.sha256((run_dir / "plan/runspec.json").read_bytes()),
        "service_id": draft.commands["B2"]["service_id"],
        "measured_identity_sha256": "0" * 64,
        "performance_sha256": None,
    }
    stage.run(
        asked,
        stage.Binding(**{**given, **(binding or {})}),
        stage.Address(
            host="127.0.0.1", port=8002, data_parallel_size=1, barrier_timeout_ns=60 * runs.SECOND
        ),
        edge=edge,
        send_wave=send,
        directory=directory,
    )
    judge_and_store(asked, directory)
    return run_dir
