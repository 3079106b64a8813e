"""What is read of the service at the edges of a level's windows, and at no other time (P2.4a)."""

from pathlib import Path

from acceptance import archive
from acceptance.devices import cpu
from acceptance.errors import RunFailure
from acceptance.freeze import Frozen, changed_files
from acceptance.proof import Proof
from acceptance.records import SCHEMA
from acceptance.service import Service


class Edges:
    """Writes `metrics-N.txt` and `identity-N.json` of one attempt; what can't be read is left out
    or written as unknown, and the validity rules then say so."""

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
        self.host = cpu.sample()

    def metrics(self) -> None:
        """One snapshot of /metrics, as it came."""
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
