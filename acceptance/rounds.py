"""The service of each round: started from the RunSpec, proved, stopped, shown to be gone (P3.1)."""

import time

from acceptance.edges import PATHS
from acceptance.errors import RunFailure
from acceptance.freeze import Frozen
from acceptance.prepare import service_spec
from acceptance.service import Identity, Service, prove_same, start
from acceptance.settings import runs_dir


class Rounds:
    """At most one service at a time; with `same-service` B1's serves both rounds."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen = frozen
        self.services: dict[str, Service] = {}
        self.first_seen: dict[str, Identity] = {}

    def shares_service(self, round_name: str) -> bool:
        """Whether the round runs on the service of the round before it (P3.1)."""
        return round_name == "B2" and self.frozen.runspec.profile.rounds == "same-service"

    def start(self, round_name: str) -> float:
        """Start the round's service, or prove that it is still the same one; returns seconds.

        RunFailure where it does not become ready or is not the one that was started.
        """
        began = time.monotonic()
        if self.shares_service(round_name):
            self.services["B2"] = self.services["B1"]
            self.first_seen["B2"] = self.first_seen["B1"]
            self.prove("B2")
            return time.monotonic() - began
        directory = self.frozen.run_dir / "results" / round_name / "service"
        spec = service_spec(self.frozen.profile, self.frozen.model_dir, directory / PATHS)
        service = start(spec, directory, records=runs_dir() / ".services")
        self.services[round_name] = service
        self.first_seen[round_name] = service.identity()
        self.prove(round_name)
        return time.monotonic() - began

    def prove(self, round_name: str) -> None:
        """P4.1: the service runs, is what the RunSpec asks for, and is the one that was started."""
        service = self.services[round_name]
        if not service.alive():
            raise RunFailure("P4.1", f"{round_name}: the service ended by itself")
        identity = service.identity()
        found = [*identity.differences, *prove_same(self.first_seen[round_name], identity)]
        if found:
            raise RunFailure("P4.1", f"{round_name}: {'; '.join(found)}")

    def is_valid(self, round_name: str) -> bool:
        """P3.7: whether a level may be run again on this service."""
        try:
            self.prove(round_name)
        except RunFailure:
            return False
        return self.services[round_name].is_healthy()

    def stop(self, round_name: str) -> str:
        """End the round's service and prove that nothing of it is left (P6.7); says how it was.

        RunFailure where something is left.
        """
        record = self.services[round_name].stop()
        if record.state != "REAPED":
            raise RunFailure("P6.7", f"{round_name}: {record.state}: {'; '.join(record.reasons)}")
        return f"{record.state}, {len(record.pids)} processes"

    def stop_all(self) -> None:
        """End whatever runs; the first that can't be ended is told, after all were tried."""
        failure: RunFailure | None = None
        for round_name in list(self.services):
            try:
                self.stop(round_name)
            except RunFailure as error:
                failure = failure or error
        if failure:
            raise failure
