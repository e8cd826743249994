"""How long steps were, all of them: a histogram per point about its median, and in numbers what lies beyond its edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from hpcddp.analysis.figures.breakdown import BarLayout, at_edge, lay_lines
from hpcddp.analysis.figures.colours import FAINT, GRID, INK, MEAN, STEPS
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, entitle, mark_box, new_figure, pt
from hpcddp.analysis.runs.distribution import Bins, mean_ns, quantile_ns, shares_between
from hpcddp.analysis.util.wording import quantity, times, unit
from hpcddp.analysis.verdicts.findings import bins_of
from hpcddp.core.text import count

MAX_ROWS = 16
ROW_MM = 7.0
AROUND_MM = 22.0

COLUMNS = 60
"""Of a histogram."""

TAIL = 0.005
"""Share of a point's steps that may lie beyond either edge."""

NARROWEST, WIDEST = 0.02, 2.0
"""How far the axis reaches on one side at least and at most, as a share of the median."""

HEADS = ("mean", "99 %", "max", "warm-up")


@dataclass(frozen=True)
class Ridge:
    """A point's steps; all but `median_s` in medians of its timed steps."""

    median_s: float
    steps: int
    mean: float
    low: float
    """5 % are shorter."""
    high: float
    """5 % are longer."""
    p99: float
    longest: float
    warmup: float | None
    """Median of the warm-up."""
    warmup_steps: int
    timed_shares: NDArray[np.float64]
    """Of all timed steps those in each column of the histogram."""
    warmup_shares: NDArray[np.float64]

    @property
    def values(self) -> dict[str, str]:
        """What it says when it is pointed at."""
        found = {
            "steps": f"{self.steps:,}".replace(",", " "),
            "median": f"{quantity(self.median_s * 1e3)} ms",
            "mean": f"{quantity(self.mean * self.median_s * 1e3)} ms",
            "5–95 %": f"{times(self.low)}–{times(self.high)}",
            "99 %": times(self.p99),
            "longest": times(self.longest),
        }
        if self.warmup is not None:
            found["warm-up"] = f"{count(self.warmup_steps, 'step')}, median {times(self.warmup)}"
        return found

    @property
    def numbers(self) -> tuple[str, str, str, str]:
        """In the order of HEADS."""
        return times(self.mean), f"{self.p99:.2f}", times(self.longest), "" if self.warmup is None else times(self.warmup)


