"""Laws of the verdict over generated figures: total, ordered, exact, and indifferent to units.

Figures are drawn close to the boundaries on purpose: gains are small multiples of half a threshold,
with nothing, or one part in 10^12, added.
"""

from fractions import Fraction

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from acceptance.exact import mean
from acceptance.judgement import Cause
from acceptance.protocol import LEVELS, Verdict
from acceptance.verdict import fold, judge_candidate, judge_final

THRESHOLD = Fraction(2, 100)
TINY = Fraction(1, 10**12)

gains = st.builds(
    lambda half, part: half * THRESHOLD / 2 + part * TINY, st.integers(-5, 5), st.integers(-1, 1)
)
parents = st.builds(
    lambda base, part: base * (1 + part * TINY),
    st.sampled_from([Fraction(10**7), Fraction(25 * 10**6), Fraction(10**9, 7)]),
    st.integers(-1, 1),
)
pairs = st.tuples(gains, gains)
target_sets = st.sets(st.sampled_from(LEVELS), min_size=1).map(
    lambda chosen: tuple(level for level in LEVELS if level in chosen)
)


@st.composite
def cases(draw):
    """Complete figures of a candidate: all levels, path shown."""
    parent = {level: draw(parents) for level in LEVELS}
    chosen = {level: draw(pairs) for level in LEVELS}
    return {
        "levels": LEVELS,
        "targets": draw(target_sets),
        "parent_ns": parent,
        "b1_ns": {level: parent[level] * (1 - chosen[level][0]) for level in LEVELS},
        "b2_ns": {level: parent[level] * (1 - chosen[level][1]) for level in LEVELS},
        "thresholds": dict.fromkeys(LEVELS, THRESHOLD),
        "limits_ns": dict.fromkeys(LEVELS, Fraction(25 * 10**6)),
        "path_ran": True,
    }


def _by_the_book(case):
    """P4.2.2 to P4.2.6 again, from the text of the rules and by another road: multiplied out with
    integers instead of divided, so that no gain is ever formed."""

    def sign(level, name):
        return (case["parent_ns"][level] > case[name][level]) - (
            case["parent_ns"][level] < case[name][level]
        )

    def against(level, sign_of_threshold):
        """2 P median <=> 2 P threshold, as -1, 0 or 1."""
        parent = case["parent_ns"][level]
        left = 2 * parent - case["b1_ns"][level] - case["b2_ns"][level]
        right = sign_of_threshold * 2 * parent * case["thresholds"][level]
        return (left > right) - (left < right)

    for level in case["levels"]:
        limit, total = case["limits_ns"][level], case["b1_ns"][level] + case["b2_ns"][level]
        if against(level, -1) < 0 or (case["parent_ns"][level] <= limit and total > 2 * limit):
            return Verdict.FAIL, "P4.2.2"
    signs = [(sign(t, "b1_ns"), sign(t, "b2_ns"), against(t, 1)) for t in case["targets"]]
    if any({one, two} == {1, -1} for one, two, _ in signs):
        return Verdict.INCONCLUSIVE, "P4.2.3"
    improved = [over for one, two, over in signs if one == two == 1]
    if 1 in improved:
        return Verdict.PASS, "P4.2.4"
    return (Verdict.INCONCLUSIVE, "P4.2.5") if 0 in improved else (Verdict.FAIL, "P4.2.6")


@pytest.mark.rule("P4.2")
@given(cases())
def test_the_rules_agree_with_a_second_reading_of_the_protocol(case):
    judgement = judge_candidate(**case)
    event(judgement.rule)

    assert _by_the_book(case) == (judgement.verdict, judgement.rule)


any_times = st.none() | st.dictionaries(
    st.sampled_from([*LEVELS, "C32", ""]), st.none() | st.fractions(), max_size=4
)
times = any_times.map(lambda value: value or {})


