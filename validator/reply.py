"""What was stored of one request -> its figures (P4.0), or the reason codes that forbid them."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .attempts import Request
from .events import Said, events, said
from .framing import Response, frame
from .strict import canonical, digest, ratio_text

Reads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Figures:
    """P4.0 for one request, exact: integers and ratios of ns."""

    slot: int
    ttft_ns: int
    e2e_ns: int
    output_tokens: int
    tpot_ns: Fraction
    tpot_last_token_ns: Fraction
    tpot_per_later_token_ns: Fraction | None
    first_frame_tokens: int
    first_ns: int
    last_token_ns: int
    end_ns: int
    token_ids_sha256: str

    def as_json(self) -> dict[str, Any]:
        """As `figures.json` writes it."""
        values = dict(vars(self))
        for name, value in values.items():
            if isinstance(value, Fraction):
                values[name] = ratio_text(value)
        return values


@dataclass(frozen=True)
class Asked:
    """What the request had to be."""

    prompt: tuple[int, ...]
    output_tokens: int
    sent: bytes


def judge(
    request: Request, raw: bytes, reads: Reads, sent: bytes, asked: Asked
) -> tuple[Figures | None, set[str]]:
    """Figures exist exactly when there is no code."""
    codes = set()
    if sent != asked.sent:
        codes.add("request-mismatch")
    if not _is_in_order(request, reads):
        codes.add("clock")
    if not _adds_up(request, raw, reads):
        return None, codes | {"reads-mismatch"}
    response = frame(raw, [count for _, count in reads])
    transport = _transport(request, response)
    codes |= transport
    if response.status != 200:
        return None, codes
    found, is_cut = events(response.body)
    spoken = [said(event.data) for event in found]
    if any(one.kind == "error" for one in spoken):
        codes.add("error-frame")
    elif not transport:
        codes |= _stream(spoken, is_cut, response.body, asked)
    if codes:
        return None, codes
    arrived = [response.read_at(event.last_byte) for event in found]
    return _figures(request, reads, response, spoken, arrived), codes


def _is_in_order(request: Request, reads: Reads) -> bool:
    """start, connected, sent and every read follow each other; nothing is asked without a read."""
    if not reads:
        return True
    previous = 0
    for t_ns in (request.start_ns, request.connected_ns, request.sent_ns, *(t for t, _ in reads)):
        if t_ns is None or t_ns < previous:
            return False
        previous = t_ns
    return True


def _adds_up(request: Request, raw: bytes, reads: Reads) -> bool:
    """Each read brought something, FIN nothing and last, and together they are the raw bytes."""
    counts = [count for _, count in reads]
    has_fin = counts[-1:] == [0]
    bringing = counts[:-1] if has_fin else counts
    if any(count < 1 for count in bringing) or has_fin is not (request.outcome == "fin"):
        return False
    return sum(bringing) == len(raw)


def _transport(request: Request, response: Response) -> set[str]:
    codes = set()
    if request.outcome != "fin":
        codes.add(f"outcome-{request.outcome}")
    if response.problem:
        codes.add(response.problem)
    if response.status == 200 and response.delimiter == "length":
        codes.add("http-framing")
    if response.status not in (None, 200):
        codes.add("http-status")
    return codes


def _stream(spoken: list[Said], is_cut: bool, body: bytes, asked: Asked) -> set[str]:
    """Codes of what a whole 200 response says."""
    codes = set()
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        codes.add("sse-malformed")
    if is_cut or any(one.kind == "malformed" for one in spoken):
        codes.add("sse-malformed")
    kinds = [one.kind for one in spoken]
    if "done" not in kinds:
        codes.add("no-done")
    elif kinds.index("done") < len(kinds) - 1:
        codes.add("after-done")
    data = [one for one in spoken if one.kind == "data"]
    if any(one.is_foreign_choice for one in data):
        codes.add("choice")
    received = sum(len(one.token_ids) for one in data)
    if received != asked.output_tokens:
        codes.add("token-count" if received else "no-token")
    if not _finishes(data):
        codes.add("finish-reason")
    echoes = {one.echo for one in data} - {None}
    if echoes != {asked.prompt}:
        codes.add("prompt-echo")
    usages = [one.usage for one in data if one.usage is not None]
    if len(usages) == 1:
        codes |= _usage(usages[0], len(asked.prompt), received)
    else:
        codes.add("usage-missing")
    return codes


def _finishes(data: list[Said]) -> bool:
    """One finish reason, `length`, with the last token."""
    reasons = [(number, one.finish) for number, one in enumerate(data) if one.finish is not None]
    bringing = [number for number, one in enumerate(data) if one.token_ids]
    return bool(bringing) and reasons == [(bringing[-1], "length")]


def _usage(usage: dict[str, Any], prompt: int, received: int) -> set[str]:
    codes = set()
    said_counts = [usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total")]
    if said_counts != [prompt, received, prompt + received] or not all(
        type(count) is int for count in said_counts
    ):
        codes.add("usage-mismatch")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if type(cached) is not int:
        codes.add("cached-unknown")
    elif cached:
        codes.add("cached-tokens")
    return codes


def _figures(
    request: Request, reads: Reads, response: Response, spoken: list[Said], arrived: list[int]
) -> Figures:
    tokens = [
        (reads[index][0], one.token_ids)
        for one, index in zip(spoken, arrived, strict=True)
        if one.token_ids
    ]
    ids = [token for _, some in tokens for token in some]
    (first_ns, first_ids), (last_ns, _) = tokens[0], tokens[-1]
    end_ns = reads[response.end_read or 0][0]
    start_ns = request.start_ns or 0
    gaps, later = len(ids) - 1, len(ids) - len(first_ids)
    return Figures(
        slot=request.slot,
        ttft_ns=first_ns - start_ns,
        e2e_ns=end_ns - start_ns,
        output_tokens=len(ids),
        tpot_ns=Fraction(end_ns - first_ns, gaps),
        tpot_last_token_ns=Fraction(last_ns - first_ns, gaps),
        tpot_per_later_token_ns=Fraction(last_ns - first_ns, later) if later else None,
        first_frame_tokens=len(first_ids),
        first_ns=first_ns,
        last_token_ns=last_ns,
        end_ns=end_ns,
        token_ids_sha256=digest(canonical(ids)),
    )
