"""Which rank the others wait for, and when: a row per rank, a column per few steps, what each needed beyond the median rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hpcddp.analysis.figures.axis import EndLabel, end_labels, short_hosts
from hpcddp.analysis.figures.colours import FASTER, INK, SLOWER
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, entitle, mark_box, new_figure, pt

ROW_MM, LEAST_MM, MOST_MM = 1.6, 26.0, 84.0
AROUND_MM = 30.0

LEAST_SCALE = 5.0
"""% of the step: what is less is pale, so that noise does not look like a finding."""

STANDS_OUT = 2.0
"""% of the step over the whole run, from which on a row is named: a straggler's least cost (verdicts/straggler.py)."""

NEARLY_ALWAYS = 0.8
"""Share of the columns in which it is slower: what comes and goes is noise, or another cause than the rank."""

MOST_NAMED = 3

COLOURS = LinearSegmentedColormap.from_list("over", [FASTER, "#f7f7f7", SLOWER])

TITLE_LETTERS = 34
NAME_MM = 3.4
"""Height of a name beside rows."""


def rank_map_figure(cells: pd.DataFrame, style: Style = DEFAULT) -> MarkedFigure:
    """`cells`: columns findings.RANKS_COLUMNS; a panel per run, all on the same scale."""
    panels = [panel for _, panel in cells.groupby("panel", sort=False)]
    height_mm = min(max(ROW_MM * (int(cells["row"].max()) + 1), LEAST_MM), MOST_MM)
    with new_figure(style, AROUND_MM + height_mm, len(panels)) as (figure, axes):
        most = colour_scale(cells)
        for ax, panel in zip(axes, panels, strict=True):
            entitle(ax, style, str(panel["panel"].iloc[0]), most=TITLE_LETTERS)
            _panel(ax, panel, most, height_mm / panel["row"].nunique())
        bar = figure.colorbar(axes[0].collections[0], ax=axes, location="bottom", aspect=40, pad=0.03, fraction=0.05)
        bar.set_label("own time beyond the median rank's, % of the step")
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
        bar.outline.set_visible(False)
    return figure


def colour_scale(cells: pd.DataFrame) -> float:
    """% of the step at which a colour is full, on either side: single odd cells are beyond it."""
    return max(LEAST_SCALE, float(np.quantile(cells["over_percent"].abs().astype(float), 0.98)))


def _panel(ax: Axes, panel: pd.DataFrame, most: float, row_mm: float) -> None:
    table = panel.pivot(index="row", columns="first_step", values="over_percent").astype(float)
    last = panel.iloc[-1]
    edges = [*map(int, table.columns), int(last["first_step"] + last["steps"])]
    rows = np.arange(len(table) + 1) - 0.5
    ax.pcolormesh(edges, rows, table, cmap=COLOURS, vmin=-most, vmax=most, linewidth=0, rasterized=True)
    for row, (_, cells) in enumerate(panel.groupby("row", sort=True)):
        mark_box(ax, (edges[0], edges[-1]), (row - 0.5, row + 0.5), _values(cells))
    ax.set_ylim(len(table) - 0.5, -0.5)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    found = host_blocks(panel)
    apart = math.ceil(NAME_MM / (row_mm * min(block.end - block.first for block in found)))
    short = short_hosts(panel["host"])
    ax.set_yticks([block.middle for block in found[::apart]], [short.get(block.name, block.name) for block in found[::apart]])
    ax.tick_params(axis="y", length=0)
    if apart == 1:
        for block in found[1:]:
            ax.axhline(block.first - 0.5, color="white", linewidth=pt(0.8))
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.set_xlabel("timed step")
    labels = [(each, short.get(each.block, each.block) if apart > 1 else "") for each in stand_out(panel)[:MOST_NAMED]]
    end_labels(ax, [EndLabel(each.middle, each.text(name), INK) for each, name in labels])


def _values(cells: pd.DataFrame) -> dict[str, str]:
    """What a row says when it is pointed at."""
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
