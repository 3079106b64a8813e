"""What is read of the service at the edges of a level's windows, and at no other time (P2.4a)."""

from pathlib import Path

import httpx

from acceptance import archive, probes
from acceptance.devices import cpu
from acceptance.errors import RunFailure
from acceptance.freeze import Frozen, changed_files
from acceptance.proof import PathCalls, Proof
from acceptance.records import SCHEMA
from acceptance.service import Service

PATHS = "paths"
"""Folder in the service's directory where its workers keep their path counters."""

PUBLISH_TIMEOUT_S = 10.0


class Edges:
    """Writes `metrics-N.txt`, `paths-N.json` and `identity-N.json` of one attempt; what can't be
    read is left out or written as unknown, and the validity rules then say so."""

    def __init__(
        self,
        frozen: Frozen,
        service: Service,
        directory: Path,
        device_problems: tuple[str, ...] | None,
    ) -> None:
        self.frozen = frozen
        self.service = service
        self.directory = directory
        self.device_problems = device_problems
        self.metrics_files: list[str] = []
        self.proof_files: list[str] = []
        self.cost_ns: int | None = None
        self.edge = 0
        self.host = cpu.sample()

    def read(self) -> None:
        """One snapshot of /metrics, as it came, and the path counters beside it."""
        self._metrics()
        self._paths()
        self.edge += 1

    def _paths(self) -> None:
        """P7.3: every worker writes its counters down, then the files are read."""
        counters = self.frozen.profile.service.path_counters
        if counters is None:
            return
        try:
            with httpx.Client(timeout=PUBLISH_TIMEOUT_S, trust_env=False) as client:
                client.post(
                    f"http://127.0.0.1:{self.service.port}/collective_rpc",
                    json={"method": counters.method},
                ).raise_for_status()
            files = {
                path.name: path.read_bytes()
                for path in sorted((self.service.directory / PATHS).glob("*.json"))
            }
            calls = probes.path_calls(files)
        except (httpx.HTTPError, OSError, ValueError):
            return
        record = PathCalls(schema=SCHEMA, calls=calls)
        archive.write_record(self.directory / f"paths-{self.edge}.json", record)

    def _metrics(self) -> None:
        try:
            text, self.cost_ns = self.service.metrics()
        except RunFailure:
            self.cost_ns = None
            return
        name = f"metrics-{len(self.metrics_files)}.txt"
        archive.write_once(self.directory / name, text)
        self.metrics_files.append(name)

    def proof(self) -> None:
        """The service and its host, as they are now."""
        name = f"identity-{len(self.proof_files)}.json"
        archive.write_record(self.directory / name, self._proof())
        self.proof_files.append(name)

    def _proof(self) -> Proof:
        identity = self.service.identity()
        deployed, weights = changed_files(self.frozen)
        before, self.host = self.host, cpu.sample()
        return Proof(
            schema=SCHEMA,
            service_id=self.service.service_id,
            identity=identity.as_text(),
            process_start=identity.process,
            is_healthy=self.service.is_healthy(),
            settings=identity.settings,
            kv_tokens=self.service.kv_tokens(),
            is_profiler_on=identity.is_profiler_on,
            deployed_differences=deployed,
            weights_differences=weights,
            device_problems=self.device_problems,
            host=cpu.host(before, self.host),
            observer_cost_ns=self.cost_ns,
        )
