"""A service that speaks vLLM's HTTP as far as the gate listens, for tests of the gate itself.

    python -m acceptance.testing.fake_vllm --model DIR --served-model-name NAME --port PORT
        [--fault NAME]

Its answers carry no meaning: it generates counting token IDs, keeps vLLM's counters, and can be
told to misbehave. It is never a profile's service outside of tests.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

FAULTS = (
    "none",
    "die-at-start",
    "die-in-measured",
    "error-frame",
    "no-done",
    "cached",
    "short",
    "foreign",
    "ignore-sigterm",
    "wrong-name",
    "preempt",
    "slow",
    "hang-in-measured",
    "chat-no-done",
    "switch-ignored",
    "no-counters",
    "no-prefix-cache",
    "keeps-aborted",
    "one-template",
    "short-prompt",
)
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)


class Fake:
    """State of the service: counters per engine, and the fault it was told to show."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.requests = 0
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.preemptions = 0
        self.running = 0
        # The candidate of tests: a faster path behind a switch, and its counters.
        self.salts: set[str | None] = set()
        self.is_fast = os.environ.get("FAKE_FAST") == "1" and options.fault != "switch-ignored"
        self.path_calls = {"attend/fast": 0, "attend/plain": 0}
        self.golds: list[tuple[str, str]] = []
        if options.answers:
            for line in Path(options.answers).read_text(encoding="utf-8").splitlines():
                item = json.loads(line)
                self.golds.append(
                    (item["question"], item["answer"].rpartition("#### ")[2].replace(",", ""))
                )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            method, path, _ = lines[0].split(" ", 2)
            headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines[1:])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            await self._answer(writer, method, path.partition("?")[0], body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes
    ) -> None:
        if (method, path) == ("POST", "/v1/chat/completions"):
            await self._chat(writer, json.loads(body))
            return
        if (method, path) == ("POST", "/collective_rpc"):
            self._publish(json.loads(body)["method"])
            _plain(writer, '{"results":[null]}', "application/json")
            return
        if (method, path) == ("POST", "/v1/completions"):
            request = json.loads(body)
            if request.get("stream"):
                await self._stream(writer, request)
            else:
                _plain(writer, json.dumps(self._whole(request)), "application/json")
            return
        served = self.options.served_model_name
        name = "somebody-else" if self.options.fault == "wrong-name" else served
        pages: dict[str, tuple[str, str]] = {
            "/health": ("", "text/plain"),
            "/version": ('{"version":"0.0.0-fake"}', "application/json"),
            "/v1/models": (
                json.dumps({"data": [{"id": name, "root": self.options.model}]}),
                "application/json",
            ),
            "/server_info": (json.dumps({"vllm_config": self._config()}), "application/json"),
            "/metrics": (self._metrics(), "text/plain; version=0.0.4"),
        }
        if path in pages:
            _plain(writer, *pages[path])
        else:
            _plain(writer, "not found", "text/plain", "404 Not Found")

    def _publish(self, method: str) -> None:
        """Write the path counters down, as a worker does when it is asked to."""
        if method != "publish_paths" or self.options.fault == "no-counters":
            return
        folder = Path(os.environ["FAKE_PATHS_DIR"])
        folder.mkdir(parents=True, exist_ok=True)
        taken = {path: {"calls": calls} for path, calls in self.path_calls.items() if calls}
        (folder / f"{os.getpid()}.json").write_text(json.dumps({"paths": taken}))

    def _config(self) -> dict[str, Any]:
        return {
            "cache_config": {"block_size": 32, "enable_prefix_caching": True},
            "profiler_config": {"profiler": None},
        }

    def _count(self, prompt_tokens: int, output_tokens: int) -> None:
        self.requests += 2 if self.options.fault == "foreign" else 1
        self.prompt_tokens += prompt_tokens
        self.output_tokens += output_tokens
        self.preemptions += self.options.fault == "preempt"

    def _whole(self, request: dict[str, Any]) -> dict[str, Any]:
        """A completion that is not streamed; a salt that was seen before finds its prefix."""
        fault, asked = self.options.fault, len(request["prompt"])
        sent = asked - 1 if fault == "short-prompt" else asked
        salt = request.get("cache_salt")
        is_hit = salt in self.salts and fault != "no-prefix-cache"
        self.salts.add(salt)
        self._count(asked, request["max_tokens"])
        ids = list(range(request["max_tokens"]))
        choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": "length"}
        return {"choices": [choice], "usage": _usage(sent, len(ids), 32 if is_hit else 0)}

    async def _stream(self, writer: asyncio.StreamWriter, request: dict[str, Any]) -> None:
        fault, prompt, wanted = self.options.fault, request["prompt"], request["max_tokens"]
        is_measured = wanted != self.options.warmup_tokens
        count = wanted - 1 if fault == "short" and is_measured else wanted
        self.running += 1
        self.path_calls["attend/fast" if self.is_fast else "attend/plain"] += 1
        frame_s = self.options.frame_s * (20 if fault == "slow" else 0.1 if self.is_fast else 1)
        writer.write(HEAD)
        for first in range(0, count, 3):
            ids = list(range(first, min(first + 3, count)))
            if is_measured and first >= count // 2:
                if fault == "die-in-measured":
                    os.kill(os.getpid(), signal.SIGKILL)
                if fault == "hang-in-measured":
                    await asyncio.sleep(3600)
            if fault == "error-frame" and is_measured and first >= count // 2:
                error = {"message": "EngineCore encountered an issue.", "code": 500}
                _event(writer, json.dumps({"error": error}))
                break
            is_last = ids[-1] == count - 1
            choice = {
                "index": 0,
                "text": "x" * len(ids),
                "finish_reason": "length" if is_last else None,
                "prompt_token_ids": prompt if first == 0 else None,
                "token_ids": ids,
            }
            _event(writer, json.dumps({"choices": [choice]}))
            try:
                await writer.drain()
            except ConnectionError:
                self.running -= fault != "keeps-aborted"
                return
            await asyncio.sleep(frame_s)
        else:
            self._count(len(prompt), count)
            usage = _usage(len(prompt), count, 1 if fault == "cached" else 0)
            _event(writer, json.dumps({"choices": [], "usage": usage}))
        self.running -= 1
        if fault != "no-done":
            _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _chat(self, writer: asyncio.StreamWriter, request: dict[str, Any]) -> None:
        """Answer a question of the file `--answers`, except the first `--wrong` of them."""
        if not self.golds:
            self._small_talk(writer, request)
            await writer.drain()
            return
        text = request["messages"][-1]["content"]
        number, gold = next((i, g) for i, (q, g) in enumerate(self.golds) if q in text)
        said = "-1" if number < self.options.wrong else gold
        name = f"chatcmpl-{number}"
        count = 0
        writer.write(HEAD)
        for delta in ({"reasoning": "so"}, {"content": "The answer is "}, {"content": said}):
            count += 1
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            _event(writer, json.dumps({"id": name, "choices": [choice]}))
        choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
        _event(writer, json.dumps({"id": name, "choices": [choice]}))
        usage = {"prompt_tokens": 9, "completion_tokens": count, "total_tokens": 9 + count}
        _event(writer, json.dumps({"id": name, "choices": [], "usage": usage}))
        if self.options.fault != "chat-no-done":
            _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        self._count(9, count)

    def _small_talk(self, writer: asyncio.StreamWriter, request: dict[str, Any]) -> None:
        """An answer without a meaning, whose prompt depends on the thinking switch."""
        is_thinking = request["chat_template_kwargs"]["thinking"]
        ids = [7, 8, 9] if is_thinking or self.options.fault == "one-template" else [7, 8, 5]
        self._count(3, 2)
        usage = _usage(3, 2, 0)
        if not request["stream"]:
            message = {"role": "assistant", "content": "so"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = {"choices": [choice], "usage": usage, "prompt_token_ids": ids}
            _plain(writer, json.dumps(whole), "application/json")
            return
        writer.write(HEAD)
        choice = {"index": 0, "delta": {"content": "so"}, "finish_reason": "stop"}
        _event(writer, json.dumps({"choices": [choice], "prompt_token_ids": ids}))
        _event(writer, json.dumps({"choices": [], "usage": usage}))
        _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")

    def _metrics(self) -> str:
        label = f'{{engine="0",model_name="{self.options.served_model_name}"}}'
        success = label.replace("}", ',finished_reason="length"}')
        counters = {
            f"vllm:request_success_total{success}": self.requests,
            f"vllm:num_preemptions_total{label}": self.preemptions,
            f"vllm:prompt_tokens_total{label}": self.prompt_tokens,
            f"vllm:generation_tokens_total{label}": self.output_tokens,
            f"vllm:prefix_cache_queries_total{label}": self.prompt_tokens,
            f"vllm:prefix_cache_hits_total{label}": 0,
            f"vllm:num_requests_running{label}": self.running,
            f"vllm:num_requests_waiting{label}": 0,
        }
        names = {key.partition("{")[0] for key in counters}
        kinds = {n: "counter" if n.endswith("_total") else "gauge" for n in names}
        lines = []
        for name, values in itertools.groupby(sorted(counters), lambda k: k.partition("{")[0]):
            lines.append(f"# TYPE {name} {kinds[name]}")
            lines += [f"{key} {counters[key]}.0" for key in values]
        return "\n".join(lines) + "\n"


def _usage(prompt: int, output: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _event(writer: asyncio.StreamWriter, data: str) -> None:
    payload = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(payload), payload))


def _plain(writer: asyncio.StreamWriter, text: str, kind: str, status: str = "200 OK") -> None:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)


async def _main(options: argparse.Namespace) -> None:
    if options.fault == "ignore-sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = await asyncio.start_server(Fake(options).serve, "127.0.0.1", options.port)
    sys.stderr.write("GPU KV cache size: 16,384 tokens\n")
    sys.stderr.flush()
    async with server:
        await server.serve_forever()


def main() -> None:
    """Parse the command line and serve until told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--frame-s", type=float, default=0.002)
    parser.add_argument("--warmup-tokens", type=int, default=4)
    parser.add_argument("--answers", help="JSON lines with `question` and `answer`")
    parser.add_argument("--wrong", type=int, default=0, help="how many are answered wrong")
    options = parser.parse_args()
    hidden = os.environ.get("FAKE_FAULT_FILE")
    if hidden and Path(hidden).is_file():
        # A fault that neither the command nor the environment tells.
        options.fault = Path(hidden).read_text(encoding="utf-8").strip()
    if options.fault == "die-at-start":
        sys.exit("RuntimeError: no memory for the KV cache")
    try:
        asyncio.run(_main(options))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
