"""The x axis of scaling figures: GPUs on a logarithmic scale, with the nodes they make on a second line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from hpcddp.analysis.wording import unit

TICK_PT = 3.5
LABEL_PAD = 3.0
"""Points between a tick and its label."""


def size_axis(ax: Axes, points: pd.DataFrame, also: Iterable[int] = ()) -> None:
    """Ticks at 1, 2, 4, 8, ... GPUs, below each its number of nodes; sizes in `also` are within the axis too."""
    sizes = sorted({*map(int, points["ranks"]), *map(int, also)})
    ticks = size_ticks(sizes)
    gpus = f"{unit(points['device'].iloc[0])}s"
    ax.set_xscale("log", base=2)
    ax.set_xlim(sizes[0] / 1.15, sizes[-1] * 1.15)
    ax.xaxis.set_major_locator(FixedLocator([float(tick) for tick in ticks]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.tick_params(axis="x", pad=LABEL_PAD, length=TICK_PT)
    if (points["nodes"] == 1).all():
        ax.set_xticklabels([str(tick) for tick in ticks])
        ax.set_xlabel(f"{gpus} of one node")
        return
    ax.set_xticklabels([f"{tick}\n{nodes_at(points, tick)}" for tick in ticks])
    _name_lines(ax, f"{gpus}\nnodes")


def size_ticks(sizes: Sequence[int]) -> list[int]:
    """Powers of two in the range where most sizes are ones, else the sizes themselves."""
    powers = [2**k for k in range(math.ceil(math.log2(sizes[0])), math.floor(math.log2(sizes[-1])) + 1)]
    return powers if 2 * len(set(sizes) & set(powers)) >= len(sizes) else list(sizes)


def nodes_at(points: pd.DataFrame, ranks: int) -> str:
    """The nodes of the points of that size: `4`, `1-4` where layouts differ, nothing where there is none."""
    nodes = points.loc[points["ranks"] == ranks, "nodes"]
    if nodes.empty:
        return ""
    return str(nodes.min()) if nodes.min() == nodes.max() else f"{nodes.min()}-{nodes.max()}"


def _name_lines(ax: Axes, names: str) -> None:
    """What each line of tick labels counts, to their left at the same height."""
    ax.annotate(
        names,
        xy=(0, 0),
        xycoords="axes fraction",
        xytext=(-LABEL_PAD - TICK_PT, -LABEL_PAD - TICK_PT),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
    )