@pytest.mark.rule("P4.2.1")
@given(
    levels=st.lists(st.sampled_from([*LEVELS, "C32"]), max_size=4).map(tuple),
    targets=st.lists(st.sampled_from([*LEVELS, "C32"]), max_size=3).map(tuple),
    parent=any_times,
    b1=times,
    b2=times,
    thresholds=any_times,
    limits=times,
    path_ran=st.sampled_from([None, True, False]),
)
def test_every_input_has_a_verdict(levels, targets, parent, b1, b2, thresholds, limits, path_ran):
    candidate = judge_candidate(
        levels=levels,
        targets=targets,
        parent_ns=parent,
        b1_ns=b1,
        b2_ns=b2,
        thresholds=thresholds,
        limits_ns=limits,
        path_ran=path_ran,
    )
    final = judge_final(levels=levels, b1_ns=b1, b2_ns=b2, limits_ns=limits)

    assert candidate.reason
    assert final.reason
    known = all(table.get(level) is not None for table in (b1, b2, limits) for level in levels)
    assert known or {Verdict.INCONCLUSIVE} == {candidate.verdict, final.verdict}


@pytest.mark.rule("P4.2.1")
@given(
    case=cases(),
    level=st.sampled_from(LEVELS),
    name=st.sampled_from(["parent_ns", "b1_ns", "b2_ns", "thresholds", "limits_ns"]),
)
def test_taking_any_figure_away_is_inconclusive(case, level, name):
    judgement = judge_candidate(**(case | {name: {**case[name], level: None}}))

    assert (Verdict.INCONCLUSIVE, "P4.2.1") == (judgement.verdict, judgement.rule)


@given(case=cases(), scale=st.fractions(Fraction(1, 10**9), 10**9).filter(lambda s: s > 0))
def test_a_verdict_does_not_depend_on_the_unit_of_time(case, scale):
    scaled = {
        name: {level: value * scale for level, value in case[name].items()}
        for name in ("parent_ns", "b1_ns", "b2_ns", "limits_ns")
    }
    one, two = judge_candidate(**case), judge_candidate(**(case | scaled))

    assert (one.verdict, one.rule, one.level) == (two.verdict, two.rule, two.level)
    assert [x.gains for x in one.levels] == [x.gains for x in two.levels]


@given(case=cases(), levels=st.permutations(LEVELS), data=st.data())
def test_a_verdict_does_not_depend_on_the_order_of_levels_or_targets(case, levels, data):
    targets = tuple(data.draw(st.permutations(case["targets"])))
    one = judge_candidate(**case)
    two = judge_candidate(**(case | {"levels": tuple(levels), "targets": targets}))

    assert (one.verdict, one.rule) == (two.verdict, two.rule)


@given(case=cases())
def test_a_verdict_does_not_depend_on_which_round_came_first(case):
    swapped = case | {"b1_ns": case["b2_ns"], "b2_ns": case["b1_ns"]}
    one, two = judge_candidate(**case), judge_candidate(**swapped)

    assert (one.verdict, one.rule) == (two.verdict, two.rule)


@given(
    tpots=st.lists(
        st.integers(1, 10**11).map(lambda n: Fraction(n, 1023)), max_size=16, min_size=16
    ),
    data=st.data(),
)
def test_a_round_mean_does_not_depend_on_the_order_of_requests(tpots, data):
    assert mean(tpots) == mean(data.draw(st.permutations(tpots)))


def _slower(case, data):
    """The same candidate with some of its round means made slower."""
    slow = {}
    for name in ("b1_ns", "b2_ns"):
        factors = {level: 1 + abs(data.draw(gains)) for level in LEVELS}
        slow[name] = {level: case[name][level] * factors[level] for level in LEVELS}
    return case | slow


RANK = {Verdict.FAIL: 0, Verdict.INCONCLUSIVE: 1, Verdict.PASS: 2}


@pytest.mark.rule("P4.2.2")
@given(case=cases(), data=st.data())
def test_a_candidate_that_is_too_slow_stays_so_when_made_slower(case, data):
    if judge_candidate(**case).rule == "P4.2.2":
        assert "P4.2.2" == judge_candidate(**_slower(case, data)).rule


@pytest.mark.rule("P4.2.4")
@given(case=cases(), data=st.data(), target=st.sampled_from(LEVELS))
def test_with_one_target_being_slower_never_makes_a_pass(case, data, target):
    case = case | {"targets": (target,)}
    before, after = judge_candidate(**case), judge_candidate(**_slower(case, data))

    assert after.verdict is not Verdict.PASS or before.verdict is Verdict.PASS


