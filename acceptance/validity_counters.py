"""Validity rules on what the service's counters moved by in a window: P2.4 to P2.6, P3.6, P4.1."""

from collections.abc import Callable, Iterator

from acceptance.evidence import (
    Checked,
    EngineWindow,
    LevelEvidence,
    Outcome,
    Rule,
    Window,
    rule,
    settle,
)
from acceptance.protocol import data_parallel_rank


def _windows(evidence: LevelEvidence) -> Iterator[tuple[str, Window]]:
    for window in evidence.windows or ():
        yield window.kind, window


def _engines(evidence: LevelEvidence) -> Iterator[tuple[str, EngineWindow]]:
    for kind, window in _windows(evidence):
        for engine in window.engines:
            yield f"{kind} engine {engine.engine}", engine


def _unread(evidence: LevelEvidence) -> list[str]:
    """Which counters were not read: a window, or an engine in one."""
    if evidence.windows is None:
        return ["the counters were not read"]
    unknown = []
    wanted = set(range(evidence.expected.data_parallel_size))
    for kind in evidence.expected.waves:
        windows = [window for window in evidence.windows if window.kind == kind]
        if len(windows) != 1:
            unknown.append(f"{kind}: {len(windows)} windows of counters")
        for window in windows:
            engines = [engine.engine for engine in window.engines]
            if set(engines) != wanted or len(engines) != len(wanted):
                unknown.append(f"{kind}: counters of engines {sorted(engines)}")
    return unknown


def _counter(
    evidence: LevelEvidence,
    read: Callable[[EngineWindow], int | None],
    is_fine: Callable[[int], bool],
    name: str,
    fine: str,
    codes: tuple[str, ...] = (),
) -> Checked:
    """One counter of every engine in every window against what it may move by."""
    invalid, unknown = [], _unread(evidence)
    for where, engine in _engines(evidence):
        moved = read(engine)
        if moved is None:
            unknown.append(f"{where}: {name} not readable")
        elif not is_fine(moved):
            invalid.append(f"{where}: {name} moved by {moved}")
    return settle(invalid, unknown, fine, codes)


@rule("metrics", "P2.4a", "windows edge_reads expected", recomputable=True)
def metrics(evidence: LevelEvidence) -> Checked:
    """The counters were read at every edge of the windows."""
    unknown = _unread(evidence)
    if evidence.edge_reads is None:
        unknown.append("the number of reads at the edges is unknown")
    elif evidence.edge_reads != (edges := len(evidence.expected.waves) + 1):
        unknown.append(f"{evidence.edge_reads} reads at the edges, not {edges}")
    return settle([], unknown, "counters read at every edge", unknown_codes=("metrics-missing",))


@rule("foreign-traffic", "P2.5", "windows expected", recomputable=True)
def foreign_traffic(evidence: LevelEvidence) -> Checked:
    """The service served exactly our requests: C a window, and none was in flight at an edge."""
    invalid, unknown = [], _unread(evidence)
    wanted = evidence.expected.concurrency
    for kind, window in _windows(evidence):
        counts = [engine.requests for engine in window.engines]
        if None in counts:
            unknown.append(f"{kind}: requests not readable")
        elif (total := sum(count or 0 for count in counts)) != wanted:
            invalid.append(f"{kind}: {total} requests served, {wanted} sent")
        if None in window.in_flight:
            unknown.append(f"{kind}: requests in flight at an edge unknown")
        if any(window.in_flight):
            invalid.append(f"{kind}: requests in flight at an edge: {window.in_flight}")
    return settle(invalid, unknown, "only our requests", ("foreign-traffic",))


@rule("token-counters", "P4.1", "windows expected", recomputable=True)
def token_counters(evidence: LevelEvidence) -> Checked:
    """The service's own counts of prompt and output tokens are those that we sent and got."""
    invalid, unknown = [], _unread(evidence)
    expected = evidence.expected
    for kind, window in _windows(evidence):
        outputs = expected.output_tokens.get(kind)
        if outputs is None:
            unknown.append(f"{kind}: no length is frozen")
            continue
        for name, each, counts in (
            ("prompt", expected.input_tokens, [e.prompt_tokens for e in window.engines]),
            ("output", outputs, [e.output_tokens for e in window.engines]),
        ):
            wanted = each * expected.concurrency
            if None in counts:
                unknown.append(f"{kind}: {name} tokens not readable")
            elif (total := sum(count or 0 for count in counts)) != wanted:
                invalid.append(f"{kind}: {total} {name} tokens counted, {wanted} ours")
    return settle(invalid, unknown, "token counters agree", ("token-counters",))


