"""Efficiency against one GPU and against one full node in one panel: neither can be shown without the other."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from hpcddp.analysis.figures.axis import percent_ticks, size_axis
from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK
from hpcddp.analysis.figures.labels import EndLabel, end_labels
from hpcddp.analysis.figures.marks import MarkedFigure, mark_point
from hpcddp.analysis.figures.series_lines import by_marker, marker_legend, point_values, tracks, whiskers
from hpcddp.analysis.figures.style import DEFAULT, Style, entitle, new_figure, pt
from hpcddp.analysis.util.wording import percent, unit
from hpcddp.analysis.verdicts.context import data_wait

PANEL_MM = 56.0


def efficiency_figure(scaling: pd.DataFrame, names: dict[str, str], style: Style = DEFAULT) -> MarkedFigure:
    """`scaling`: rows of scaling_frame; a panel per series."""
    series = [group for _, group in scaling.groupby("series", sort=False)]
    with new_figure(style, PANEL_MM, len(series)) as (figure, axes):
        for ax, points in zip(axes, series, strict=True):
            name = names[points["series"].iloc[0]] if len(series) > 1 else ""
            entitle(ax, style, name, "Efficiency, %")
            _panel(ax, points)
    return figure


def _panel(ax: Axes, points: pd.DataFrame) -> None:
    gpu, node = unit(points["device"].iloc[0]), points["full_node_gpus"].iloc[0]
    against = {"1gpu": f"vs 1 {gpu}", **({"1node": "vs 1 node"} if node > 1 else {})}
    labels = [label for baseline, text in against.items() for label in _lines(ax, points, baseline, text)]
    if labels and (waits := data_wait(points.iloc[-1])) is not None:
        labels.append(EndLabel(min(label.y for label in labels), f"({percent(waits)} data wait)", INK))
    ax.axhline(100, color=FAINT, linestyle="--", linewidth=pt(0.9), zorder=1)
    ax.set_ylim(0, max(106, ax.dataLim.y1 * 1.04))
    ax.set_yticks(percent_ticks(ax.get_ylim()[1]))
    ax.grid(axis="y", color=GRID)
    marker_legend(ax, points, "lower left")
    size_axis(ax, points)
    end_labels(ax, labels)


def _lines(ax: Axes, points: pd.DataFrame, baseline: str, text: str) -> list[EndLabel]:
    """Draws efficiency against one baseline with its interval and labels its largest point; nothing where that baseline has no
    other point.
    """
    known = points.dropna(subset=[f"efficiency_{baseline}"])
    if len(known) < 2:
        return []
    share = known[f"efficiency_{baseline}"] * 100
    colour = BASELINES[baseline]
    for line in tracks(known):
        ax.plot(line["gpus"], share[line.index], color=colour, zorder=2)
    for marker, group in by_marker(points):
        there = group.index.intersection(known.index)
        rows = known.loc[there]
        below, above = (share[there] - rows[f"efficiency_{baseline}_{end}"] * 100 for end in ("low", "high"))
        errors = [below.fillna(0).astype(float), -above.fillna(0).astype(float)]
        ax.errorbar(rows["gpus"], share[there], errors, fmt=marker, color=colour, zorder=3, **whiskers())
        for _, row in rows.iterrows():
            mark_point(ax, row["gpus"], row[f"efficiency_{baseline}"] * 100, point_values(row))
    return [EndLabel(share.iloc[-1], f"{percent(share.iloc[-1] / 100)} {text}", colour)]