@pytest.mark.rule("P4.2.3")
@given(case=cases(), data=st.data())
def test_being_slower_improves_a_verdict_only_through_the_rule_of_opposite_signs(case, data):
    """P4.2.3 is the one rule that is not monotone: a target with gains of opposite sign withholds
    a verdict that the same target, slower in both rounds, does not withhold. The protocol's order
    is kept; this law says exactly how far it reaches."""
    before, after = judge_candidate(**case), judge_candidate(**_slower(case, data))
    event(f"{before.rule} -> {after.rule}")

    if RANK[after.verdict] > RANK[before.verdict]:
        assert "P4.2.3" in (before.rule, after.rule)
        assert after.rule in ("P4.2.3", "P4.2.4", "P4.2.5")


@pytest.mark.rule("P4.2.3")
def test_the_one_way_in_which_being_slower_improves_a_verdict():
    """C1 passes by itself; C16 at +1 % / -1 % withholds it, at -0.5 % / -1 % it does not."""
    parent = Fraction(10**7)

    def rule(g1, g2):
        return judge_candidate(
            levels=("C1", "C16"),
            targets=("C1", "C16"),
            parent_ns={"C1": parent, "C16": parent},
            b1_ns={"C1": parent * Fraction(95, 100), "C16": parent * (1 - g1)},
            b2_ns={"C1": parent * Fraction(95, 100), "C16": parent * (1 - g2)},
            thresholds={"C1": THRESHOLD, "C16": THRESHOLD},
            limits_ns={"C1": parent * 2, "C16": parent * 2},
            path_ran=True,
        ).rule

    assert "P4.2.3" == rule(Fraction(1, 100), Fraction(-1, 100))
    assert "P4.2.4" == rule(Fraction(-5, 1000), Fraction(-1, 100))


@pytest.mark.rule("P4.4")
@given(case=cases(), data=st.data())
def test_a_final_run_never_gains_from_being_slower(case, data):
    def final(figures):
        names = ("levels", "b1_ns", "b2_ns", "limits_ns")
        return judge_final(**{name: figures[name] for name in names}).verdict

    assert RANK[final(_slower(case, data))] <= RANK[final(case)]


@pytest.mark.rule("P4.2.5")
@given(
    parent=st.integers(1, 10**12).map(lambda n: Fraction(n, 1023)),
    threshold=st.fractions(Fraction(1, 100), Fraction(1, 2)),
    share=st.fractions(Fraction(1, 10**6), Fraction(10**6 - 1, 10**6)),
)
def test_equality_with_the_threshold_is_exact_for_all_figures(parent, threshold, share):
    """g1 and g2 lie symmetrically about the threshold, both positive; 1 in 10^30 decides."""
    spread = threshold * share
    rules = []
    for off in (Fraction(1, 10**30), Fraction(0), Fraction(-1, 10**30)):
        judgement = judge_candidate(
            levels=("C1",),
            targets=("C1",),
            parent_ns={"C1": parent},
            b1_ns={"C1": parent * (1 - threshold - spread - off)},
            b2_ns={"C1": parent * (1 - threshold + spread - off)},
            thresholds={"C1": threshold},
            limits_ns={"C1": parent},
            path_ran=True,
        )
        rules.append(judgement.rule)

    assert ["P4.2.4", "P4.2.5", "P4.2.6"] == rules


@pytest.mark.rule("P4.2.6")
@given(case=cases())
def test_every_failure_says_which_kind_it_is(case):
    judgement = judge_candidate(**case)
    kinds = {"P4.2.2": {Cause.SLOWER, Cause.OVER_LIMIT}, "P4.2.6": {Cause.NO_GAIN}}

    if judgement.verdict is Verdict.FAIL:
        assert judgement.cause in kinds[judgement.rule]
        assert judgement.level in LEVELS


@pytest.mark.rule("P4.8")
@given(case=cases(), planned=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True))
def test_planning_more_never_improves_the_overall_verdict(case, planned):
    scopes = {"a": judge_candidate(**case), "b": None}
    order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.NOT_RUN, Verdict.PASS]

    few, many = fold(scopes, planned[:1]).verdict, fold(scopes, planned).verdict

    assert order.index(many) <= order.index(few)
