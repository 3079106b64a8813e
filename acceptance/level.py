"""One attempt of one level: its waves, what is proved at their edges, and its record (P3, P4.1)."""

import secrets
from pathlib import Path

from acceptance import archive
from acceptance.canonical import canonical
from acceptance.client import WaveClient, WaveRequest, WaveSpec, prompt_sha256
from acceptance.edges import Edges
from acceptance.errors import RunFailure
from acceptance.freeze import Frozen
from acceptance.ledger import Category
from acceptance.live import View
from acceptance.protocol import CONCURRENCY, completion_body, data_parallel_rank
from acceptance.records import SCHEMA, Attempt, Wave
from acceptance.service import Service
from acceptance.steps import waves
from acceptance.timekeeper import Timekeeper

WATCH_S = 0.2
BOOKED = {"warmup": Category.PERFORMANCE_WARMUP, "measured": Category.PERFORMANCE_MEASURED}


class LevelRunner:
    """Runs attempts. `salts` are all that were ever used in this run: none is used twice.

    `device_problems`: what the look at the machine before the service's start found (P2.1).
    """

    def __init__(self, frozen: Frozen, view: View, timekeeper: Timekeeper) -> None:
        self.timekeeper = timekeeper
        self.frozen = frozen
        self.view = view
        self.salts: set[str] = set()
        self.device_problems: tuple[str, ...] | None = None

    def run(
        self,
        service: Service,
        round_name: str,
        level: str,
        number: int,
        previous: Attempt | None,
        reason: str,
    ) -> Attempt:
        """Run the level once and write `attempt.json`, whatever happens on the way.

        A wave that was interrupted is recorded as such, then the interruption goes on.
        """
        directory = self.frozen.run_dir / "results" / round_name / level / f"attempt-{number}"
        directory.mkdir(parents=True)
        edges = Edges(self.frozen, service, directory, self.device_problems)
        done: list[Wave] = []
        edges.read()
        edges.proof()
        try:
            for kind in waves(self.frozen.runspec.profile.rounds, round_name):
                with self.timekeeper.phase(
                    BOOKED[kind], f"{level} {kind}", round_name=round_name, attempt=str(number)
                ):
                    title = f"{round_name} {level} {kind}"
                    self._wave(service, title, kind, level, directory, done)
                edges.read()
                if done[-1].aborted:
                    break
        finally:
            edges.proof()
            attempt = Attempt(
                schema=SCHEMA,
                run_id=self.frozen.runspec.run_id,
                runspec_sha256=self.frozen.runspec_sha256,
                round=round_name,
                level=level,
                attempt=number,
                service_id=service.service_id,
                waves=tuple(done),
                metrics=tuple(edges.metrics_files),
                identity=tuple(edges.proof_files),
                previous=f"attempt-{previous.attempt}" if previous else None,
                reason=reason or None,
            )
            archive.write_record(directory / "attempt.json", attempt)
        return attempt

    def _wave(
        self,
        service: Service,
        title: str,
        kind: str,
        level: str,
        directory: Path,
        done: list[Wave],
    ) -> None:
        spec = self._spec(service, kind, level)
        size = getattr(self.frozen.runspec.profile, kind)
        total = CONCURRENCY[level] * size.output_tokens
        with WaveClient(directory) as client, self.view.wave(title, total) as show:
            client.prepare(spec)
            try:
                client.go()
                while not (progress := client.poll()).done:
                    show(progress)
                    service.wait_for_death(WATCH_S)
                show(client.poll())
            except BaseException as error:
                client.abort(f"{type(error).__name__}: {error}")
                raise
            finally:
                done.append(client.finish())

    def _spec(self, service: Service, kind: str, level: str) -> WaveSpec:
        runspec = self.frozen.runspec
        size = getattr(runspec.profile, kind)
        requests = []
        for slot in range(CONCURRENCY[level]):
            prompt = self.frozen.banks[kind][slot]
            salt = self._salt()
            body = completion_body(
                model=runspec.profile.served_name,
                prompt=prompt,
                output_tokens=size.output_tokens,
                cache_salt=salt,
            )
            requests.append(
                WaveRequest(
                    slot=slot,
                    prompt_index=slot,
                    prompt_sha256=prompt_sha256(prompt),
                    rank=data_parallel_rank(slot, runspec.profile.data_parallel_size),
                    cache_salt=salt,
                    body=canonical(body),
                )
            )
        return WaveSpec(
            kind=kind,  # type: ignore[arg-type]
            host="127.0.0.1",
            port=service.port,
            requests=tuple(requests),
            http_timeout_ns=runspec.http_timeout_ns,
            barrier_timeout_ns=runspec.barrier_timeout_ns,
        )

    def _salt(self) -> str:
        """P3.6: never used before, in this run or any other."""
        salt = secrets.token_hex(16)
        if salt in self.salts:
            raise RunFailure("P3.6", "the system's random source repeated itself")
        self.salts.add(salt)
        return salt
