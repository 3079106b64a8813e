"""P4.7, P6.3: the record of runs shows what is missing, and a valid verdict is final."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from acceptance.errors import UsageError
from acceptance.lineage import (
    START,
    Entry,
    append,
    check,
    compare,
    direct_parent,
    head,
    is_final,
    open_runs,
    read,
    refusal,
    split,
    tries,
    write_line,
)
from acceptance.protocol import Verdict


def _started(run="run-1", candidate="row-mask-001", **changes):
    fields = {
        "schema": 1,
        "number": 0,
        "event": "started",
        "kind": "candidate",
        "run_id": run,
        "time_utc": "2026-11-07T12:00:00Z",
        "candidate": candidate,
        "commit": f"commit of {candidate}",
        "configuration": "c",
        "targets": ("C1", "C16"),
        "runspec_sha256": f"spec of {run}",
        "follows": None,
        "fault": None,
        "verdict": None,
        "rule": None,
        "overall": None,
        "seal_sha256": None,
        "previous": "",
    }
    return Entry(**(fields | changes))


def _ended(begun, verdict="FAIL", rule="P4.2.6", **changes):
    verdict = Verdict(verdict)
    fields = {"event": "ended", "verdict": verdict, "rule": rule, "overall": verdict}
    return replace(begun, **(fields | {"seal_sha256": f"seal of {begun.run_id}"} | changes))


def _record(*entries):
    """The lines of these entries, chained but not checked."""
    lines = []
    for entry in entries:
        lines.append(write_line(entry, lines))
    return lines


def _run(run="run-1", candidate="row-mask-001", verdict="FAIL", rule="P4.2.6", **changes):
    begun = _started(run, candidate, **changes)
    return begun, _ended(begun, verdict, rule)


# The chain.


def test_lines_are_chained_from_the_first():
    first, second = _run()
    one = append(first, [])
    two = append(second, [one])

    entries = read([one, two], "x")

    assert [1, 2] == [entry.number for entry in entries]
    assert (START, head([one])) == tuple(entry.previous for entry in entries)
    assert (one, two) == split(one + two)


THREE = _record(*_run(), *_run("run-2", "query-overlap-001"))


@given(st.data())
def test_any_changed_byte_shows(data):
    """All but the last line is covered by the chain; the last one by its form."""
    whole = bytearray(b"".join(THREE))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    lines = split(bytes(whole))
    start_of_last = len(whole) - len(THREE[-1])

    assert check(lines) or (place >= start_of_last and head(lines) != head(THREE))


@pytest.mark.rule("P6.3")
@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(THREE[1:], id="first-gone"),
        pytest.param([*THREE[:1], *THREE[2:]], id="middle-gone"),
        pytest.param([*THREE[:2], THREE[1], *THREE[2:]], id="doubled"),
        pytest.param([THREE[1], THREE[0], *THREE[2:]], id="swapped"),
        pytest.param([*THREE[:3], THREE[3][:-1]], id="newline-gone"),
        pytest.param([*THREE[:3], THREE[3][:20]], id="cut"),
        pytest.param([THREE[0].replace(b",", b", ", 1), *THREE[1:]], id="not-canonical"),
        pytest.param([b"\n", *THREE], id="blank-line"),
        pytest.param([b"[1]\n", *THREE], id="foreign"),
        pytest.param(_record(replace(_started(), schema=2)), id="future"),
    ],
)
def test_a_line_that_is_gone_or_changed_shows(lines):
    assert check(lines)
    with pytest.raises(UsageError, match=r"^x: line \d: "):
        read(lines, "x")
    with pytest.raises(UsageError, match="damaged"):
        append(_started("run-9", "other-001"), lines)


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_any_bytes_are_checked(lines):
    assert bool(lines) is bool(check(lines))


def test_an_end_that_was_cut_off_shows_against_the_archives_and_the_bound_head():
    cut = THREE[:2]
    entries = read(cut, "x")

    assert () == check(cut), "the chain alone can't see it"
    assert head(cut) != head(THREE)
    assert ("run-2: an archive that is not on record",) == compare(
        entries, {"run-1": "seal of run-1", "run-2": "seal of run-2"}
    )


@pytest.mark.rule("P6.3")
@pytest.mark.parametrize(
    ("seals", "text"),
    [
        pytest.param({}, "run-1: on record, but its archive is gone", id="gone"),
        pytest.param({"run-1": "other"}, "run-1: its archive is not the one", id="replaced"),
        pytest.param({"run-1": None}, "run-1: its archive is not the one", id="seal-gone"),
        pytest.param({"run-1": "seal of run-1", "x": None}, "x: an archive that is not", id="new"),
    ],
)
def test_record_and_archives_must_agree(seals, text):
    found = compare(read(_record(*_run()), "x"), seals)

    assert 1 == len(found)
    assert found[0].startswith(text)


def test_a_run_that_has_not_ended_needs_its_archive_but_no_seal():
    assert () == compare(read(_record(_started()), "x"), {"run-1": None})
    assert () == compare(read(_record(*_run()), "x"), {"run-1": "seal of run-1"})


# The story.

BEGUN, END = _run()
PASSED = _ended(BEGUN, "PASS", "P4.2.4")
RETAINED = replace(BEGUN, event="retained", seal_sha256="seal of run-1")


@pytest.mark.rule("P6.3")
@pytest.mark.parametrize(
    ("entries", "text"),
    [
        pytest.param([END], "ended as what never started", id="no-start"),
        pytest.param([BEGUN, BEGUN], "a run id is used once", id="id-twice"),
        pytest.param([BEGUN, END, END], "ended twice", id="end-twice"),
        pytest.param([BEGUN, replace(END, targets=("C1",))], "never started", id="other-targets"),
        pytest.param([BEGUN, replace(END, commit="x")], "never started", id="other-commit"),
        pytest.param([BEGUN, replace(END, runspec_sha256="x")], "never started", id="other-spec"),
        pytest.param([replace(BEGUN, verdict=Verdict.PASS)], "and only there", id="early-verdict"),
        pytest.param([BEGUN, replace(END, verdict=None)], "and only there", id="no-verdict"),
        pytest.param([BEGUN, replace(END, overall=None)], "and only there", id="no-overall"),
        pytest.param([BEGUN, replace(END, seal_sha256=None)], "has a seal", id="no-seal"),
        pytest.param([replace(BEGUN, fault="noise")], "names the earlier run", id="fault-alone"),
        pytest.param([BEGUN, RETAINED], "retained without a PASS", id="retained-early"),
        pytest.param([BEGUN, END, RETAINED], "retained without a PASS", id="retained-fail"),
        pytest.param(
            [BEGUN, replace(PASSED, overall=Verdict.NOT_RUN), RETAINED],
            "retained without a PASS",
            id="retained-on-performance-alone",
        ),
        pytest.param([replace(BEGUN, time_utc="today")], "not a UTC time", id="no-time"),
    ],
)
def test_a_story_that_does_not_fit_shows(entries, text):
    lines = _record(*entries)

    assert any(text in found for found in check(lines))
    with pytest.raises(UsageError, match="refuses"):
        append(entries[-1], _record(*entries[:-1]))


def test_the_order_is_that_of_the_chain_and_not_of_a_wall_clock():
    assert () == check(_record(BEGUN, replace(END, time_utc="2026-11-07T11:59:59Z")))


def test_a_run_that_never_ended_is_listed():
    entries = read(_record(*_run(), _started("run-2", "query-overlap-001")), "x")

    assert ("run-2",) == open_runs(entries)


# P4.7: final verdicts.


@pytest.mark.rule("P4.7")
@pytest.mark.parametrize(
    ("verdict", "rule", "final"),
    [
        pytest.param("PASS", "P4.2.4", True, id="pass"),
        pytest.param("FAIL", "P4.2.2", True, id="slower"),
        pytest.param("FAIL", "P4.2.6", True, id="no-gain"),
        pytest.param("INCONCLUSIVE", "P4.2.3", True, id="opposite-signs"),
        pytest.param("INCONCLUSIVE", "P4.2.5", True, id="at-threshold"),
        pytest.param("INCONCLUSIVE", "P4.2.1", False, id="evidence"),
        pytest.param("INCONCLUSIVE", "P7.3", False, id="path"),
        pytest.param("INCONCLUSIVE", "P4.4", False, id="final-evidence"),
        pytest.param("FAIL", "P4.4", True, id="final-fail"),
        pytest.param("NOT_RUN", "P7.4", False, id="withdrawn"),
        pytest.param("INCONCLUSIVE", "P5.4", False, id="accuracy-invalid"),
        pytest.param("FAIL", "P5.4", True, id="accuracy-fail"),
    ],
)
def test_which_verdicts_are_final(verdict, rule, final):
    assert final is is_final(_run(verdict=verdict, rule=rule)[1])
    assert not is_final(_started())


JUDGED = _run()
OPEN_END = _run(verdict="INCONCLUSIVE", rule="P4.2.1")


@pytest.mark.rule("P4.7")
@pytest.mark.parametrize(
    ("claim", "text"),
    [
        pytest.param(_started("run-2"), "run-1 judged this commit", id="same-again"),
        pytest.param(
            _started("run-2", targets=("C1",)), "run-1 judged this commit", id="other-targets"
        ),
        pytest.param(
            _started("run-2", "row-mask-002", commit="commit of row-mask-001"),
            "run-1 judged this commit",
            id="new-name-same-thing",
        ),
        pytest.param(
            _started("run-2", commit="other"), "with its own name", id="new-thing-same-name"
        ),
        pytest.param(
            _started("run-2", configuration="other"), "with its own name", id="new-configuration"
        ),
        pytest.param(_started("run-2", "row-mask-002"), None, id="new-candidate"),
        pytest.param(_started("run-2", kind="accuracy"), None, id="other-kind"),
        pytest.param(_started("run-2", kind="final"), None, id="final"),
    ],
)
def test_a_valid_verdict_is_final(claim, text):
    found = refusal(claim, JUDGED)

    assert (text is None) is (found is None)
    assert text is None or text in found


@pytest.mark.rule("P4.7")
@pytest.mark.parametrize(
    "rule", [pytest.param("P4.2.3", id="signs"), pytest.param("P4.2.5", id="eq")]
)
def test_an_inconclusive_verdict_on_complete_evidence_is_final_too(rule):
    assert refusal(_started("run-2"), _run(verdict="INCONCLUSIVE", rule=rule))


@pytest.mark.rule("P6.3")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"follows": "run-1", "fault": "reset"}, None, id="linked"),
        pytest.param({}, "must follow run-1, not no run", id="not-linked"),
        pytest.param({"follows": "run-0", "fault": "reset"}, "must follow run-1", id="wrong-link"),
    ],
)
@pytest.mark.parametrize(
    "earlier", [pytest.param(OPEN_END, id="open-end"), pytest.param(OPEN_END[:1], id="killed")]
)
def test_a_run_without_a_valid_verdict_may_be_repeated_with_a_link(earlier, changes, text):
    found = refusal(_started("run-2", **changes), earlier)

    assert (text is None) is (found is None)
    assert text is None or text in found


@pytest.mark.rule("P6.3")
def test_a_first_run_follows_nothing():
    assert "must follow no run, not run-0" in refusal(_started(follows="run-0", fault="reset"), ())


@pytest.mark.rule("P5.4")
def test_after_a_valid_accuracy_run_there_is_none():
    earlier = _run(kind="accuracy", verdict="FAIL", rule="P5.4")

    assert refusal(_started("run-2", kind="accuracy"), earlier)
    assert refusal(_started("run-2", kind="accuracy", commit="x", candidate="y"), earlier) is None


@pytest.mark.rule("P4.7")
def test_the_record_itself_refuses_a_second_formal_run():
    with pytest.raises(UsageError, match="run-1 judged this commit and configuration: FAIL"):
        append(_started("run-2"), _record(*JUDGED))


# P6.8 and the count of tries.


@pytest.mark.rule("P6.8")
def test_the_direct_parent_is_the_latest_retained_version():
    second = _started("run-2", "query-overlap-002")
    entries = [BEGUN, PASSED, RETAINED, second, _ended(second, "PASS", "P4.2.4")]
    retained = replace(second, event="retained", seal_sha256="seal of run-2")

    assert () == check(_record(*entries, retained))
    assert direct_parent([]) is None
    assert "row-mask-001" == direct_parent(entries).candidate
    assert "query-overlap-002" == direct_parent([*entries, retained]).candidate


def test_every_judged_candidate_counts_as_one_try():
    entries = [*JUDGED, *_run("run-2", "a", "PASS", "P4.2.4"), *_run("run-3", "b", "FAIL", "P4.4")]

    assert 3 == tries(entries)
    assert 1 == tries([*JUDGED, *_run("run-2", "a", "INCONCLUSIVE", "P7.3")])
    assert 0 == tries(_run(kind="final", rule="P4.4"))


names = st.sampled_from(["a", "b"])
endings = st.sampled_from(
    [("PASS", "P4.2.4"), ("INCONCLUSIVE", "P4.2.1"), ("INCONCLUSIVE", "P4.2.3"), None]
)


@pytest.mark.rule("P4.7")
@given(st.lists(st.tuples(names, names, endings), max_size=8))
def test_no_record_ever_holds_two_final_verdicts_of_one_candidate(plan):
    """Whatever is tried, in whatever order: what `append` lets through keeps the law."""
    lines = []
    for number, (name, commit, ending) in enumerate(plan):
        begun = _started(f"run-{number}", name, commit=commit)
        earlier = [e for e in read(lines, "x") if e.event != "retained" and e.candidate == name]
        if earlier:
            begun = replace(begun, follows=earlier[-1].run_id, fault="unknown")
        try:
            lines.append(append(begun, lines))
        except UsageError:
            continue
        if ending:
            lines.append(append(_ended(begun, *ending), lines))

    finals = [entry for entry in read(lines, "x") if is_final(entry)]
    assert len(finals) == len({entry.candidate for entry in finals})
    assert len(finals) == len({(entry.commit, entry.configuration) for entry in finals})


def test_an_entry_refuses_unknown_keys():
    whole = msgspec.to_builtins(_started())

    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert(whole | {"extra": 1}, Entry)
