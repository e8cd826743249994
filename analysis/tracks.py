"""Lines through a series' points: more GPUs in one node, and more nodes with the same GPUs each; a marker per GPUs per node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hpcddp.analysis.colours import FAINT

MARKERS = "os^Dv"
"""For the most GPUs per node, the next, and so on."""

HOLLOW: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": FAINT, "markeredgewidth": 0.8}
"""How what does not count is drawn."""


def tracks(points: pd.DataFrame) -> list[pd.DataFrame]:
    """The points of each line in order; the last line is that of the most GPUs per node."""
    within = points[points["nodes"] == 1].sort_values("ranks")
    across = [group.sort_values("nodes") for _, group in points.groupby("gpus_per_node") if group["nodes"].nunique() > 1]
    lines = [*([within] if len(within) > 1 else []), *across]
    return lines or [points.sort_values(["ranks", "nodes"])]


def is_product(points: pd.DataFrame) -> bool:
    """Whether several numbers of GPUs per node were used on more than one node, so that markers must tell them apart."""
    return bool(points.loc[points["nodes"] > 1, "gpus_per_node"].nunique() > 1)


def by_marker(points: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(marker, points): one marker for all, or one per GPUs per node of a product."""
    if not is_product(points):
        yield MARKERS[0], points
        return
    for i, each in enumerate(sorted(points["gpus_per_node"].unique(), reverse=True)):
        yield MARKERS[i % len(MARKERS)], points[points["gpus_per_node"] == each]


def marker_legend(ax: Axes, points: pd.DataFrame, loc: Literal["lower left", "lower right"], hollow: str = "") -> None:
    """Which marker stands for how many GPUs per node, and what hollow ones are; nothing where neither needs saying."""
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=FAINT, label=f"{group['gpus_per_node'].iloc[0]} per node")
        for marker, group in (by_marker(points) if is_product(points) else ())
    ]
    if hollow:
        handles.append(Line2D([], [], linestyle="", label=hollow, **HOLLOW))
    if handles:
        ax.legend(handles=handles, loc=loc, frameon=False, handletextpad=0.1, labelspacing=0.2, borderpad=0.1)