@rule("rank-routing", "P3.6", "windows expected", recomputable=True)
def rank_routing(evidence: LevelEvidence) -> Checked:
    """Every engine served exactly the slots whose header named it."""
    invalid, unknown = [], _unread(evidence)
    expected = evidence.expected
    ranks = [
        data_parallel_rank(slot, expected.data_parallel_size)
        for slot in range(expected.concurrency)
    ]
    for where, engine in _engines(evidence):
        wanted = ranks.count(engine.engine)
        if engine.requests is None:
            unknown.append(f"{where}: requests not readable")
        elif engine.requests != wanted:
            invalid.append(f"{where}: {engine.requests} requests, headers named it {wanted} times")
    return settle(invalid, unknown, "every engine served its slots", ("rank-routing",))


@rule("preemptions", "P2.6", "windows", recomputable=True)
def preemptions(evidence: LevelEvidence) -> Checked:
    """No sequence was preempted on any engine."""
    return _counter(
        evidence,
        lambda engine: engine.preemptions,
        lambda moved: moved == 0,
        "preemptions",
        "no preemption",
        ("preemptions",),
    )


@rule("prefix-hits", "P3.6", "windows", recomputable=True)
def prefix_hits(evidence: LevelEvidence) -> Checked:
    """No engine found a token of a prompt in its prefix cache."""
    return _counter(
        evidence,
        lambda engine: engine.prefix_hit_tokens,
        lambda moved: moved == 0,
        "prefix hits",
        "no prefix hit",
        ("prefix-hits",),
    )


@rule("service-errors", "P4.1", "windows is_healthy_after")
def service_errors(evidence: LevelEvidence) -> Checked:
    """No engine ended a request by error or abort, and the service was healthy afterwards."""
    found = _counter(
        evidence,
        lambda engine: engine.requests_failed,
        lambda moved: moved == 0,
        "failed requests",
        "no error outside the streams",
    )
    if evidence.is_healthy_after is False:
        return settle(["the service was not healthy after the level"], [], "")
    if evidence.is_healthy_after is None and found.outcome is Outcome.VALID:
        return settle([], ["the health after the level is unknown"], "")
    return found


@rule("restarts", "P4.1", "windows process_starts")
def restarts(evidence: LevelEvidence) -> Checked:
    """The service's process is the same at every edge, and no counter went backwards."""
    invalid, unknown = [], []
    starts = evidence.process_starts
    if not starts or None in starts:
        unknown.append("the start of the service's process is unknown at an edge")
    if len({start for start in starts or () if start is not None}) > 1:
        invalid.append("the service's process changed")
    for where, engine in _engines(evidence):
        counters = {
            name: value
            for name in engine.__struct_fields__
            if isinstance(value := getattr(engine, name), int) and name != "engine"
        }
        back = [f"{where}: {name} went back by {-v}" for name, v in counters.items() if v < 0]
        invalid += back
    return settle(invalid, unknown, "one process throughout", ("service-changed",))


@rule("draft-acceptance", "P2.4", "windows")
def draft_acceptance(evidence: LevelEvidence) -> Checked:
    """Speculation was alive: every engine that served requests drafted and accepted tokens."""
    invalid, unknown = [], _unread(evidence)
    for where, engine in _engines(evidence):
        drafted, accepted = engine.draft_tokens, engine.accepted_tokens
        if engine.requests == 0:
            continue
        if drafted is None or accepted is None:
            unknown.append(f"{where}: acceptance not readable")
        elif not 0 < accepted <= drafted:
            invalid.append(f"{where}: {accepted} of {drafted} drafted tokens accepted")
    return settle(invalid, unknown, "drafts accepted on every active engine")


@rule("graph-replay", "P2.4", "windows")
def graph_replay(evidence: LevelEvidence) -> Checked:
    """FULL graphs were replayed on every active engine inside the measured window."""
    invalid, unknown = [], _unread(evidence)
    measured = [window for kind, window in _windows(evidence) if kind == "measured"]
    for engine in (engine for window in measured for engine in window.engines):
        if engine.requests == 0:
            continue
        if engine.graph_replays is None:
            unknown.append(f"engine {engine.engine}: replays not readable")
        elif engine.graph_replays <= 0:
            invalid.append(f"engine {engine.engine}: no graph was replayed")
    return settle(invalid, unknown, "graphs replayed on every active engine")


COUNTER_RULES: tuple[Rule, ...] = (
    metrics,
    foreign_traffic,
    token_counters,
    rank_routing,
    preemptions,
    prefix_hits,
    service_errors,
    restarts,
    draft_acceptance,
    graph_replay,
)
