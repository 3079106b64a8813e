"""The accuracy stage over real sockets, with the measuring client itself (P5.3)."""

import json
import threading
from pathlib import Path

import pytest

from acceptance.accuracy import dataset
from acceptance.accuracy.evaluate import evaluate
from acceptance.accuracy.plan import freeze
from acceptance.accuracy.records import AccuracyProfile, ServiceEdge
from acceptance.accuracy.stage import Address, Binding, run
from acceptance.client import run_wave
from acceptance.testing.answers import Reply, stream
from acceptance.testing.stub_server import Reset, Send, StubServer

OWN = Path(__file__).parent / "data/gsm8k/questions.jsonl"
GOLDS = ["7", "1500", "7", "-5", "36", "210", "0", "512", "4", "12000", "45", "18"]


class Service:
    """Answers by the question asked. The first `window` requests are held until all of them are
    inside, and a little longer, so that one more would be seen inside as well."""

    def __init__(self, plan, window, fault=None):
        prompts = (json.loads(body)["messages"][0]["content"] for body in plan.wire)
        self.numbers = {prompt: number for number, prompt in enumerate(prompts)}
        self.lock = threading.Condition()
        self.inside = self.inside_max = self.seen = 0
        self.window = window
        self.fault = fault

    def __call__(self, received):
        question = self.numbers[json.loads(received.body)["messages"][0]["content"]]
        with self.lock:
            self.seen += 1
            self.inside += 1
            self.inside_max = max(self.inside, self.inside_max)
            self.lock.notify_all()
            self.lock.wait_for(lambda: self.seen >= self.window, timeout=10)
            self.lock.wait_for(lambda: self.seen > self.window, timeout=0.2)
            self.inside -= 1
        if question == self.fault:
            return [Send(b"HTTP/1.1 200 OK\r\n"), Reset()]
        return [Send(stream(Reply(content=f"answer:{GOLDS[question]}"), f"chat-{question}"))]


def asked(directory, fault=None, concurrency=4):
    questions = dataset.load_questions(OWN, dataset.sha256(OWN.read_bytes()), 12)
    profile = AccuracyProfile(
        questions="q",
        questions_sha256="",
        count=12,
        threshold=12,
        concurrency=concurrency,
        max_tokens=64,
        timeout_s=30,
        template="Q: {question}",
        evaluator="released",
        needs_reasoning=True,
        generation_kwargs={"temperature": 0},
    )
    plan = freeze(profile, questions, model="m", encoding=())
    service = Service(plan, concurrency, fault)
    edge = ServiceEdge(identity="i", identity_sha256="s", metrics="m", running=0, waiting=0)
    with StubServer(script=service) as server:
        record = run(
            plan,
            Binding(
                accuracy_id="a",
                runspec_sha256="r",
                service_id="B2",
                measured_identity_sha256="s",
                performance_sha256="p",
            ),
            Address(
                host="127.0.0.1",
                port=server.port,
                data_parallel_size=1,
                barrier_timeout_ns=30 * 10**9,
            ),
            edge=lambda name: edge,
            send_wave=lambda spec, where: run_wave(spec, where, interval_s=0.02),
            directory=directory,
        )
        requests = list(server.requests)
    return evaluate(plan, record, directory).figures, requests, service


@pytest.mark.rule("P5.3")
def test_every_question_is_asked_once_within_the_window(tmp_path):
    figures, requests, service = asked(tmp_path / "a")

    assert ("PASS", 12) == (figures.verdict.verdict, figures.correct)
    assert 12 == len(requests)
    assert 12 == len({request.body for request in requests})
    assert 4 == service.inside_max


@pytest.mark.rule("P5.4")
def test_a_reset_connection_is_not_asked_again(tmp_path):
    figures, requests, _ = asked(tmp_path / "a", fault=5)

    assert ("INCONCLUSIVE", "P5.4") == (figures.verdict.verdict, figures.verdict.rule)
    assert "outcome-reset" in figures.items[5].failed
    assert 12 == len(requests)
