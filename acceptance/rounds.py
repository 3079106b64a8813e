"""The service of each round: started from the RunSpec, proved, stopped, shown to be gone (P3.1)."""

import time
from pathlib import Path

from acceptance.errors import RunFailure
from acceptance.freeze import Frozen
from acceptance.service import Service, ServiceSpec, start
from acceptance.settings import runs_dir


class Rounds:
    """At most one service at a time; `same-service` uses B1's for both rounds."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen = frozen
        self.services: dict[str, Service] = {}
        self.states: dict[str, str] = {}

    def start(self, round_name: str) -> float:
        """Start the round's service, or prove that it is still the same one; returns seconds."""
        began = time.monotonic()
        if round_name == "B2" and self.frozen.runspec.profile.rounds == "same-service":
            self.services["B2"] = self.services["B1"]
            if not self.is_valid("B2"):
                raise RunFailure("P3.1", "the service of the first round is no longer the same")
            return time.monotonic() - began
        command, profile = self.frozen.runspec.service, self.frozen.runspec.profile
        spec = ServiceSpec(
            argv=command.argv,
            environment=command.environment,
            inherit=command.inherit,
            model=str(self.frozen.model_dir),
            served_name=profile.served_name,
            data_parallel_size=profile.data_parallel_size,
            startup_timeout_s=command.startup_timeout_s,
            stop_timeout_s=command.stop_timeout_s,
            expect=command.expect,
        )
        directory = self.frozen.run_dir / "results" / round_name / "service"
        self.services[round_name] = start(spec, directory, records=_records())
        return time.monotonic() - began
