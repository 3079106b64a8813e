"""Figures and attempts -> SVG: TPOT per request, and the timeline of a wave."""

import io
from collections.abc import Sequence
from fractions import Fraction

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from acceptance.records import LevelFigures, Request, RequestFigures

MS = 1_000_000
COLOURS = ("#1f6f8b", "#d1495b")


def _svg(figure: Figure) -> bytes:
    """The same figure gives the same bytes: fixed hash salt, no date."""
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "dsv41", "svg.fonttype": "none"}):
        FigureCanvasSVG(figure).print_svg(  # type: ignore[no-untyped-call]
            buffer, metadata={"Date": None}
        )
    return buffer.getvalue()


def tpot_plot(
    levels: Sequence[LevelFigures], limits_ns: dict[str, Fraction], unit_limit: bool
) -> bytes:
    """Every request of every level as a point, round beside round, round means as bars."""
    rounds = sorted({level.round for level in levels})
    names = sorted({level.level for level in levels}, key=lambda name: int(name[1:]))
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots(1, max(len(names), 1), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=False):
        for level in (x for x in levels if x.level == name):
            place = rounds.index(level.round)
            colour = COLOURS[place % 2]
            values = [float(Fraction(r.tpot_ns)) / MS for r in level.requests]
            spread = [
                place + 0.6 * (i + 0.5) / max(len(values), 1) - 0.3 for i in range(len(values))
            ]
            axis.plot(spread, values, "o", ms=4, color=colour, alpha=0.8)
            if level.mean_tpot_ns:
                mean = float(Fraction(level.mean_tpot_ns)) / MS
                axis.hlines(mean, place - 0.35, place + 0.35, color=colour)
        if unit_limit and name in limits_ns:
            axis.axhline(float(limits_ns[name]) / MS, color="#555555", ls="--", lw=0.8)
        axis.set_title(name)
        axis.set_xticks(range(len(rounds)), rounds)
        axis.set_xlim(-0.6, len(rounds) - 0.4)
        axis.set_ylim(bottom=0, top=axis.get_ylim()[1] * 1.05)
    axes[0].set_ylabel("TPOT, ms/token")
    return _svg(figure)


def timeline_plot(
    title: str, requests: Sequence[Request], figures: Sequence[RequestFigures]
) -> bytes:
    """Per slot: connecting and waiting (light) until the first token, decoding (dark) to EOF."""
    by_slot = {f.slot: f for f in figures}
    figure = Figure(figsize=(8, 0.9 + 0.22 * len(requests)), layout="constrained")
    axis = figure.subplots()
    for request in requests:
        found = by_slot.get(request.slot)
        if found is None or request.start_ns is None:
            axis.plot([0], [request.slot], "x", color="#d1495b")
            continue
        start, first, end = (t / 1e9 for t in (request.start_ns, found.first_ns, found.end_ns))
        axis.barh(request.slot, first - start, left=start, color="#c9d6df", height=0.7)
        axis.barh(request.slot, end - first, left=first, color="#1f6f8b", height=0.7)
    axis.invert_yaxis()
    axis.set_yticks([r.slot for r in requests])
    axis.set_xlabel("seconds after the wave's origin (light: to first token, dark: to EOF)")
    axis.set_ylabel("slot")
    axis.set_title(title, fontsize=9)
    return _svg(figure)
