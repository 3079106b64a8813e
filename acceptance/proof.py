"""What is proved of the service at each edge of a level: `identity-N.json` (P2.1 to P2.5, P4.1)."""

from acceptance.evidence import Host
from acceptance.records import Record

Setting = str | int | bool


class Proof(Record, frozen=True, kw_only=True):
    """State of the service and its host at one edge; None is unknown, and is written.

    - `identity`: service id, pids with start ticks, owner of the port, hashes of the command line
      and of the environment, versions, served model; as text by key.
    - `process_start`: start ticks of the service's main process, as text.
    - `settings`: effective configuration, by the keys that the RunSpec expects.
    - `kv_tokens`: KV capacity of each data-parallel rank, in tokens.
    - `deployed_differences`, `weights_differences`: files that differ from the RunSpec's hashes.
    - `observer_cost_ns`: how long the snapshot of /metrics at this edge took.
    """

    schema: int
    service_id: str
    identity: dict[str, str | None]
    process_start: str | None
    is_healthy: bool | None
    settings: dict[str, Setting] | None
    kv_tokens: tuple[int | None, ...] | None
    is_profiler_on: bool | None
    deployed_differences: tuple[str, ...] | None
    weights_differences: tuple[str, ...] | None
    device_problems: tuple[str, ...] | None
    host: Host | None
    observer_cost_ns: int | None


class PathCalls(Record, frozen=True, kw_only=True):
    """`paths-N.json`: path -> worker -> calls since its start, as they stood at edge N (P7.3).

    Edge 0 is before the first wave of the attempt, edge N after its N-th."""

    schema: int
    calls: dict[str, dict[str, int]]
