"""Where the step goes: a bar per point, its parts in the order of a step and always in the same colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from hpcddp.analysis.figures.colours import FAINT, GRID, INK, PARTS
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, in_column, legend_of_parts, mark_box, new_figure, pt
from hpcddp.analysis.study.breakdown import NAMES, shown_parts, step_total_s
from hpcddp.analysis.util.wording import percent, quantity, unit

BESIDE_LETTERS = 10
"""What fits to the left of bars, and of steps, which have numbers to their right as well."""

LEAST_SHARE = 0.005
"""Of the step: what is not more is 0 %."""

BAR = 0.72
"""Height of a bar, as a share of a line."""

BAR_MM = 5.2
AROUND_MM = 36.0

TEXT_MM = 3.7
"""A line of a heading."""

BEFORE_MM = 1.6
"""Above a heading, which belongs to what is below it."""


@dataclass(frozen=True)
class Line:
    """One line of the figure: a bar with its name, or (no `row`) a heading, maybe of several lines of text."""

    text: str
    at: float
    """Its middle, in bars from the first line on."""
    row: pd.Series[Any] | None = None


@dataclass(frozen=True)
class BarLayout:
    """Lines from top to bottom."""

    lines: list[Line]
    height: float
    """Of all, in bars."""

    @property
    def bars(self) -> dict[Any, float]:
        """Row of the scaling table -> the middle of its bar."""
        return {line.row.name: line.at for line in self.lines if line.row is not None}


def breakdown_figure(scaling: pd.DataFrame, names: dict[str, str], short: dict[str, str], style: Style = DEFAULT) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, drawn from top to bottom; a series of several points gets a heading."""
    layout = lay_lines(scaling, names, short, BAR_MM)
    with new_figure(style, AROUND_MM + BAR_MM * layout.height) as (figure, (ax,)):
        heights, bars = list(layout.bars.values()), scaling.loc[list(layout.bars)]
        handles = [*_bars(ax, heights, bars), *_without_hook(ax, heights, bars)]
        _mark_parts(ax, layout.lines, bars)
        for line in layout.lines:
            _write_beside(ax, line)
        _axes(ax, layout, scaling)
        legend_of_parts(figure, handles, "outside upper left")
    return figure


def lay_lines(scaling: pd.DataFrame, names: dict[str, str], short: dict[str, str], bar_mm: float) -> BarLayout:
    """Headings and bars: `16 x 4` under its series' heading; behind the first series those of one point that differ from it in
    little, `1 x 4, workers 2`. Headings of the others say what differs from the first. `bar_mm`: a bar with the space around it.
    """
    series = [(str(key), points) for key, points in scaling.groupby("series", sort=False)]
    beside = [len(points) == 1 and len(short[key]) <= BESIDE_LETTERS and i > 0 for i, (key, points) in enumerate(series)]
    ordered = sorted(range(len(series)), key=lambda i: (i > 0, not beside[i]))
    lines, height = list[Line](), 0.0
    for i in ordered:
        key, points = series[i]
        if len(series) > 1 and not beside[i]:
            text = in_column(f"the same with {short[key]}" if i else names[key])
            space = (len(text) * TEXT_MM + (BEFORE_MM if i else 0)) / bar_mm
            lines.append(Line("\n".join(text), height + space - len(text) * TEXT_MM / bar_mm / 2 - 0.5))
            height += space
        for _, row in points.iterrows():
            size = f"{row['nodes']} x {row['gpus_per_node']}"
            lines.append(Line(f"{size}, {short[key]}" if beside[i] else size, height, row))
            height += 1
    return BarLayout(lines, height)


def _bars(ax: Axes, heights: Sequence[float], rows: pd.DataFrame) -> list[Artist]:
    """Draws the parts next to each other; returns handles for those that can be seen anywhere."""
    left = pd.Series(0.0, index=rows.index)
    parts = shown_parts(rows)
    for part, seconds in parts.items():
        width = (seconds.fillna(0).astype(float) * 1e3).clip(lower=0)
        if width.max() > 0:
            ax.barh(heights, width, left=left, height=BAR, color=PARTS[str(part)])
        left = left + width
    return [Patch(color=PARTS[part], label=NAMES[part]) for part in visible_parts(parts, step_total_s(rows))]


