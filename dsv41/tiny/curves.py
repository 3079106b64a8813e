"""Draw the training logs: `python -m dsv41.tiny.curves` writes `training/curves.svg`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).with_name("training")
_PARTS = (
    ("target.jsonl", "share of problems right throughout", "target"),
    ("drafts.jsonl", "1 + accepted drafts, at random places", "draft stages"),
)


def read(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    """The measured rows of a log, and the steps of its events (a change and a resumption).

    A resumed training may repeat steps; the last row of a step counts.
    """
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    measured = {row["step"]: row for row in rows if "loss" in row}
    return [measured[s] for s in sorted(measured)], [r["step"] for r in rows if "event" in r]


def draw(out: Path) -> None:
    """Loss on a log scale above the score, one column per stage."""
    import matplotlib

    matplotlib.use("svg")
    # The same logs give the same bytes.
    matplotlib.rcParams["svg.hashsalt"] = "curves"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(_PARTS), figsize=(10, 6), sharex="col")
    for column, (name, what, title) in enumerate(_PARTS):
        if not (TRAINING / name).is_file():
            continue
        rows, events = read(TRAINING / name)
        steps = [row["step"] for row in rows]
        top, low = axes[0][column], axes[1][column]
        top.semilogy(steps, [row["loss"] for row in rows])
        top.set(title=title, ylabel="loss of the answers' tokens")
        low.plot(steps, [row.get("score", row.get("right")) for row in rows], label="training")
        tested = [row for row in rows if row["held_out"] is not None]
        low.plot(
            [r["step"] for r in tested], [r["held_out"] for r in tested], "o", label="held out"
        )
        low.set(xlabel="step", ylabel=what)
        low.legend()
        for step in events:
            for axis in (top, low):
                axis.axvline(step, color="grey", linestyle=":")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    draw(TRAINING / "curves.svg")
    sys.stdout.write(f"{TRAINING / 'curves.svg'}\n")
