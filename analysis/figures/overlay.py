"""Published points in the scaling figure: filled where they may be trusted, hollow with a caveat, crossed out where rejected."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hpcddp.analysis.figures.colours import INK
from hpcddp.analysis.figures.marks import mark_point
from hpcddp.analysis.figures.style import pt
from hpcddp.analysis.util.wording import quantity

MARKERS = ("D", "s", "^", "v", "P", "X")
COLOURS = ("#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A3600", "#8a8a8a")
"""Okabe and Ito's that the figure's own lines do not use, in the order of the names asked for."""

DOUBTS = {"caveat": "hollow: published with a caveat", "reject": "x: rejected"}

LINE_MM = 4.0
"""Height that a line of the legend takes, its space included."""

Entry = tuple[str, dict[str, Any]]
"""Of the legend: text, and what the mark looks like."""


def draw_overlay(ax: Axes, overlay: pd.DataFrame) -> None:
    """The points, name by name, behind one's own; points of one source at growing sizes are not joined: they are not a run."""
    for marker, colour, points in _styled(overlay):
        for quality, group in points.groupby("quality"):
            symbol = _symbol(marker, colour, str(quality))
            ax.plot(group["gpus"], group["samples_per_s"], zorder=1.5, markeredgewidth=pt(0.9), **symbol)
            for _, row in group.iterrows():
                values = {"published": row["label"], "GPUs": str(row["gpus"]), "samples/s": quantity(row["samples_per_s"])}
                doubt = {} if quality == "ok" else {"quality": str(quality)}
                mark_point(ax, row["gpus"], row["samples_per_s"], values | doubt)


def overlay_legend(figure: Figure, entries: Sequence[Entry]) -> None:
    """Below the panels: whose each mark is, with its source."""
    handles = [Line2D([], [], label=text, markeredgewidth=pt(0.9), **symbol) for text, symbol in entries]
    if handles:
        figure.legend(
            handles=handles, loc="outside lower left", frameon=False, handletextpad=0.6, labelspacing=0.3, borderpad=0.1
        )


def legend_entries(overlay: pd.DataFrame, letters: int, measured: bool) -> list[Entry]:
    """In lines of so many letters; `measured`: one's own too."""
    entries: list[Entry] = [("measured", {"marker": "o", "color": INK})] if measured else []
    for marker, colour, points in _styled(overlay):
        first = points.iloc[0]
        lines = textwrap.wrap(f"{first['name']}: {first['label']}", letters, break_on_hyphens=False)
        best = str(min(points["quality"], key=("ok", "caveat", "reject").index))
        lines += textwrap.wrap(first["cite"], letters, break_on_hyphens=False)
        entries.append(("\n".join(lines), _symbol(marker, colour, best)))
    words = "; ".join(text for quality, text in DOUBTS.items() if quality in set(overlay["quality"]))
    return [*entries, *([(words, {"linestyle": ""})] if words else [])]


def legend_mm(entries: Sequence[Entry]) -> float:
    """The height it takes."""
    return LINE_MM * sum(text.count("\n") + 1 for text, _ in entries)


def _styled(overlay: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    names = overlay.groupby("name", sort=False)
    return [(MARKERS[i % len(MARKERS)], COLOURS[i % len(COLOURS)], group) for i, (_, group) in enumerate(names)]


def _symbol(marker: str, colour: str, quality: str) -> dict[str, Any]:
    crossed = quality == "reject"
    return {
        "linestyle": "",
        "marker": "x" if crossed else marker,
        "color": colour,
        "markerfacecolor": colour if quality == "ok" else "white",
    }