def visible_parts(parts: pd.DataFrame, steps_s: pd.Series[Any]) -> list[str]:
    """Those that are more than 0 % of some point's step, as tables round: a legend needs no others."""
    shares = parts.astype(float).div(steps_s.astype(float), axis=0).max()
    return [str(part) for part, share in shares.items() if share > LEAST_SHARE]


def _mark_parts(ax: Axes, lines: Sequence[Line], rows: pd.DataFrame) -> None:
    """Each part with its length and share of the step, bar by bar."""
    bars = [(line.at, line.text) for line in lines if line.row is not None]
    parts_ms = shown_parts(rows).astype(float).clip(lower=0).fillna(0) * 1e3
    for (height, name), (_, parts), step_s in zip(bars, parts_ms.iterrows(), step_total_s(rows).astype(float), strict=True):
        left_ms = 0.0
        for part, length_ms in parts[parts > 0].items():
            share = percent(length_ms / (step_s * 1e3))
            values = {NAMES[str(part)]: f"{quantity(length_ms)} ms", "of the step": share, "layout": name}
            mark_box(ax, (left_ms, left_ms + length_ms), (height - BAR / 2, height + BAR / 2), values)
            left_ms += length_ms


def _without_hook(ax: Axes, heights: Sequence[float], rows: pd.DataFrame) -> list[Artist]:
    """A stroke where the step ends without the communication hook; nothing where that is the bar, or not known."""
    both = rows["step_hook_s"].notna() & ~rows["hook"]
    if not both.any():
        return []
    ends_ms = rows.loc[both, "step_s"].astype(float) * 1e3
    at = [height for height, known in zip(heights, both, strict=True) if known]
    size: dict[str, Any] = {"markersize": pt(9), "markeredgewidth": pt(1.2)}
    return list(ax.plot(ends_ms, at, "|", color=INK, label="step without hook", **size))


def _write_beside(ax: Axes, line: Line) -> None:
    """The step's length after the bar, and after the stroke where that is longer; a heading from the figure's edge on."""
    if line.row is None:
        at_edge(ax, line.text, (0, line.at), "data", 0)
        return
    at_ms = max(_step_ms(line.row), float(line.row["step_s"]) * 1e3)
    ax.annotate(quantity(_step_ms(line.row)), (at_ms, line.at), xytext=(pt(3), 0), textcoords="offset points", va="center")


def at_edge(ax: Axes, text: str, at: tuple[float, float], height: str, up: float, **properties: Any) -> None:
    """`at`: a fraction of the figure's width, and a height in the coordinates called `height`; the text is `up` points above."""
    where = {"xycoords": ("figure fraction", height), "xytext": (pt(3), pt(up)), "textcoords": "offset points"}
    ax.annotate(text, at, **{"va": "center", **where, **properties})


def _step_ms(row: pd.Series[Any]) -> float:
    """What the bar adds up to."""
    return float(row["step_s"] if pd.isna(row["step_hook_s"]) else row["step_hook_s"]) * 1e3


def _axes(ax: Axes, layout: BarLayout, scaling: pd.DataFrame) -> None:
    ax.set_yticks(list(layout.bars.values()), [line.text for line in layout.lines if line.row is not None])
    ax.set_ylim(layout.height - 0.4, -0.6)
    ax.set_xlim(0, max(step_total_s(scaling).max(), scaling["step_s"].max()) * 1e3 * 1.15)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", color=GRID)
    ax.set_xlabel("Step, ms")
    at_edge(ax, f"nodes x {unit(scaling['device'].iloc[0])}s per node", (0, 1), "axes fraction", 2, va="bottom", color=FAINT)
