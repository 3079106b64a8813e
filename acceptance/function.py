"""The functional stage: requests of every kind to the live service, stored as they came (P7.5)."""

import secrets
import socket
import time
from pathlib import Path
from typing import Any

from acceptance.accuracy.edge import inside
from acceptance.archive import write_once, write_record
from acceptance.canonical import canonical, sha256
from acceptance.client import WaveRequest, WaveSpec, http_request, prompt_sha256, run_wave
from acceptance.errors import RunFailure
from acceptance.freeze import Frozen
from acceptance.function_checks import ABORT, Check, FunctionSpec, judge
from acceptance.protocol import completion_body
from acceptance.records import SCHEMA, Record, Wave
from acceptance.service import Service

DIRECTORY = "results/function"
METRICS = "metrics-after-abort.txt"
QUESTION = "A farmer has 12 hens and buys 5 more. How many hens has he now?"
ABORT_TIMEOUT_S = 20.0
POLL_S = 0.2


class FunctionRecord(Record, frozen=True, kw_only=True):
    """`function.json`: who was asked, in which waves, and what each check found."""

    schema: int
    runspec_sha256: str
    service_id: str
    waves: tuple[Wave, ...]
    checks: tuple[Check, ...]


def examine(frozen: Frozen, service: Service) -> tuple[Check, ...]:
    """Ask everything once; the answers and the record lie in `results/function/`."""
    spec = frozen.runspec.function
    if spec is None:
        raise RunFailure("P7.5", "the profile says nothing of what the functional stage asks")
    directory = frozen.run_dir / DIRECTORY
    directory.mkdir(parents=True)
    waves = (
        run_wave(_wave(frozen, service, "completion", _completions(frozen, spec)), directory),
        run_wave(_wave(frozen, service, "chat", _chats(frozen, spec)), directory),
    )
    in_flight = _abort(frozen, service, spec, directory)
    checks = judge(lambda name: _load(directory / name), in_flight, spec)
    record = FunctionRecord(
        schema=SCHEMA,
        runspec_sha256=frozen.runspec_sha256,
        service_id=service.service_id,
        waves=waves,
        checks=checks,
    )
    write_record(directory / "function.json", record)
    return checks


def _load(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _completions(frozen: Frozen, spec: FunctionSpec) -> list[dict[str, Any]]:
    """In the order of `COMPLETIONS`. The two of the prefix check share their salt."""
    bank = frozen.banks["warmup"]
    joined = [token for prompt in bank for token in prompt]
    if len(joined) < spec.long_prompt_tokens:
        raise RunFailure("P7.5", f"the bank has {len(joined)} tokens, too few for the long prompt")
    shared = secrets.token_hex(16)
    asked = [
        (bank[0], secrets.token_hex(16)),
        (bank[1], secrets.token_hex(16)),
        (joined[: spec.long_prompt_tokens], secrets.token_hex(16)),
        (bank[2], shared),
        (bank[2], shared),
    ]
    bodies = [
        completion_body(
            model=frozen.runspec.profile.served_name,
            prompt=prompt,
            output_tokens=spec.output_tokens,
            cache_salt=salt,
        )
        for prompt, salt in asked
    ]
    return [bodies[0], *(_plain(body) for body in bodies[1:])]


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    body = {name: value for name, value in body.items() if name != "stream_options"}
    return {**body, "stream": False}


def _chats(frozen: Frozen, spec: FunctionSpec) -> list[dict[str, Any]]:
    """In the order of `CHATS`."""
    found = []
    for is_thinking in (True, False):
        body = {
            "model": frozen.runspec.profile.served_name,
            "messages": [{"role": "user", "content": QUESTION}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "max_tokens": spec.output_tokens,
            "temperature": 0,
            "top_p": 1,
            "seed": 0,
            "chat_template_kwargs": {"thinking": is_thinking, "enable_thinking": is_thinking},
        }
        found += [body, _plain(body)]
    return found


def _wave(frozen: Frozen, service: Service, name: str, bodies: list[dict[str, Any]]) -> WaveSpec:
    """One request after the other, all to rank 0, so that a prefix can be found again."""
    return WaveSpec(
        kind="measured",
        name=name,
        host="127.0.0.1",
        port=service.port,
        path="/v1/completions" if name == "completion" else "/v1/chat/completions",
        requests=tuple(
            WaveRequest(
                slot=slot,
                prompt_index=slot,
                prompt_sha256=prompt_sha256(body["prompt"])
                if "prompt" in body
                else sha256(canonical(body["messages"])),
                rank=0,
                cache_salt=body.get("cache_salt", ""),
                body=canonical(body),
            )
            for slot, body in enumerate(bodies)
        ),
        concurrency=1,
        http_timeout_ns=frozen.runspec.http_timeout_ns,
        barrier_timeout_ns=frozen.runspec.barrier_timeout_ns,
    )


def _abort(frozen: Frozen, service: Service, spec: FunctionSpec, directory: Path) -> int | None:
    """Leave a stream in its middle; the requests that are in the service afterwards."""
    body = completion_body(
        model=frozen.runspec.profile.served_name,
        prompt=frozen.banks["warmup"][3],
        output_tokens=spec.abort_tokens,
        cache_salt=secrets.token_hex(16),
    )
    request = http_request(
        host="127.0.0.1", port=service.port, path="/v1/completions", rank=0, body=canonical(body)
    )
    raw = b""
    timeout_s = frozen.runspec.http_timeout_ns / 1e9
    try:
        with socket.create_connection(("127.0.0.1", service.port), timeout=timeout_s) as link:
            link.sendall(request)
            while b"data: {" not in raw and (read := link.recv(1 << 16)):
                raw += read
    except OSError:
        pass
    write_once(directory / f"{ABORT}.request", request)
    write_once(directory / f"{ABORT}.raw", raw)
    return _wait_until_empty(service, directory)


def _wait_until_empty(service: Service, directory: Path) -> int | None:
    deadline = time.monotonic() + ABORT_TIMEOUT_S
    while True:
        try:
            text = service.metrics()[0]
        except RunFailure:
            return None
        running, waiting = inside(text)
        left = None if running is None or waiting is None else running + waiting
        if left == 0 or time.monotonic() > deadline:
            write_once(directory / METRICS, text)
            return left
        time.sleep(POLL_S)