def distribution_figure(
    scaling: pd.DataFrame, steps: pd.DataFrame, names: dict[str, str], short: dict[str, str], style: Style = DEFAULT
) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, of which those in `steps` (rows of times_frame) are drawn from top to bottom."""
    edges, found = ridges(steps)
    layout = lay_lines(scaling.loc[list(found)], names, short, ROW_MM)
    with new_figure(style, AROUND_MM + ROW_MM * layout.height) as (figure, (ax,)):
        for line in layout.lines:
            if line.row is None:
                at_edge(ax, line.text, (0, line.at), "data", 0)
            else:
                ridge = found[line.row.name]
                _ridge(ax, line.at, edges, ridge)
                mark_box(ax, (edges[0], edges[-1]), (line.at - 0.42, line.at + 0.5), {"layout": line.text, **ridge.values})
        _axes(ax, layout, edges, found)
        by = f"nodes x {unit(scaling['device'].iloc[0])}s per node"
        if style.titles:
            entitle(ax, style, f"Steps, by {by}")
        else:
            at_edge(ax, by, (0, 1), "axes fraction", 2, va="bottom", color=FAINT)
    return figure


def ridges(steps: pd.DataFrame) -> tuple[NDArray[np.float64], dict[object, Ridge]]:
    """(edges of the histograms' columns in medians, row of the scaling table -> its steps), of rows of times_frame."""
    bins = {row: (bins_of(steps, row, "timed"), bins_of(steps, row, "warm-up")) for row in steps["row"].unique()}
    edges = _edges([timed for timed, _ in bins.values()])
    return edges, {row: _of_point(timed, warmup, edges) for row, (timed, warmup) in bins.items()}


def _edges(points: Sequence[Bins]) -> NDArray[np.float64]:
    """Wide enough for all points but their tails: the same for all, so that they can be compared."""
    below = max(1 - quantile_ns(bins, TAIL) / quantile_ns(bins, 0.5) for bins in points)
    above = max(quantile_ns(bins, 1 - TAIL) / quantile_ns(bins, 0.5) - 1 for bins in points)
    low, high = (min(max(1.15 * reach, NARROWEST), most) for reach, most in ((below, 0.9), (above, WIDEST)))
    return np.linspace(1 - low, 1 + high, COLUMNS + 1)


def _of_point(timed: Bins, warmup: Bins, edges: NDArray[np.float64]) -> Ridge:
    middle = quantile_ns(timed, 0.5)
    nothing = np.zeros(len(edges) - 1)
    return Ridge(
        median_s=middle / 1e9,
        steps=sum(count for _, count in timed),
        mean=mean_ns(timed) / middle,
        low=quantile_ns(timed, 0.05) / middle,
        high=quantile_ns(timed, 0.95) / middle,
        p99=quantile_ns(timed, 0.99) / middle,
        longest=quantile_ns(timed, 1) / middle,
        warmup=quantile_ns(warmup, 0.5) / middle if warmup else None,
        warmup_steps=sum(count for _, count in warmup),
        timed_shares=shares_between(timed, edges * middle),
        warmup_shares=shares_between(warmup, edges * middle) if warmup else nothing,
    )


def _ridge(ax: Axes, height: float, edges: NDArray[np.float64], ridge: Ridge) -> None:
    """The timed steps stand on the row's line, those of the warm-up hang below it; each as high as its fullest column."""
    for shares, up, colour in ((ridge.timed_shares, 0.72, STEPS["timed"]), (ridge.warmup_shares, -0.2, STEPS["warm-up"])):
        if shares.max() > 0:
            floor = height + 0.3
            ax.stairs(floor - up * heights(shares), edges, baseline=floor, fill=True, color=colour, linewidth=0)
    ax.plot(edges[[0, -1]], [height + 0.3] * 2, color=GRID, linewidth=pt(0.6), zorder=0)
    ax.plot([ridge.mean] * 2, [height + 0.3, height - 0.42], color=MEAN, linewidth=pt(1.4))
    for i, text in enumerate(ridge.numbers):
        colour = FAINT if i == HEADS.index("warm-up") else INK
        _beside(ax, i, text, height, colour)


def heights(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of a histogram's columns, the fullest 1: one with few steps can be seen."""
    return np.where(shares > 0, np.maximum(shares / shares.max(), LOWEST), 0)


LOWEST = 0.06
"""Of the fullest column's height."""

COLUMN_PT = (26.0, 52.0, 78.0, 118.0)
"""Right ends of the numbers' columns, at a type of 8 points."""


def _beside(ax: Axes, column: int, text: str, height: float, colour: str) -> None:
    where = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right", "va": "center"}
    ax.annotate(text, (1, height), xytext=(pt(COLUMN_PT[column]), 0), color=colour, annotation_clip=False, **where)  # type: ignore[arg-type]


def _axes(ax: Axes, layout: BarLayout, edges: NDArray[np.float64], found: Mapping[object, Ridge]) -> None:
    bars = [(line.text, found[line.row.name]) for line in layout.lines if line.row is not None]
    names = [f"{text}\n{quantity(ridge.median_s * 1e3)} ms" for text, ridge in bars]
    ax.set_yticks(list(layout.bars.values()), names, linespacing=1.0)
    ax.set_ylim(layout.height - 0.35, -0.95)
    ax.set_xlim(edges[0], edges[-1])
    ax.axvline(1, color=FAINT, linewidth=pt(0.6), zorder=0)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_xlabel("step / median")
    for i, head in enumerate(HEADS):
        _beside(ax, i, head, -0.75, MEAN if head == "mean" else FAINT)
