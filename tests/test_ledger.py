"""P6.5, P6.6: unions instead of sums, children instead of phases, and unknown stays unknown."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from acceptance.errors import UsageError
from acceptance.ledger import (
    Category,
    Span,
    Summary,
    interval,
    problems,
    read_lines,
    render,
    summarise,
    union_ns,
    write_line,
)

S = 1_000_000_000


def _utc(second):
    return f"2026-11-07T12:{second // 60:02d}:{second % 60:02d}Z"


def _span(id, start=None, end=None, **changes):
    """A span from second `start` to second `end` of the hour; None is unknown."""
    fields = {
        "schema": 1,
        "id": id,
        "parent": None,
        "iteration": "row-mask-001",
        "round": None,
        "attempt": None,
        "actor": "ann",
        "command": None,
        "host": "h1",
        "clock_id": None,
        "category": Category.CODING,
        "start_utc": None if start is None else _utc(start),
        "end_utc": None if end is None else _utc(end),
        "duration_ns": None,
        "status": "done",
        "blocked": None,
        "evidence": None,
        "evidence_sha256": None,
    }
    return Span(**(fields | changes))


def _summary(*spans):
    return summarise(spans, "row-mask-001")


PAUSE = Category.WAITING_PAUSED


@pytest.mark.rule("P6.6")
@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([(0, 5)], 5, id="one"),
        pytest.param([(0, 5), (5, 7)], 7, id="touching"),
        pytest.param([(0, 5), (6, 7)], 6, id="apart"),
        pytest.param([(0, 5), (3, 7)], 7, id="overlapping"),
        pytest.param([(0, 9), (2, 3)], 9, id="inside"),
        pytest.param([(2, 3), (0, 9), (0, 9)], 9, id="equal-and-inside"),
        pytest.param([(4, 4)], 0, id="empty"),
        pytest.param([(-5, -3), (-4, 1)], 6, id="before-1970"),
    ],
)
def test_the_union_counts_parallel_time_once(intervals, expected):
    assert expected == union_ns(intervals)


ranges = st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1]))


@given(st.lists(ranges, max_size=12))
def test_the_union_is_that_of_all_instants(intervals):
    instants = {i for start, end in intervals for i in range(start, end)}

    assert len(instants) == union_ns(intervals)


@pytest.mark.rule("P6.6")
def test_wall_active_and_paused():
    """0-10 coding, 5-20 debugging in parallel, 20-50 pause, 60-70 coding."""
    found = _summary(
        _span("a", 0, 10),
        _span("b", 5, 20, category=Category.DEBUGGING, actor="bob"),
        _span("c", 20, 50, category=PAUSE),
        _span("d", 60, 70, actor="bob"),
    )

    assert (70 * S, 30 * S, 30 * S) == (
        found.wall.known_ns,
        found.active.known_ns,
        found.paused.known_ns,
    )
    assert {"ann": 40 * S, "bob": 25 * S} == {k: v.known_ns for k, v in found.actors.items()}
    assert 20 * S == found.categories["coding"].known_ns


@pytest.mark.rule("P6.6")
def test_a_phase_counts_without_its_parts():
    """Phase 0-100 with children 10-30 and, by another actor, 20-50: its own 60 are left."""
    found = _summary(
        _span("phase", 0, 100, category=Category.ANALYSIS),
        _span("one", 10, 30, parent="phase", category=Category.KNOWLEDGE),
        _span("two", 20, 50, parent="phase", category=PAUSE, actor="bob"),
    )

    assert 60 * S == found.categories["analysis"].known_ns
    assert 20 * S == found.categories["knowledge"].known_ns
    assert 80 * S == found.active.known_ns, "0-30 and 50-100: the pause 30-50 is not active"
    assert 100 * S == found.wall.known_ns


@pytest.mark.rule("P6.6")
@pytest.mark.parametrize(
    ("children", "own"),
    [
        pytest.param([(0, 100)], 0, id="whole"),
        pytest.param([(0, 40), (40, 100)], 0, id="whole-in-two"),
        pytest.param([(0, 40)], 60, id="front"),
        pytest.param([(60, 100)], 60, id="back"),
        pytest.param([(90, 130)], 90, id="beyond-the-end"),
        pytest.param([(200, 300)], 100, id="outside"),
    ],
)
def test_what_is_left_of_a_phase(children, own):
    parts = [
        _span(f"part-{i}", start, end, parent="phase", category=Category.CODING)
        for i, (start, end) in enumerate(children)
    ]
    found = _summary(_span("phase", 0, 100, category=Category.ANALYSIS), *parts)

    assert own * S == found.categories["analysis"].known_ns


@pytest.mark.rule("P6.5")
def test_unknown_is_never_zero_and_never_a_remainder():
    found = _summary(
        _span("phase", 0, 100, category=Category.ANALYSIS),
        _span("part", None, None, parent="phase", category=Category.CODING),
        _span("other", 20, 30, category=Category.DEBUGGING),
    )

    assert (1, None, ("part",)) == _row(found.categories["coding"])
    assert (1, None, ("phase",)) == _row(found.categories["analysis"])
    assert (3, 10 * S, ("phase", "part")) == _row(found.active)
    assert (0, None, ()) == _row(found.categories["accuracy"])


def _row(share):
    return share.spans, share.known_ns, share.unknown


@pytest.mark.rule("P6.5")
@pytest.mark.parametrize(
    ("span", "bounds"),
    [
        pytest.param(_span("a", 0, 10), 10 * S, id="utc"),
        pytest.param(_span("a", 0, None), None, id="no-end"),
        pytest.param(_span("a", None, 10), None, id="no-start"),
        pytest.param(_span("a", 10, 0), None, id="backwards"),
        pytest.param(_span("a", 0, 10, duration_ns=7, clock_id="c"), 7, id="monotonic-first"),
        pytest.param(_span("a", 0, None, duration_ns=7, clock_id="c"), 7, id="monotonic-only"),
        pytest.param(_span("a", None, None, duration_ns=7, clock_id="c"), None, id="no-place"),
        pytest.param(_span("a", 0, 10, duration_ns=-7, clock_id="c"), None, id="negative"),
        pytest.param(_span("a", 0, 10, start_utc="12:00"), None, id="malformed"),
        pytest.param(_span("a", 5, 5), 0, id="nothing"),
    ],
)
def test_bounds_come_from_what_was_written_only(span, bounds):
    found = interval(span)

    assert bounds == (found and found[1] - found[0])


@pytest.mark.rule("P6.5")
def test_the_line_of_the_end_takes_the_place_of_that_of_the_beginning():
    begun = _span("a", 0, None, status="open")
    found = _summary(begun, replace(begun, end_utc=_utc(10), status="failed"), _span("b", 20, 30))

    assert (2, 20 * S, ()) == _row(found.categories["coding"])
    assert {"failed": 1, "done": 1} == found.statuses
    assert () == found.problems


@pytest.mark.rule("P6.5")
def test_a_failure_and_its_retry_are_entries_of_their_own():
    found = _summary(_span("build-1", 0, 10, status="failed"), _span("build-2", 20, 25))

    assert (2, 15 * S, ()) == _row(found.categories["coding"])


OPEN = _span("a", 0, None, status="open")


@pytest.mark.parametrize(
    ("spans", "text"),
    [
        pytest.param([_span("a", 0, 1), _span("a", 0, 1)], "a had ended already", id="twice"),
        pytest.param(
            [OPEN, _span("a", 0, 1, actor="bob")], "ends as another phase", id="other-actor"
        ),
        pytest.param([OPEN, _span("a", 1, 2)], "ends as another phase", id="other-start"),
        pytest.param([_span("a", 2, 1)], "ends before it begins", id="backwards"),
        pytest.param([_span("a", 0, 1, duration_ns=S)], "of no clock", id="no-clock"),
        pytest.param(
            [_span("a", 0, None, duration_ns=-1, clock_id="c")], "negative", id="negative"
        ),
        pytest.param([_span("a", 0, 1, status="open")], "is open and has an end", id="open-end"),
        pytest.param([_span("a", 0, 1, start_utc="?")], "start is not a UTC", id="bad-start"),
        pytest.param([_span("a", 0, 1, end_utc="?")], "end is not a UTC", id="bad-end"),
        pytest.param(
            [_span("a", 0, 10, duration_ns=9 * S - 1, clock_id="c")], "was stepped", id="stepped"
        ),
        pytest.param([_span("a", 0, 1, parent="x")], "phase x is not", id="no-parent"),
        pytest.param([_span("a", 0, 1, parent="a")], "a part of itself", id="own-part"),
        pytest.param(
            [_span("a", 0, 1, parent="b"), _span("b", 0, 1, parent="a")],
            "a part of itself",
            id="circle",
        ),
        pytest.param([_span("a", 0, 1, evidence="log")], "path and a hash", id="no-hash"),
        pytest.param(
            [_span("a", 0, 1), _span("b", 0, 1, iteration="x")], "several iterations", id="two"
        ),
    ],
)
def test_contradictions_are_named(spans, text):
    assert any(text in found for found in problems(spans))
    assert summarise(spans, "row-mask-001").problems


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param([], id="empty"),
        pytest.param([OPEN], id="still-open"),
        pytest.param([_span("a", 0, 0, duration_ns=0, clock_id="c")], id="no-time-at-all"),
        pytest.param([_span("a", 0, 10, duration_ns=9 * S, clock_id="c")], id="small-step"),
        pytest.param([_span("a", 0, 10), _span("b", 1, 2, parent="a")], id="nested"),
    ],
)
def test_a_good_ledger_has_no_contradiction(spans):
    assert () == problems(spans)


# On disk.


@pytest.mark.rule("P6.5")
def test_lines_survive_the_disk_with_unknown_as_null():
    spans = (_span("a", 0, None, status="open"), _span("b", 1, 2))
    data = b"".join(map(write_line, spans))

    assert spans == read_lines(data, "x")
    assert None is msgspec.json.decode(data.splitlines()[0])["end_utc"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda d: d[:-1], "x:2: the last line is cut off", id="cut-newline"),
        pytest.param(lambda d: d[:-9], "x:2: the last line is cut off", id="cut"),
        pytest.param(lambda d: d.replace(b'"schema":1', b'"schema":2'), "x:1: schema 2", id="new"),
        pytest.param(lambda d: d.replace(b"coding", b"cooking"), "x:1: Invalid enum", id="enum"),
        pytest.param(lambda d: d.replace(b'"actor"', b'"octar"'), "x:1: Object", id="key"),
        pytest.param(lambda d: b"\n" + d, "x:1: ", id="blank-line"),
        pytest.param(lambda d: d.replace(b"ann", b"\xff\xff"), "x:1: ", id="not-utf8"),
    ],
)
def test_a_damaged_ledger_is_refused_with_its_place(change, message):
    data = write_line(_span("a", 0, 1)) + write_line(_span("b", 0, 1))

    with pytest.raises(UsageError, match=message):
        read_lines(change(data), "x")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_ledger_or_refused(data):
    try:
        spans = read_lines(data, "x")
    except UsageError:
        return
    assert not data or spans


def test_the_summary_survives_the_disk_and_reads_well():
    found = _summary(_span("a", 0, 10), _span("b", None, None), _span("c", 0, 1, parent="x"))
    text = render(found)

    assert 1 == found.schema
    assert found == msgspec.json.decode(msgspec.json.encode(found), type=Summary)
    assert "| active | >= 10.000 | 3 | b |" in text
    assert "| category accuracy | not recorded | 0 | - |" in text
    assert "- c: its phase x is not in the ledger" in text
    only_unknown = render(_summary(_span("b", None, None)))
    assert "| wall clock | unknown | 1 | b |" in only_unknown
