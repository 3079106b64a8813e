"""From a spawned process to a service that is proved to answer: port, health, models, one probe.

Each phase is timed and recorded in `startup.json`; the probes are counted nowhere else (P3.2).
"""

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from acceptance.errors import RunFailure
from acceptance.processes import listening_sockets, socket_owners
from acceptance.records import SCHEMA, Record
from acceptance.service.log import last_error
from acceptance.service.spec import ServiceSpec
from acceptance.service.tree import Tree

LOOK_S = 0.05
HTTP_TIMEOUT_S = 10.0
PROBE_TOKENS = 4
PROBE_PROMPT = (3, 4, 5, 6, 7, 8)
"""Token ids that any vocabulary has."""


class Phase(Record, frozen=True, kw_only=True):
    """One phase of the start, ns after the spawn was asked for."""

    name: str
    begin_ns: int
    end_ns: int


class Probe(Record, frozen=True, kw_only=True):
    """One completion that proved a rank alive; it is no request of any wave."""

    rank: int
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


class Startup(Record, frozen=True, kw_only=True):
    """`startup.json`."""

    schema: int
    service_id: str
    started_utc: str
    phases: tuple[Phase, ...]
    probes: tuple[Probe, ...]


def client(port: int) -> httpx.Client:
    """For untimed requests: no proxy, no certificate store, no connection kept."""
    return httpx.Client(
        base_url=f"http://127.0.0.1:{port}",
        timeout=HTTP_TIMEOUT_S,
        trust_env=False,
        verify=False,
        limits=httpx.Limits(max_keepalive_connections=0),
    )


class Readiness:
    """Waits for one service. RunFailure, in one line, when it ends, lies or takes too long."""

    def __init__(
        self,
        spec: ServiceSpec,
        tree: Tree,
        port: int,
        log: Path,
        http: httpx.Client,
        begin_ns: int,
        now: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.spec = spec
        self.tree = tree
        self.port = port
        self.log = log
        self.http = http
        self.begin_ns = begin_ns
        self.now = now
        self.phases: list[Phase] = []
        self.probes: list[Probe] = []
        self.sockets: set[int] = set()

    def wait(self) -> Startup:
        """All phases in their order."""
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._done("spawn")
        self._until("port", self._owns_port)
        self._until("health", lambda: self._get("/health") is not None)
        self._until("models", self._lists_model)
        for rank in range(self.spec.data_parallel_size):
            self.probes.append(self._probe(rank))
        self._done("probe")
        return Startup(
            schema=SCHEMA,
            service_id=self.tree.service_id,
            started_utc=started,
            phases=tuple(self.phases),
            probes=tuple(self.probes),
        )

    def _done(self, name: str) -> None:
        begin = self.phases[-1].end_ns if self.phases else 0
        self.phases.append(Phase(name=name, begin_ns=begin, end_ns=self.now() - self.begin_ns))

    def _until(self, name: str, holds: Callable[[], bool]) -> None:
        while not holds():
            if self.tree.wait_for_death(LOOK_S):
                raise RunFailure("P6.7", self._why_it_ended(name))
            self._check_deadline(name)
        self._done(name)

    def _check_deadline(self, name: str) -> None:
        limit_s = self.spec.startup_timeout_s
        if self.now() - self.begin_ns > limit_s * 1e9:
            raise RunFailure(
                "P6.7",
                f"service not ready after {limit_s:g} s, it hangs in phase {name}; "
                f"last in {self.log}: {last_line(self.log)}",
            )

    def _why_it_ended(self, name: str) -> str:
        self.tree.wait_for_death(0)
        status = self.tree.exit_status
        how = "was ended" if status is None else f"ended with exit status {status}"
        return f"the server {how} in phase {name}: {last_line(self.log)} (log: {self.log})"

    def _owns_port(self) -> bool:
        """P4.1: everything that listens on the port is ours; a server of another's may share it."""
        sockets = listening_sockets(self.port)
        if not sockets:
            return False
        foreign = self._foreign(sockets)
        if foreign and self._foreign(listening_sockets(self.port)):
            raise RunFailure(
                "P4.1",
                f"port {self.port} is listened on by a process that is not of this service "
                f"(`ss -ltnp 'sport = {self.port}'` names it); stop it and start again",
            )
        self.sockets = sockets
        return not foreign

    def _foreign(self, sockets: set[int]) -> set[int]:
        pids = [process.pid for process in self.tree.processes()]
        owners = socket_owners(sockets, pids)
        return {inode for inode, pids in owners.items() if not pids}

    def _get(self, path: str) -> httpx.Response | None:
        try:
            response = self.http.get(path)
        except httpx.HTTPError:
            return None
        return response if response.status_code == httpx.codes.OK else None

    def _lists_model(self) -> bool:
        response = self._get("/v1/models")
        if response is None:
            return False
        problem = model_problem(response.json(), self.spec)
        if problem:
            raise RunFailure("P4.1", problem)
        return True

    def _probe(self, rank: int) -> Probe:
        body = {
            "model": self.spec.served_name,
            "prompt": list(PROBE_PROMPT),
            "max_tokens": PROBE_TOKENS,
            "min_tokens": PROBE_TOKENS,
            "ignore_eos": True,
            "temperature": 0,
            "return_token_ids": True,
            "cache_salt": f"probe-{self.tree.service_id}-{rank}",
        }
        left_s = self.spec.startup_timeout_s - (self.now() - self.begin_ns) / 1e9
        try:
            response = self.http.post(
                "/v1/completions",
                json=body,
                headers={"X-data-parallel-rank": str(rank)},
                timeout=max(left_s, 1.0),
            )
        except httpx.HTTPError as error:
            if self.tree.wait_for_death(1.0):
                raise RunFailure("P6.7", self._why_it_ended("probe")) from None
            raise RunFailure("P6.7", f"probe of rank {rank}: {error!r}") from None
        tokens = _tokens(response)
        if tokens is None or len(tokens) != PROBE_TOKENS:
            raise RunFailure(
                "P6.7",
                f"probe of rank {rank}: HTTP {response.status_code}, no {PROBE_TOKENS} token ids: "
                f"{response.text[:200]}",
            )
        return Probe(rank=rank, prompt_token_ids=PROBE_PROMPT, token_ids=tokens)


def _tokens(response: httpx.Response) -> tuple[int, ...] | None:
    if response.status_code != httpx.codes.OK:
        return None
    try:
        return tuple(int(token) for token in response.json()["choices"][0]["token_ids"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def served_model(models: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The entry of /v1/models that bears the served name."""
    entries = models.get("data") or ()
    return next((entry for entry in entries if entry.get("id") == name), None)


def model_problem(models: Mapping[str, Any], spec: ServiceSpec) -> str | None:
    """Why the server that answers does not serve our model; None if it does (P4.1)."""
    entry = served_model(models, spec.served_name)
    if entry is None:
        names = ", ".join(str(entry.get("id")) for entry in models.get("data") or ()) or "none"
        return f"/v1/models does not list {spec.served_name!r}; it lists {names}"
    root = str(entry.get("root"))
    if os.path.realpath(root) != os.path.realpath(spec.model):
        return f"/v1/models: {spec.served_name} is served from {root}, asked was {spec.model}"
    return None


def last_line(log: Path) -> str:
    """The meaningful last line of a log, for a message."""
    try:
        return last_error(log.read_text(errors="replace")) or "its log is empty"
    except OSError as error:
        return f"its log can't be read: {error.strerror}"
