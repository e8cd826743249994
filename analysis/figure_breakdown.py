"""Where the step goes: a bar per point, its parts in the order of a step and always in the same colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hpcddp.analysis.colours import FAINT, GRID, PARTS
from hpcddp.analysis.style import look, new_figure
from hpcddp.analysis.wording import quantity, unit

NAMES = {
    "data_wait": "data wait",
    "h2d_exposed": "copy",
    "forward": "forward",
    "backward": "backward",
    "comm_exposed": "communication",
    "optimizer": "optimizer",
    "record": "record",
    "other": "other",
    "unaccounted": "unaccounted",
}

BAR_MM = 5.2
AROUND_MM = 36.0


@dataclass(frozen=True)
class Line:
    """One line of the figure: a bar with its name, or (no `row`) a heading."""

    text: str
    row: pd.Series[Any] | None = None


def breakdown_figure(scaling: pd.DataFrame, names: dict[str, str], short: dict[str, str]) -> Figure:
    """`scaling`: rows of scaling_frame, drawn from top to bottom; a series of several points gets a heading."""
    with look():
        lines = layout_lines(scaling, names, short)
        figure, (ax,) = new_figure(AROUND_MM + BAR_MM * len(lines))
        bars = [(height, line.row) for height, line in enumerate(lines) if line.row is not None]
        drawn = _bars(ax, [height for height, _ in bars], pd.DataFrame([row for _, row in bars]))
        for height, line in enumerate(lines):
            _write_beside(ax, height, line)
        _axes(ax, lines, scaling)
        figure.legend(
            handles=[Patch(color=PARTS[part], label=NAMES[part]) for part in drawn],
            loc="outside upper left",
            ncols=3,
            frameon=False,
            handlelength=0.9,
            handleheight=0.9,
            columnspacing=1.2,
            labelspacing=0.3,
        )
    return figure


def layout_lines(scaling: pd.DataFrame, names: dict[str, str], short: dict[str, str]) -> list[Line]:
    """Headings and bars: `16 x 4` under its series' heading, `1 x 4, workers 2` for a series of one point."""
    lines = []
    several = scaling["series"].nunique() > 1
    for key, points in scaling.groupby("series", sort=False):
        alone = len(points) == 1
        if several and not alone:
            lines.append(Line(names[str(key)]))
        for _, row in points.iterrows():
            layout = f"{row['nodes']} x {row['gpus_per_node']}"
            lines.append(Line(f"{layout}, {short[str(key)]}" if several and alone else layout, row))
    return lines


def _bars(ax: Axes, heights: Sequence[int], rows: pd.DataFrame) -> list[str]:
    """Draws the parts next to each other; returns those that were measured anywhere."""
    left = pd.Series(0.0, index=rows.index)
    drawn = []
    for part, colour in PARTS.items():
        width = (rows[f"{part}_s"].astype("Float64").fillna(0).astype(float) * 1e3).clip(lower=0)
        if width.max() > 0:
            ax.barh(heights, width, left=left, height=0.72, color=colour)
            drawn.append(part)
        left = left + width
    return drawn


def _write_beside(ax: Axes, height: int, line: Line) -> None:
    """The step's length after the bar; a heading where the bars begin."""
    step_ms = 0.0 if line.row is None else line.row["step_s"] * 1e3
    text = line.text if line.row is None else quantity(step_ms)
    ax.annotate(text, (step_ms, height), xytext=(3, 0), textcoords="offset points", va="center")


def _axes(ax: Axes, lines: Sequence[Line], scaling: pd.DataFrame) -> None:
    ax.set_yticks(range(len(lines)), ["" if line.row is None else line.text for line in lines])
    ax.set_ylim(len(lines) - 0.4, -0.6)
    ax.set_xlim(0, scaling["step_s"].max() * 1e3 * 1.15)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", color=GRID)
    ax.set_xlabel("Step, ms")
    ax.annotate(
        f"nodes x {unit(scaling['device'].iloc[0])}s per node",
        (0, 1),
        xycoords=("figure fraction", "axes fraction"),
        xytext=(3, 2),
        textcoords="offset points",
        va="bottom",
        color=FAINT,
    )
