"""What can stop a run: the user's request, the evidence, or ourselves."""


class UsageError(Exception):
    """The request can't be served and nothing was measured: exit status 2.

    The message is one line: what is wrong, where, and what to do.
    """


class RunFailure(Exception):
    """Something went wrong after the RunSpec was frozen: the run is INCONCLUSIVE.

    `rule` is the rule of the protocol that can no longer be met.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}")
        self.rule = rule
        self.reason = reason
