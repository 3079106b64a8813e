"""Progress of a wave -> a live table, or plain lines when nobody watches a terminal.

It is drawn by the parent process; the measuring client does nothing but measure.
"""

import sys
import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from acceptance.settings import is_plain


class WaveProgress(Protocol):
    """What is known of a wave while it runs. Counts are of requests and of tokens."""

    @property
    def waiting(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def first_tokens(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def tokens(self) -> int: ...


class View:
    """Shows one wave after the other. `total_tokens` is what the wave will bring."""

    def __init__(self, suspend_capture: Callable[[], object] | None = None) -> None:
        self.console = Console(file=sys.__stdout__, highlight=False)
        self.is_live = self.console.is_terminal and not is_plain()
        self.suspend_capture = suspend_capture

    def say(self, text: str) -> None:
        """One plain line."""
        self.console.print(text, markup=False)

    def watch(
        self, title: str, total_tokens: int, poll: Callable[[], tuple[WaveProgress, bool]]
    ) -> None:
        """Poll until the second value is true; twice a second, so that the box is left alone."""
        started = time.monotonic()
        if not self.is_live:
            self._wait(poll)
            took = time.monotonic() - started
            self.say(f"{title}: {total_tokens} tokens in {took:.1f} s")
            return
        with Live(console=self.console, refresh_per_second=2, transient=True) as live:
            while True:
                progress, is_over = poll()
                live.update(_table(title, total_tokens, progress, time.monotonic() - started))
                if is_over:
                    break
                time.sleep(0.5)
        took = time.monotonic() - started
        self.say(f"{title}: {progress.tokens} of {total_tokens} tokens in {took:.1f} s")

    def _wait(self, poll: Callable[[], tuple[WaveProgress, bool]]) -> None:
        while not poll()[1]:
            time.sleep(0.5)


def _table(title: str, total: int, progress: WaveProgress, seconds: float) -> Table:
    rate = progress.tokens / seconds if seconds > 0 else 0.0
    left = (total - progress.tokens) / rate if rate > 0 else None
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2))
    for name in ("waiting", "in flight", "first tokens", "done", "tokens", "tokens/s", "ETA"):
        table.add_column(name, justify="right")
    table.add_row(
        str(progress.waiting),
        str(progress.in_flight),
        str(progress.first_tokens),
        str(progress.done),
        f"{progress.tokens}/{total}",
        f"{rate:.0f}",
        "?" if left is None else f"{left:.0f} s",
    )
    return table
