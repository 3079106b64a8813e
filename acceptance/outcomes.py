"""The two exceptions by which a test says INCONCLUSIVE or NOT_RUN.

INCONCLUSIVE is a pytest failure and NOT_RUN a pytest skip, so that a tool that does not know our
plugin sees red, never green.
"""

from typing import NoReturn

from _pytest.outcomes import Failed, Skipped


class Inconclusive(Failed):
    """Evidence is missing, invalid or contradictory: nothing can be said."""


class Judged(Failed):
    """A rule of the protocol says FAIL. Nothing else may fail what is measured."""


class NotRun(Skipped):
    """The check was not tried, for a stated reason."""


def inconclusive(reason: str) -> NoReturn:
    """End the test as INCONCLUSIVE."""
    raise Inconclusive(reason, pytrace=False)


def not_run(reason: str) -> NoReturn:
    """End the test as NOT_RUN."""
    raise NotRun(reason, allow_module_level=True)


def fail(reason: str) -> NoReturn:
    """End the test as FAIL, without a traceback: the reason says it all."""
    raise Judged(reason, pytrace=False)
