"""A stand-in for a vLLM server: a program that answers as one, and misbehaves when it is told to.

Standard library only, so that it starts in no time. It may fork a child and a grandchild that
detaches itself, ignore SIGTERM, end early, leave a shared segment, or serve something else.
"""

import argparse
import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 0.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="length"} 1.0
"""


def arguments() -> argparse.Namespace:
    """What the server is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", default="fake")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", help="what /v1/models says instead of the model")
    parser.add_argument("--config", type=json.loads, help="vllm_config of /server_info")
    parser.add_argument("--family", action="store_true", help="fork a child and a detached heir")
    parser.add_argument("--ignore-sigterm", action="store_true", help="in all processes")
    parser.add_argument("--say", default="", help="a line for the log")
    parser.add_argument("--exit", type=int, help="end with this status at once")
    parser.add_argument("--deaf", action="store_true", help="start, but never listen")
    parser.add_argument("--segment", help="make this shared segment")
    parser.add_argument("--reuse-port", action="store_true", help="share the port with others")
    parser.add_argument("--probe-status", type=int, default=200)
    return parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    """Answers the few paths that the runner asks."""

    options: argparse.Namespace

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Health, models, version, configuration, metrics."""
        path = self.path.partition("?")[0]
        entry = {
            "id": self.options.served_model_name,
            "root": self.options.root or self.options.model,
            "max_model_len": 64,
        }
        answers: dict[str, Any] = {
            "/health": "",
            "/version": {"version": "0.0.fake"},
            "/v1/models": {"data": [entry]},
            "/metrics": METRICS,
        }
        if self.options.config is not None:
            answers["/server_info"] = {"vllm_config": self.options.config, "vllm_env": {}}
        self._answer(200 if path in answers else 404, answers.get(path, ""))

    def do_POST(self) -> None:
        """A completion of `max_tokens` tokens; `/die` ends the server by SIGKILL."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/die":
            os.kill(os.getpid(), signal.SIGKILL)
        tokens = list(range(body["max_tokens"]))
        self._answer(self.options.probe_status, {"choices": [{"token_ids": tokens}]})

    def _answer(self, status: int, value: Any) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def sleep_for_ever() -> None:
    """What a forked process does."""
    while True:
        time.sleep(3600)


def make_family() -> None:
    """A child, and a grandchild that leaves session and parent as a daemon does."""
    if os.fork() == 0:
        sleep_for_ever()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            sleep_for_ever()
        os._exit(0)
    os.waitpid(middle, 0)


def main() -> int:
    """Misbehave as told, else serve until SIGTERM."""
    options = arguments()
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.say:
        sys.stderr.write(options.say + "\n")
        sys.stderr.flush()
    if options.exit is not None:
        return int(options.exit)
    if options.family:
        make_family()
    if options.segment:
        # Kept open: that is how the runner knows whose it is.
        os.open(f"/dev/shm/{options.segment}", os.O_CREAT | os.O_RDWR, 0o600)
    if options.deaf:
        sleep_for_ever()
    Handler.options = options
    server = type("Server", (ThreadingHTTPServer,), {"allow_reuse_port": options.reuse_port})
    with server(("127.0.0.1", options.port), Handler) as listening:
        listening.serve_forever(poll_interval=3600)
    return 0


if __name__ == "__main__":
    sys.exit(main())
