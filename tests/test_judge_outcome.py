"""A session's tests can't end better than the figures that stand in the archive."""

import pytest

from acceptance.judge import no_better
from acceptance.plan import Outcome
from acceptance.protocol import Verdict
from acceptance.records import Figures, ScopeVerdict


def _figures(verdict):
    scope = ScopeVerdict(scope="performance", verdict=verdict, rule="P4.4", reason="why")
    return Figures(
        schema=1, run_id="r", runspec_sha256="-", levels=(), tpot_ns={}, scopes=(scope,),
        verdict=verdict,
    )  # fmt: skip


@pytest.mark.rule("P4.8")
@pytest.mark.parametrize(
    ("tests", "figures", "expected"),
    [
        pytest.param("PASS", "PASS", "PASS", id="both-pass"),
        pytest.param("PASS", "INCONCLUSIVE", "INCONCLUSIVE", id="figures-are-open"),
        pytest.param("PASS", "FAIL", "FAIL", id="figures-fail"),
        pytest.param("NOT_RUN", "PASS", "NOT_RUN", id="tests-did-not-run"),
        pytest.param("INCONCLUSIVE", "NOT_RUN", "INCONCLUSIVE", id="tests-are-open"),
    ],
)
def test_the_worse_of_tests_and_figures_counts(tests, figures, expected):
    planned = Outcome(test="t", verdict=Verdict(tests), reason="")

    assert expected == no_better(planned, _figures(figures)).verdict
