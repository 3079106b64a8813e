"""How a service is started: the RunSpec's argv and environment -> the exact ones, or a refusal."""

import os
import shutil
import socket
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from acceptance.errors import UsageError
from acceptance.processes import listening_sockets
from acceptance.records import Record

Setting = str | int | bool

PLACEHOLDERS = ("python", "model", "port")
MARKER = "ACCEPTANCE_SERVICE_ID"
"""Variable that every process of a service inherits: what a crash leaves is found by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """One service as the RunSpec wants it.

    - `argv`: may hold {python}, {model} and {port}; a brace of its own is doubled.
    - `environment`: all that the server gets, apart from the variables named in `inherit`.
    - `expect`: effective settings by their dotted name below vLLM's configuration
      (`scheduler_config.max_num_seqs`); compared in value and kind.
    - `port`: None chooses a free one.
    - timeouts in seconds.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    inherit: tuple[str, ...]
    model: str
    served_name: str
    data_parallel_size: int
    startup_timeout_s: float
    stop_timeout_s: float
    expect: Mapping[str, Setting] = field(default_factory=dict)
    port: int | None = None


class Command(Record, frozen=True, kw_only=True):
    """`command.json`: what was started, in full. `environment` is without the service's marker."""

    schema: int
    service_id: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    port: int
    expect: dict[str, Setting]


def check(spec: ServiceSpec) -> None:
    """UsageError, and nothing started, for what can be seen to be wrong beforehand."""
    argv = expand(spec, spec.port or 0)
    program = shutil.which(argv[0], path=environment(spec, os.environ).get("PATH"))
    if program is None:
        raise UsageError(f"service.argv: {argv[0]!r} is no program that can be run")
    config = Path(spec.model) / "config.json"
    if not config.is_file():
        raise UsageError(f"{config}: not there; the model must be a checkpoint directory")
    if spec.port is not None and not is_free(spec.port):
        raise UsageError(
            f"port {spec.port} on 127.0.0.1 is taken; stop what listens there "
            f"(`ss -ltnp 'sport = {spec.port}'` names it) or let a free port be chosen"
        )
    both = sorted(set(spec.environment) & set(spec.inherit))
    if both:
        raise UsageError(f"service.environment: {both[0]} is set and inherited; do one of the two")


def expand(spec: ServiceSpec, port: int) -> tuple[str, ...]:
    """The exact argv. UsageError for an unknown placeholder."""
    names = {"python": sys.executable, "model": spec.model, "port": str(port)}
    if not spec.argv:
        raise UsageError("service.argv: empty; it must name the server's program")
    expanded = []
    for part in spec.argv:
        try:
            fields = {name for _, name, _, _ in string.Formatter().parse(part) if name is not None}
            unknown = sorted(fields - set(PLACEHOLDERS))
            if unknown:
                raise UsageError(
                    f"service.argv: unknown placeholder {{{unknown[0]}}} in {part!r}; there are "
                    + ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                    + "; double a brace of its own"
                )
            expanded.append(part.format(**names))
        except ValueError as error:
            raise UsageError(
                f"service.argv: {part!r}: {error}; double a brace of its own"
            ) from None
    return tuple(expanded)


def environment(spec: ServiceSpec, ours: Mapping[str, str]) -> dict[str, str]:
    """Everything the server gets: what is set, and what is let through from ours if it is there."""
    passed = {name: ours[name] for name in spec.inherit if name in ours}
    return {**passed, **spec.environment}


def is_free(port: int) -> bool:
    """Whether nobody listens on this port, nor has bound it, on the loopback address.

    Both are asked: a server with SO_REUSEPORT lets a second one bind without an error.
    """
    if listening_sockets(port):
        return False
    with socket.socket() as probe:
        # A port whose connections are still in TIME_WAIT is free for a server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that the kernel gives out. That it is ours is proved once the server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
