"""The measuring client against a stub service: bytes, stamps, outcomes."""

import json
from pathlib import Path

import pytest

from acceptance.client import run_wave
from acceptance.metrics import Expectation, judge_request, parse_reads
from acceptance.testing.streams import END, chunk, completion_events, head
from acceptance.testing.stub_server import Pause, Received, Send, StubServer
from acceptance.testing.waves import prompts, wave_spec

FRAMES = [[5], [6, 7], [8]]


def good(request: Received) -> list[object]:
    """The complete stream for a request, each event in a packet of its own."""
    prompt = json.loads(request.body)["prompt"]
    steps: list[object] = [Send(head())]
    for event in completion_events(prompt, FRAMES):
        steps += [Send(chunk(event)), Pause(0.002)]
    return [*steps, Send(END)]


@pytest.mark.rule("P4.0")
def test_a_wave_of_four_is_stored_whole_and_judged_without_a_code(tmp_path: Path) -> None:
    with StubServer(good) as server:
        spec = wave_spec(server.port, 4)
        wave = run_wave(spec, tmp_path, interval_s=0.01)

    assert wave.aborted is None
    assert [request.outcome for request in wave.requests] == ["fin"] * 4
    for request, asked in zip(wave.requests, spec.requests, strict=True):
        raw = (tmp_path / request.raw).read_bytes()
        sent = (tmp_path / request.request).read_bytes()
        figures, codes = judge_request(
            raw,
            parse_reads((tmp_path / request.reads).read_bytes()),
            request,
            sent,
            Expectation(
                prompt=prompts(4)[request.slot],
                output_tokens=4,
                request=spec.request_bytes(asked),
            ),
        )
        assert codes == frozenset()
        assert figures is not None
        assert figures.output_tokens == 4
        assert figures.first_frame_tokens == 1
    sent_all = sorted((tmp_path / request.request).read_bytes() for request in wave.requests)
    assert sorted(received.raw for received in server.requests) == sent_all
