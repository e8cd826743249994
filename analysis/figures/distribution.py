"""How long steps were, all of them: a histogram per point about its median, and in numbers what lies beyond its edges.

And which rank the others wait for, and when: a row per rank, a column per few steps, what each needed beyond the median rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from hpcddp.analysis.figures.axis import EndLabel, end_labels, name_rows, short_hosts, write_beside
from hpcddp.analysis.figures.breakdown import TITLE_LETTERS, BarLayout, head_rows, lay_lines
from hpcddp.analysis.figures.colours import FAINT, FASTER, GRID, INK, MEAN, SLOWER, STEPS
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, entitle, mark_box, new_figure, pt
from hpcddp.analysis.runs.step_times import Bins, mean_ns, quantile_ns, shares_between
from hpcddp.analysis.util.wording import quantity, times
from hpcddp.analysis.verdicts.findings import bins_of
from hpcddp.core.text import count, thousands

MAX_ROWS = 16
ROW_MM = 7.0
AROUND_MM = 22.0

COLUMNS = 60
"""Of a histogram."""

TAIL = 0.005
"""Share of a point's steps that may lie beyond either edge."""

NARROWEST, WIDEST = 0.02, 2.0
"""How far the axis reaches on one side at least and at most, as a share of the median."""

HEADS = {"mean": 26.0, "99 %": 52.0, "max": 78.0, "warm-up": 118.0}
"""Beside a row -> where the numbers' column ends on the right, points at a type of 8 points."""

LOWEST = 0.06
"""Of the fullest column's height: one with few steps can be seen."""


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
            "steps": thousands(self.steps),
            "median": f"{quantity(self.median_s * 1e3)} ms",
            "mean": f"{quantity(self.mean * self.median_s * 1e3)} ms",
            "5–95 %": f"{times(self.low)}–{times(self.high)}",
            "99 %": times(self.p99),
            "longest": times(self.longest),
        }
        if self.warmup is not None:
            found["warm-up"] = f"{count(self.warmup_steps, 'step')}, median {times(self.warmup)}"
        return found


def distribution_figure(
    scaling: pd.DataFrame, steps: pd.DataFrame, names: dict[str, str], short: dict[str, str], style: Style = DEFAULT
) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, of which those in `steps` (rows of times_frame) are drawn from top to bottom."""
    edges, found = ridges(steps)
    layout = lay_lines(scaling.loc[list(found)], names, short, ROW_MM)
    steps_of = sorted(ridge.steps for ridge in found.values())
    note = f"Each row: {' to '.join(map(thousands, dict.fromkeys((steps_of[0], steps_of[-1]))))} timed steps of all its runs."
    with new_figure(style, AROUND_MM + ROW_MM * layout.height, 1, note) as (figure, (ax,)):
        for line in layout.bars:
            ridge = found[line.row.name]
            _ridge(ax, line.at, edges, ridge)
            mark_box(ax, (edges[0], edges[-1]), (line.at - 0.42, line.at + 0.5), {"layout": line.layout, **ridge.values})
        _axes(ax, layout, edges, found)
        head_rows(ax, style, "Steps, by", scaling.loc[list(found)], layout)
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
        warmup_shares=shares_between(warmup, edges * middle) if warmup else np.zeros(len(edges) - 1),
    )


def _ridge(ax: Axes, height: float, edges: NDArray[np.float64], ridge: Ridge) -> None:
    """The timed steps stand on the row's line, those of the warm-up hang below it; each as high as its fullest column."""
    for shares, up, colour in ((ridge.timed_shares, 0.72, STEPS["timed"]), (ridge.warmup_shares, -0.2, STEPS["warm-up"])):
        if shares.max() > 0:
            floor = height + 0.3
            heights = np.where(shares > 0, np.maximum(shares / shares.max(), LOWEST), 0)
            ax.stairs(floor - up * heights, edges, baseline=floor, fill=True, color=colour, linewidth=0)
    ax.plot(edges[[0, -1]], [height + 0.3] * 2, color=GRID, linewidth=pt(0.6), zorder=0)
    ax.plot([ridge.mean] * 2, [height + 0.3, height - 0.42], color=MEAN, linewidth=pt(1.4))
    warmup = "" if ridge.warmup is None else times(ridge.warmup)
    numbers = (times(ridge.mean), f"{ridge.p99:.2f}", times(ridge.longest), warmup)
    for text, (head, right) in zip(numbers, HEADS.items(), strict=True):
        write_beside(ax, text, height, (pt(right), 0), color=FAINT if head == "warm-up" else INK, ha="right")


def _axes(ax: Axes, layout: BarLayout, edges: NDArray[np.float64], found: Mapping[object, Ridge]) -> None:
    names = [f"{line.text}\n{quantity(found[line.row.name].median_s * 1e3)} ms" for line in layout.bars]
    name_rows(ax, [line.at for line in layout.bars], names, layout.height - 0.35, -0.95, linespacing=1.0)
    ax.set_xlim(edges[0], edges[-1])
    ax.axvline(1, color=FAINT, linewidth=pt(0.6), zorder=0)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_xlabel("step / median")
    for head, right in HEADS.items():
        write_beside(ax, head, -0.75, (pt(right), 0), color=MEAN if head == "mean" else FAINT, ha="right")


RANK_MM, LEAST_MM, MOST_MM = 1.6, 26.0, 84.0
MAP_MM = 30.0

LEAST_SCALE = 5.0
"""% of the step: what is less is pale, so that noise does not look like a finding."""

STANDS_OUT = 2.0
"""% of the step over the whole run, from which on a row is named: a straggler's least cost (verdicts/straggler.py)."""

