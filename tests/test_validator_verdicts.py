"""The validator's verdict: exact at each boundary, the rules in their order, laws over whole runs,
and the same as the live judge's wherever both are asked."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import validator
from acceptance import verdict as live
from acceptance.judgement import Obstacle
from tests.strategies import runs
from tests.strategies.places import fast_directory
from validator import verdicts
from validator.strict import ratio_text

LEVELS = ("C1", "C4")
ONE = Fraction(1)
ORDER = ("FAIL", "INCONCLUSIVE", "NOT_RUN", "PASS")


def candidate(
    *,
    p=(100, 100),
    b1=(90, 100),
    b2=(90, 100),
    thresholds=("1/50", "1/50"),
    limits=(1000, 1000),
    targets=("C1",),
    path_ran=True,
    obstacles=(),
):
    def by_level(values):
        pairs = zip(LEVELS, values, strict=True)
        return {level: Fraction(value) for level, value in pairs if value is not None}

    return verdicts.candidate(
        LEVELS,
        targets,
        by_level(p),
        by_level(b1),
        by_level(b2),
        by_level(thresholds),
        by_level(limits),
        path_ran,
        list(obstacles),
    )


CASES = {
    # gains of C1: (100 - 98) / 100 = 2 % in both rounds; the threshold is 2 %
    "exactly-the-threshold": ({"b1": (98, 100), "b2": (98, 100)}, "INCONCLUSIVE", "P4.2.5"),
    "a-hair-over": ({"b1": ("97999/1000", 100), "b2": (98, 100)}, "PASS", "P4.2.4"),
    "a-hair-under": ({"b1": ("98001/1000", 100), "b2": (98, 100)}, "FAIL", "P4.2.6"),
    # median gain of C4, no target: exactly -2 % is not worse, a hair more is
    "as-slow-as-allowed": ({"b1": (90, 102), "b2": (90, 102)}, "PASS", "P4.2.4"),
    "a-hair-slower": ({"b1": (90, "102001/1000"), "b2": (90, 102)}, "FAIL", "P4.2.2"),
    # the limit of C4 is 101, the parent within: TPOT (100 + 102) / 2 = 101 is still within
    "exactly-the-limit": ({"b2": (90, 102), "limits": (1000, 101)}, "PASS", "P4.2.4"),
    "over-the-limit": ({"b2": (90, "102001/1000"), "limits": (1000, 101)}, "FAIL", "P4.2.2"),
    "over-as-the-parent-was": ({"b2": (90, 102), "limits": (1000, 99)}, "PASS", "P4.2.4"),
    "parent-exactly-at-the-limit": ({"b2": (90, 101), "limits": (1000, 100)}, "FAIL", "P4.2.2"),
    "opposite-signs": ({"b1": (99, 100), "b2": (101, 100)}, "INCONCLUSIVE", "P4.2.3"),
    "opposite-signs-off-target": ({"b1": (90, 99), "b2": (90, 101)}, "PASS", "P4.2.4"),
    "slower-comes-before-opposite-signs": ({"b1": (99, 110), "b2": (101, 110)}, "FAIL", "P4.2.2"),
    "one-gain-exactly-zero": ({"b1": (100, 100), "b2": (90, 100)}, "FAIL", "P4.2.6"),
    "zero-is-not-opposite": ({"b1": (100, 100), "b2": (101, 100)}, "FAIL", "P4.2.6"),
    "no-parent": ({"p": (100, None)}, "INCONCLUSIVE", "P4.2.1"),
    "no-round": ({"b2": (90, None)}, "INCONCLUSIVE", "P4.2.1"),
    "no-threshold": ({"thresholds": ("1/50", None)}, "INCONCLUSIVE", "P4.2.1"),
    "threshold-under-one-percent": (
        {"thresholds": ("1/50", "9999/1000000")},
        "INCONCLUSIVE",
        "P4.2.1",
    ),
    "threshold-of-one-percent": ({"thresholds": ("1/50", "1/100")}, "PASS", "P4.2.4"),
    "no-target": ({"targets": ()}, "INCONCLUSIVE", "P4.2.1"),
    "target-that-is-no-level": ({"targets": ("C16",)}, "INCONCLUSIVE", "P4.2.1"),
    "an-obstacle": ({"obstacles": ["x"]}, "INCONCLUSIVE", "P4.2.1"),
    "path-not-run-comes-first": ({"path_ran": False, "b2": (90, None)}, "INCONCLUSIVE", "P7.3"),
    "path-unknown-comes-after-evidence": (
        {"path_ran": None, "b2": (90, None)},
        "INCONCLUSIVE",
        "P4.2.1",
    ),
    "path-unknown": ({"path_ran": None}, "INCONCLUSIVE", "P7.3"),
    "time-of-zero": ({"b1": (0, 100)}, "INCONCLUSIVE", "P4.2.1"),
}


@pytest.mark.parametrize(("given_", "verdict", "rule"), CASES.values(), ids=CASES)
def test_candidate_rules_in_their_order_and_exact_at_their_boundaries(given_, verdict, rule):
    ruling = candidate(**given_)

    assert (verdict, rule) == (ruling.verdict, ruling.rule)


@pytest.mark.parametrize(
    ("b2", "verdict"), [("100", "PASS"), ("100000001/1000000", "FAIL")], ids=["equal", "over"]
)
def test_the_final_limit_is_exact(b2, verdict):
    ruling = verdicts.final(
        ("C1",), {"C1": Fraction(100)}, {"C1": Fraction(b2)}, {"C1": Fraction(100)}, []
    )

    assert (verdict, "P4.4") == (ruling.verdict, ruling.rule)


@pytest.mark.parametrize(("left", "right"), itertools.pairwise(ORDER), ids=ORDER[:3])
def test_the_worst_scope_decides(left, right):
    assert left == verdicts.overall([right, left])


def test_nothing_planned_is_nothing_run():
    assert "NOT_RUN" == verdicts.overall([])


TIMES = st.sampled_from(
    [None, *(Fraction(n, d) for n in (0, 49, 50, 51, 98, 99, 100, 101, 102) for d in (1, 3))]
)
SHARES = st.sampled_from([None, Fraction(1, 200), Fraction(1, 100), Fraction(1, 50)])


def maps(values):
    return st.fixed_dictionaries(dict.fromkeys(LEVELS, values)).map(
        lambda found: {k: v for k, v in found.items() if v is not None}
    )


@settings(max_examples=400, deadline=None)
@given(
    p=maps(TIMES),
    b1=maps(TIMES),
    b2=maps(TIMES),
    thresholds=maps(SHARES),
    limits=maps(TIMES),
    targets=st.sampled_from([(), ("C1",), ("C4",), ("C1", "C4"), ("C16",)]),
    path_ran=st.sampled_from([True, False, None]),
    is_blocked=st.booleans(),
)
def test_two_judges_rule_the_same(p, b1, b2, thresholds, limits, targets, path_ran, is_blocked):
    obstacles = [Obstacle(rule="P4.1", level=None, reason="x")] if is_blocked else []

    mine = verdicts.candidate(
        LEVELS, targets, p, b1, b2, thresholds, limits, path_ran, [o.reason for o in obstacles]
    )
    theirs = live.judge_candidate(
        levels=LEVELS,
        targets=targets,
        parent_ns=p,
        b1_ns=b1,
        b2_ns=b2,
        thresholds=thresholds,
        limits_ns=limits,
        path_ran=path_ran,
        obstacles=obstacles,
    )
    final = verdicts.final(LEVELS, b1, b2, limits, [o.reason for o in obstacles])
    their_final = live.judge_final(
        levels=LEVELS, b1_ns=b1, b2_ns=b2, limits_ns=limits, obstacles=obstacles
    )

    assert (theirs.verdict.value, theirs.rule) == (mine.verdict, mine.rule)
    assert (their_final.verdict.value, their_final.rule) == (final.verdict, final.rule)


POSITIVE = st.integers(90, 110).map(Fraction)


@settings(max_examples=200, deadline=None)
@given(
    b1=st.tuples(POSITIVE, POSITIVE),
    b2=st.tuples(POSITIVE, POSITIVE),
    slower=st.integers(0, 30),
    which=st.sampled_from(["b1", "b2"]),
    level=st.integers(0, 1),
)
def test_slower_never_becomes_pass(b1, b2, slower, which, level):
    """Making any round of any level slower turns no other verdict into PASS."""
    before = candidate(b1=b1, b2=b2, targets=LEVELS)
    rounds = {"b1": list(b1), "b2": list(b2)}
    rounds[which][level] += slower
    after = candidate(**rounds, targets=LEVELS)

    assert not (after.verdict == "PASS" and before.verdict != "PASS")


@settings(max_examples=100, deadline=None)
@given(
    b1=st.tuples(POSITIVE, POSITIVE),
    b2=st.tuples(POSITIVE, POSITIVE),
    scale=st.fractions(Fraction(1, 1000), 1000),
)
def test_the_unit_of_time_does_not_matter(b1, b2, scale):
    plain = candidate(b1=b1, b2=b2)
    scaled = candidate(
        p=(100 * scale, 100 * scale),
        limits=(1000 * scale, 1000 * scale),
        b1=[one * scale for one in b1],
        b2=[one * scale for one in b2],
    )

    assert (plain.verdict, plain.rule) == (scaled.verdict, scaled.rule)


@pytest.fixture
def place():
    with fast_directory() as path:
        yield path


@settings(max_examples=12, deadline=None)
@given(times=st.tuples(*[st.integers(1, 4000)] * 2), limit=st.integers(1, 4000))
def test_a_whole_run_is_judged_exactly(times, limit):
    with fast_directory() as place:
        tpot = {("B1", "C1"): times[0], ("B2", "C1"): times[1]}
        draft = runs.run_draft(levels=("C1",), tpot_ns=tpot, limits_ns={"C1": f"{limit}/1"})

        figures = validator.recompute(runs.write(draft, place))

    exact = Fraction(sum(times), 2)
    assert {"C1": ratio_text(exact)} == figures["tpot_ns"]
    assert ("PASS" if exact <= limit else "FAIL") == figures["verdict"]


def test_a_candidate_run_is_judged_against_its_parent(place):
    # Parent 1100 ns, both rounds 1000 ns: gains of 1/11, over the threshold of 2 %.
    run_dir = runs.write(runs.run_draft(levels=LEVELS, kind="candidate"), place)

    scope = validator.recompute(run_dir)["scopes"][0]

    assert ("PASS", "P4.2.4") == (scope["verdict"], scope["rule"])


@settings(max_examples=10, deadline=None)
@given(
    order=st.permutations(range(4)), jitter=st.lists(st.integers(0, 500), min_size=4, max_size=4)
)
def test_the_order_of_requests_in_the_record_does_not_matter(order, jitter):
    def figures(arrange):
        with fast_directory() as place:
            draft = runs.run_draft(levels=("C4",))
            for attempt in draft.attempts:
                requests = attempt.wave("measured").requests
                for one, extra in zip(requests, jitter, strict=True):
                    one.reads = [[t + (extra if n else 0), c] for n, (t, c) in enumerate(one.reads)]
                requests[:] = [requests[n] for n in arrange]
            return validator.recompute(runs.write(draft, place))

    straight, mixed = figures(range(4)), figures(order)

    del straight["runspec_sha256"], mixed["runspec_sha256"]
    assert straight == mixed


def test_the_mean_is_exact(place):
    """Three of four requests end 1, 1 and 2 ns later, over 4 later tokens each: 1000 + 4/16."""
    draft = runs.run_draft(levels=("C4",))
    requests = draft.attempt("B1", "C4").wave("measured").requests
    for one, later in zip(requests, (0, 1, 1, 2), strict=True):
        one.reads[1][0] += later

    figures = validator.recompute(runs.write(draft, place))

    assert "4001/4" == figures["levels"][0]["mean_tpot_ns"]


def test_everything_in_one_read_is_no_time_and_no_pass(place):
    draft = runs.run_draft(levels=("C1",))
    for attempt in draft.attempts:
        for one in attempt.wave("measured").requests:
            one.reads = [[one.reads[0][0], len(one.raw)], one.reads[-1]]

    figures = validator.recompute(runs.write(draft, place))

    assert {"C1": "0/1"} == figures["tpot_ns"]
    assert "INCONCLUSIVE" == figures["verdict"]
