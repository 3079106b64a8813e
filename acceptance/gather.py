"""Files of an attempt -> the evidence that the validity rules read. Nothing else is asked."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from acceptance import metrics, probes
from acceptance.canonical import canonical
from acceptance.client import http_request
from acceptance.evidence import (
    EngineWindow,
    Expected,
    LevelEvidence,
    WaveEvidence,
    Window,
    wave_evidence,
)
from acceptance.metrics import Expectation, LevelExpectation, Limits
from acceptance.proof import Proof
from acceptance.protocol import CONCURRENCY, completion_body
from acceptance.records import Attempt, Request, RequestFigures
from acceptance.runspec import RunSpec

Load = Callable[[str], bytes]


def attempt_dir(run_dir: Path, attempt: Attempt) -> Path:
    """Where an attempt lies."""
    return run_dir / "results" / attempt.round / attempt.level / f"attempt-{attempt.attempt}"


def loader(run_dir: Path, attempt: Attempt) -> Load:
    """Bytes of a file of the attempt, by the name that its record gives."""
    directory = attempt_dir(run_dir, attempt)
    return lambda name: (directory / name).read_bytes()


def read_banks(run_dir: Path) -> dict[str, list[list[int]]]:
    """The two banks as they were frozen."""
    return {
        kind: json.loads((run_dir / f"plan/banks/{kind}.json").read_bytes())
        for kind in ("warmup", "measured")
    }


def request_bytes(runspec: RunSpec, port: int, kind: str, request: Request, prompt: list[int]
                  ) -> bytes:
    """The bytes that a request must have had (P3.5, P3.6)."""
    body = completion_body(
        model=runspec.profile.served_name,
        prompt=prompt,
        output_tokens=getattr(runspec.profile, kind).output_tokens,
        cache_salt=request.cache_salt,
    )
    return http_request(
        host="127.0.0.1",
        port=port,
        path="/v1/completions",
        rank=request.rank,
        body=canonical(body),
    )