NEARLY_ALWAYS = 0.8
"""Share of the columns in which it is slower: what comes and goes is noise, or another cause than the rank."""

MOST_NAMED = 3

COLOURS = LinearSegmentedColormap.from_list("over", [FASTER, "#f7f7f7", SLOWER])

NAME_MM = 3.4
"""Height of a name beside rows."""


def rank_map_figure(cells: pd.DataFrame, style: Style = DEFAULT) -> MarkedFigure:
    """`cells`: columns findings.RANKS_COLUMNS; a panel per run, all on the same scale."""
    panels = [panel for _, panel in cells.groupby("panel", sort=False)]
    height_mm = min(max(RANK_MM * (int(cells["row"].max()) + 1), LEAST_MM), MOST_MM)
    with new_figure(style, MAP_MM + height_mm, len(panels)) as (figure, axes):
        # single odd cells are beyond the scale
        most = max(LEAST_SCALE, float(np.quantile(cells["over_percent"].abs().astype(float), 0.98)))
        for ax, panel in zip(axes, panels, strict=True):
            entitle(ax, style, str(panel["panel"].iloc[0]), most=TITLE_LETTERS)
            _map_panel(ax, panel, most, height_mm / panel["row"].nunique())
        bar = figure.colorbar(axes[0].collections[0], ax=axes, location="bottom", aspect=40, pad=0.03, fraction=0.05)
        slowest = "\na row per host: its slowest rank" if cells["rank"].isna().any() else ""
        bar.set_label(f"own time beyond the median rank's, % of the step{slowest}")
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
        bar.outline.set_visible(False)
    return figure


def _map_panel(ax: Axes, panel: pd.DataFrame, most: float, row_mm: float) -> None:
    table = panel.pivot(index="row", columns="first_step", values="over_percent").astype(float)
    last = panel.iloc[-1]
    edges = [*map(int, table.columns), int(last["first_step"] + last["steps"])]
    rows = np.arange(len(table) + 1) - 0.5
    ax.pcolormesh(edges, rows, table, cmap=COLOURS, vmin=-most, vmax=most, linewidth=0, rasterized=True)
    for row, (_, cells) in enumerate(panel.groupby("row", sort=True)):
        mark_box(ax, (edges[0], edges[-1]), (row - 0.5, row + 0.5), _row_values(cells))
    ax.spines["bottom"].set_visible(False)
    found = host_blocks(panel)
    apart = math.ceil(NAME_MM / (row_mm * min(block.end - block.first for block in found)))
    short = short_hosts(panel["host"])
    names = [short.get(block.name, block.name) for block in found[::apart]]
    name_rows(ax, [block.middle for block in found[::apart]], names, len(table) - 0.5, -0.5)
    if apart == 1:
        for block in found[1:]:
            ax.axhline(block.first - 0.5, color="white", linewidth=pt(0.8))
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.set_xlabel("timed step")
    labels = [(each, short.get(each.block, each.block) if apart > 1 else "") for each in stand_out(panel)[:MOST_NAMED]]
    end_labels(ax, [EndLabel(each.middle, each.text(name), INK) for each, name in labels])


def _row_values(cells: pd.DataFrame) -> dict[str, str]:
    first, over = cells.iloc[0], cells["over_percent"].astype(float)
    worst = cells.iloc[int(over.argmax())]
    return {
        "rank": "the host's slowest" if pd.isna(first["rank"]) else str(first["rank"]),
        "host": str(first["host"]),
        "beyond the median rank": f"{over.median():+.1f} % of the step",
        "most": f"{worst['over_percent']:+.1f} %, from timed step {worst['first_step']} on",
    }


@dataclass(frozen=True)
class Block:
    """Rows of one host; or one rank where there is one host only."""

    name: str
    first: int
    end: int

    @property
    def middle(self) -> float:
        return (self.first + self.end - 1) / 2


def host_blocks(panel: pd.DataFrame) -> list[Block]:
    """From the first row to the last."""
    rows = panel.drop_duplicates("row")
    by_rank = rows["host"].nunique() == 1 and rows["rank"].notna().all()
    names = [f"rank {rank}" for rank in rows["rank"]] if by_rank else [str(host) for host in rows["host"]]
    runs = [(name, [i for i, _ in members]) for name, members in groupby(enumerate(names), lambda pair: pair[1])]
    return [Block(name, members[0], members[-1] + 1) for name, members in runs]


@dataclass(frozen=True)
class Slow:
    """A block, or a rank of one, that is slower than the median rank throughout."""

    middle: float
    block: str
    rank: int | None
    """None where it is all of the block."""
    percent: float

    def text(self, name: str = "") -> str:
        """`rank 5 +6 %`; `name`: of the whole block, where it does not stand beside it."""
        who = name if self.rank is None else f"rank {self.rank}"
        return f"{who} +{self.percent:.0f} %".strip()


def stand_out(panel: pd.DataFrame) -> list[Slow]:
    """The slowest first."""
    by_row = panel.groupby("row")["over_percent"]
    over = by_row.median().where(by_row.agg(lambda values: (values > 0).mean()) >= NEARLY_ALWAYS, 0.0)
    ranks = panel.drop_duplicates("row").set_index("row")["rank"]
    found = []
    for block in host_blocks(panel):
        slow = over.loc[block.first : block.end - 1]
        if (slow >= STANDS_OUT).all():
            found.append(Slow(block.middle, block.name, None, float(slow.median())))
        else:
            found += [Slow(float(row), block.name, int(ranks[row]), float(slow[row])) for row in slow.index[slow >= STANDS_OUT]]
    return sorted(found, key=lambda each: -each.percent)
