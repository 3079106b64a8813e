"""A running service -> the proof and snapshot at the edges of an accuracy run (P5.6)."""

from pathlib import Path

from acceptance import probes
from acceptance.accuracy.records import ServiceEdge
from acceptance.accuracy.stage import Edge
from acceptance.archive import write_once, write_record
from acceptance.canonical import canonical, sha256
from acceptance.errors import RunFailure
from acceptance.service import Service
from acceptance.service.identity import Identity


def identity_sha256(identity: Identity) -> str:
    """One hash for one unchanged service: of what two proofs of it have in common."""
    return sha256(canonical({**identity.as_text(), "settings": identity.settings}))


def service_edge(service: Service, directory: Path) -> Edge:
    """The edges of a run that is stored in `directory`: writes `identity-<edge>.json` and
    `metrics-<edge>.txt` there. RunFailure if the service differs from what was asked for, or if
    its metrics can't be read."""

    def edge(name: str) -> ServiceEdge:
        identity = service.identity()
        identity_file, metrics_file = f"identity-{name}.json", f"metrics-{name}.txt"
        write_record(directory / identity_file, identity)
        if identity.differences:
            raise RunFailure("P5.6", f"the service is not as asked: {identity.differences[0]}")
        text, _ = service.metrics()
        write_once(directory / metrics_file, text)
        running, waiting = inside(text)
        return ServiceEdge(
            identity=identity_file,
            identity_sha256=identity_sha256(identity),
            metrics=metrics_file,
            running=running,
            waiting=waiting,
        )

    return edge


def inside(metrics: bytes) -> tuple[int | None, int | None]:
    """(running, waiting) requests over all engines; None where one of them is not told."""
    try:
        engines = probes.snapshot(metrics).engines.values()
    except ValueError:
        return None, None
    return _sum([e.running for e in engines]), _sum([e.waiting for e in engines])


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
