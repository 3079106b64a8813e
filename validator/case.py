"""One stored attempt, read: its record, the bytes of its files, and what they say."""

from collections.abc import Callable
from dataclasses import dataclass

from . import exposition
from .asked import request_bytes
from .attempts import PROOF, READS, Attempt, Command, Proof, Request, Wave
from .reply import Asked, Figures, judge
from .runspec import CONCURRENCY, RunSpec
from .strict import canonical, digest, read

Banks = dict[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class Context:
    """What is known before an attempt is opened.

    load: bytes of a file of the attempt. where: its directory, for messages. command: how its
    service was started, None if not on record. salts: all that the run used before. was_valid:
    whether the attempt of this level before was, None without one. newest_ns: when the last byte
    of the run before this attempt came, on the run's clock. is_other_service: whether its service
    is not the one that the protocol gives it (P3.1).
    """

    runspec: RunSpec
    banks: Banks
    load: Callable[[str], bytes]
    where: str
    command: Command | None
    salts: frozenset[str]
    was_valid: bool | None
    newest_ns: int
    is_other_service: bool


@dataclass(frozen=True)
class Window:
    """What the counters of each engine moved by during one wave, and what was in flight at its
    two edges."""

    kind: str
    engines: dict[int, exposition.Counters]
    in_flight: tuple[int | None, int | None]


@dataclass(frozen=True)
class Case:
    """An attempt with everything that the rules read.

    figures: by (number of the wave, slot). codes: every code that a request's bytes gave. ends:
    for each wave when its last byte came. measured: figures of measured requests by slot. windows:
    None where a snapshot can't be read.
    """

    context: Context
    attempt: Attempt
    prompt_hashes: dict[str, tuple[str, ...]]
    figures: dict[tuple[int, int], Figures]
    codes: frozenset[str]
    measured: tuple[Figures, ...]
    ends: tuple[int, ...]
    windows: tuple[Window, ...] | None
    proofs: tuple[Proof, ...]

    @property
    def runspec(self) -> RunSpec:
        """What was frozen."""
        return self.context.runspec

    @property
    def concurrency(self) -> int:
        """C of the level."""
        return CONCURRENCY[self.attempt.level]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the waves that the attempt must have, in order."""
        return self.runspec.profile.waves(self.attempt.round)

    @property
    def requests(self) -> list[tuple[int, Wave, Request]]:
        """(number of the wave, wave, request) of the whole attempt."""
        return [
            (number, wave, request)
            for number, wave in enumerate(self.attempt.waves)
            for request in wave.requests
        ]


def open_case(context: Context, attempt: Attempt) -> Case:
    """Read and parse every file of an attempt."""
    figures: dict[tuple[int, int], Figures] = {}
    codes: set[str] = set()
    measured: list[Figures] = []
    ends = []
    for number, wave in enumerate(attempt.waves):
        newest_ns = 0
        for request in wave.requests:
            reads = read(context.load(request.reads), f"{context.where}/{request.reads}", READS)
            newest_ns = max([newest_ns, *(t_ns for t_ns, _ in reads)])
            raw, sent = context.load(request.raw), context.load(request.request)
            if not 0 <= request.slot < CONCURRENCY[attempt.level]:
                continue  # `wave-count` says it; no bank has a prompt to compare with.
            found, reasons = judge(request, raw, reads, sent, _asked(context, wave.kind, request))
            codes |= reasons
            if found is not None:
                figures[number, request.slot] = found
                measured += [found] if wave.kind == "measured" else []
        ends.append(wave.origin_ns + newest_ns)
    return Case(
        context=context,
        attempt=attempt,
        prompt_hashes={kind: _hashes(bank) for kind, bank in context.banks.items()},
        figures=figures,
        codes=frozenset(codes),
        measured=tuple(sorted(measured, key=lambda one: one.slot)),
        ends=tuple(ends),
        windows=_windows(context, attempt),
        proofs=tuple(
            read(context.load(name), f"{context.where}/{name}", PROOF) for name in attempt.identity
        ),
    )


def _hashes(bank: tuple[tuple[int, ...], ...]) -> tuple[str, ...]:
    return tuple(digest(canonical(prompt)) for prompt in bank)


def _asked(context: Context, kind: str, request: Request) -> Asked:
    prompt = context.banks[kind][request.slot]
    tokens = context.runspec.profile.size(kind).output_tokens
    sent = request_bytes(
        port=context.command.port if context.command else 0,
        rank=request.slot % context.runspec.profile.data_parallel_size,
        model=context.runspec.profile.served_name,
        prompt=prompt,
        output_tokens=tokens,
        salt=request.cache_salt,
    )
    return Asked(prompt, tokens, sent)


def _windows(context: Context, attempt: Attempt) -> tuple[Window, ...] | None:
    """One between each two neighbouring snapshots, for the waves in their order."""
    try:
        snapshots = [exposition.snapshot(context.load(name)) for name in attempt.metrics]
    except ValueError:
        return None
    return tuple(
        Window(
            wave.kind,
            exposition.moved(before, after),
            (exposition.in_flight(before), exposition.in_flight(after)),
        )
        for wave, before, after in zip(attempt.waves, snapshots, snapshots[1:], strict=False)
    )
