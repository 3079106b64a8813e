"""RunSpec, bank, salt and rank -> the bytes that a performance request must have had (P3.5)."""

from .strict import canonical


def request_bytes(
    *, port: int, rank: int, model: str, prompt: tuple[int, ...], output_tokens: int, salt: str
) -> bytes:
    """Head and body of the one POST, as P3.5 and P3.6 ask for it."""
    body = canonical(
        {
            "add_special_tokens": False,
            "cache_salt": salt,
            "echo": False,
            "ignore_eos": True,
            "max_tokens": output_tokens,
            "min_tokens": output_tokens,
            "model": model,
            "n": 1,
            "prompt": list(prompt),
            "return_token_ids": True,
            "seed": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "top_p": 1,
        }
    )
    head = (
        "POST /v1/completions HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{port}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"X-data-parallel-rank: {rank}\r\n"
        "Connection: close\r\n"
        "\r\n"
    )
    return head.encode("ascii") + body
