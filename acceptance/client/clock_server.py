"""`python -m acceptance.client.clock_server STREAMS FRAMES INTERVAL_NS`: a service that is a clock.

It takes STREAMS completion requests, then answers all of them together, one frame per interval and
stream, as an engine step does. Each frame says when it was handed to the kernel, on the clock that
the client reads too. Prints its port, serves one wave, and ends.
"""

import json
import socket
import sys
import time

from acceptance.client.wave import raise_priority

PRIORITY = 9
"""Below the client's, so that the client may read while the burst is still being written."""

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
)
ACCEPT_TIMEOUT_S = 60


def stamp(now_ns: int) -> bytes:
    """The time as a comment of fixed width; `acceptance.client.lag` looks for it."""
    return b": t=%020d\n" % now_ns


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: dict[str, object]) -> bytes:
    """One Server-Sent Event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def frame(number: int, frames: int, prompt: list[int]) -> bytes:
    """Frame `number` of `frames`, with one token."""
    choice: dict[str, object] = {"index": 0, "text": " word", "token_ids": [number]}
    choice["finish_reason"] = "length" if number == frames - 1 else None
    if number == 0:
        choice["prompt_token_ids"] = prompt
    return event({"id": "cmpl-clock", "object": "text_completion", "choices": [choice]})


def ending(frames: int, prompt: list[int]) -> bytes:
    """The usage frame and `[DONE]`."""
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": frames,
        "total_tokens": len(prompt) + frames,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    return event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"


def read_prompt(connection: socket.socket) -> list[int]:
    """Read one request and return the prompt in it."""
    with connection.makefile("rb") as file:
        length = 0
        while (line := file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        prompt: list[int] = json.loads(file.read(length))["prompt"]
        return prompt


def serve(listener: socket.socket, streams: int, frames: int, interval_ns: int) -> None:
    """One wave, from the first accept to the last FIN."""
    connections = []
    for _ in range(streams):
        connection, _ = listener.accept()
        connection.settimeout(ACCEPT_TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append((connection, read_prompt(connection)))
    for connection, _ in connections:
        connection.sendall(HEAD)
    # Chunks are cut and joined before, so that a stamp is followed by nothing but send().
    width = len(stamp(0))
    scripts = [[frame(n, frames, prompt) for n in range(frames)] for _, prompt in connections]
    ends = [ending(frames, prompt) + b"\n" for _, prompt in connections]
    due = time.perf_counter_ns() + interval_ns
    for number in range(frames):
        time.sleep(max(due - time.perf_counter_ns(), 0) / 1e9)
        for (connection, _), script in zip(connections, scripts, strict=True):
            data = script[number]
            size = b"%x\r\n" % (width + len(data))
            connection.sendall(size + stamp(time.perf_counter_ns()) + data + b"\r\n")
        due += interval_ns
    for (connection, _), data in zip(connections, ends, strict=True):
        size = b"%x\r\n" % (width + len(data))
        tail = data + b"\r\n" + chunk(b"")
        connection.sendall(size + stamp(time.perf_counter_ns()) + tail)
        connection.shutdown(socket.SHUT_WR)
    for connection, _ in connections:
        connection.close()


def main(streams: int, frames: int, interval_ns: int) -> None:
    """Serve one wave on a free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0), backlog=streams) as listener:
        listener.settimeout(ACCEPT_TIMEOUT_S)
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        raise_priority(PRIORITY)
        serve(listener, streams, frames, interval_ns)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
