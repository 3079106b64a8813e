"""The accuracy stage: the frozen questions, asked of the very B2 that was measured (P5)."""

from pathlib import Path

from acceptance.accuracy import plan as accuracy_plan
from acceptance.accuracy.edge import service_edge
from acceptance.accuracy.records import AccuracyFigures
from acceptance.accuracy.stage import Address, Binding, run
from acceptance.accuracy.store import judge_and_store
from acceptance.client import WaveSpec, run_wave
from acceptance.freeze import Frozen
from acceptance.live import View
from acceptance.records import ScopeVerdict, Wave
from acceptance.service import Service

DIRECTORY = "results/accuracy"


def ask(
    frozen: Frozen,
    service: Service,
    view: View,
    *,
    measured_identity_sha256: str | None,
    performance_sha256: str | None,
) -> AccuracyFigures:
    """Ask every question once and judge the answers; everything is stored below `results/`.

    `measured_identity_sha256`: identity under which B2's performance was measured (P5.1), None
    where accuracy alone was asked for. RunFailure where the service is another one.
    """
    plan = accuracy_plan.read_plan(frozen.run_dir)
    directory = frozen.run_dir / DIRECTORY

    def send(spec: WaveSpec, directory: Path) -> Wave:
        with view.wave("B2 accuracy", None) as show:
            return run_wave(spec, directory, show)

    run(
        plan,
        Binding(
            accuracy_id=f"{frozen.runspec.run_id}.accuracy",
            runspec_sha256=frozen.runspec_sha256,
            service_id=service.service_id,
            measured_identity_sha256=measured_identity_sha256,
            performance_sha256=performance_sha256,
        ),
        Address(
            host="127.0.0.1",
            port=service.port,
            data_parallel_size=frozen.runspec.profile.data_parallel_size,
            barrier_timeout_ns=frozen.runspec.barrier_timeout_ns,
        ),
        edge=service_edge(service, directory),
        send_wave=send,
        directory=directory,
    )
    return judge_and_store(plan, directory)[0]


def judge_interrupted(run_dir: Path) -> ScopeVerdict | None:
    """The verdict on a stage that was broken off: what was stored is judged like any other; None
    where not even its record was written."""
    directory = run_dir / DIRECTORY
    if not (directory / "accuracy.json").is_file() or (directory / "figures.json").exists():
        return None
    return judge_and_store(accuracy_plan.read_plan(run_dir), directory)[0].verdict
