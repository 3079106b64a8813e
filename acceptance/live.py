"""Progress of a wave -> a live table, or plain lines when nobody watches a terminal.

It is drawn by the parent process; the measuring client does nothing but measure.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from acceptance.client import Progress
from acceptance.settings import is_plain

PLAIN_EVERY_NS = 15_000_000_000
COLUMNS = ("waiting", "in flight", "first tokens", "done", "tokens", "tokens/s", "ETA")
BEFORE_FIRST = ("connecting", "sending", "prefill")


class View:
    """Shows one wave after the other."""

    def __init__(self) -> None:
        self.console = Console(file=sys.__stdout__, highlight=False)
        self.is_live = self.console.is_terminal and not is_plain()

    def say(self, text: str) -> None:
        """One plain line, at once."""
        self.console.print(text, markup=False, soft_wrap=True)
        self.console.file.flush()

    @contextmanager
    def wave(self, title: str, tokens_total: int | None) -> Generator[Callable[[Progress], None]]:
        """Gives the function that shows a wave's progress; says one line when it is over.

        `tokens_total`: None where nobody knows how long the answers get; then the ETA goes by
        requests.
        """
        last: list[Progress] = []
        if self.is_live:
            with Live(console=self.console, auto_refresh=False, transient=True) as live:

                def show(progress: Progress) -> None:
                    last[:] = [progress]
                    live.update(_table(title, tokens_total, progress), refresh=True)

                yield show
        else:
            shown = [0]

            def tell(progress: Progress) -> None:
                last[:] = [progress]
                elapsed = progress.elapsed_ns or 0
                if elapsed - shown[0] > PLAIN_EVERY_NS:
                    shown[0] = elapsed
                    self.say(line(title, tokens_total, progress))

            yield tell
        if last:
            self.say(line(title, tokens_total, last[0]))


def cells(progress: Progress, tokens_total: int | None) -> tuple[str, ...]:
    """One row of the table, in the order of `COLUMNS`."""
    states = [slot.state for slot in progress.slots]
    tokens = sum(slot.tokens for slot in progress.slots)
    seconds = (progress.elapsed_ns or 0) / 1e9
    rate = tokens / seconds if seconds else 0.0
    in_flight = sum(state in (*BEFORE_FIRST, "decode") for state in states)
    waiting = states.count("waiting")
    done = len(states) - waiting - in_flight
    if tokens_total is None:
        left = seconds * (len(states) - done) / done if done else None
    else:
        left = (tokens_total - tokens) / rate if rate else None
    return (
        str(waiting),
        str(in_flight),
        str(sum(slot.first_ns is not None for slot in progress.slots)),
        str(done),
        str(tokens) if tokens_total is None else f"{tokens}/{tokens_total}",
        f"{rate:.0f}",
        "?" if left is None else f"{left:.0f} s",
    )


def line(title: str, tokens_total: int | None, progress: Progress) -> str:
    """The same as one line of text."""
    row = dict(zip(COLUMNS, cells(progress, tokens_total), strict=True))
    seconds = (progress.elapsed_ns or 0) / 1e9
    if tokens_total is None:
        return f"{title}: {row['done']} of {len(progress.slots)} requests done in {seconds:.1f} s"
    return (
        f"{title}: {row['tokens']} tokens in {seconds:.1f} s ({row['tokens/s']}/s), "
        f"{row['done']} of {len(progress.slots)} requests done"
    )


def _table(title: str, tokens_total: int | None, progress: Progress) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2))
    for name in COLUMNS:
        table.add_column(name, justify="right")
    table.add_row(*cells(progress, tokens_total))
    return table
