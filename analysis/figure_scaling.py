"""Throughput against GPUs, with what it would be if it scaled perfectly from the named baselines."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from hpcddp.analysis.axis import size_axis
from hpcddp.analysis.colours import BASELINES, GRID, INK
from hpcddp.analysis.labels import EndLabel, end_labels
from hpcddp.analysis.style import look, new_figure
from hpcddp.analysis.tracks import HOLLOW, by_marker, marker_legend, tracks
from hpcddp.analysis.wording import quantity, unit

PANEL_MM = 66.0


def scaling_figure(scaling: pd.DataFrame, names: dict[str, str], rejected: pd.DataFrame) -> Figure:
    """`scaling`: rows of scaling_frame, a panel per series, all on the same scale; `rejected`: runs drawn hollow."""
    with look():
        series = [group for _, group in scaling.groupby("series", sort=False)]
        figure, axes = new_figure(PANEL_MM, len(series))
        labels = [_panel(ax, points, rejected) for ax, points in zip(axes, series, strict=True)]
        lowest, highest = min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes)
        for ax, points, texts in zip(axes, series, labels, strict=True):
            _throughput_axis(ax, lowest, highest)
            name = names[points["series"].iloc[0]] if len(series) > 1 else ""
            ax.set_title("\n".join(filter(None, [name, "Throughput, samples/s"])))
            end_labels(ax, texts)
    return figure


def _panel(ax: Axes, points: pd.DataFrame, rejected: pd.DataFrame) -> list[EndLabel]:
    """Draws everything but the labels, which wait for the final limits."""
    rejected = rejected[rejected["series"] == points["series"].iloc[0]]
    ax.plot(rejected["ranks"], rejected["samples_per_s"], linestyle="", zorder=4, **HOLLOW)
    ideals = _ideals(ax, points)
    _measured(ax, points)
    marker_legend(ax, points, "lower right", hollow="rejected" if len(rejected) else "")
    size_axis(ax, points, also=rejected["ranks"])
    ax.set_yscale("log")
    return [*ideals, EndLabel(points["samples_per_s"].iloc[-1], "measured", INK)]


def _measured(ax: Axes, points: pd.DataFrame) -> None:
    """Points, their spread and the lines between them."""
    for line in tracks(points):
        ax.plot(line["ranks"], line["samples_per_s"], color=INK, zorder=2)
    for marker, group in by_marker(points):
        middle = group["samples_per_s"]
        below, above = middle - group["samples_per_s_low"], group["samples_per_s_high"] - middle
        errors = [below.fillna(0).astype(float), above.fillna(0).astype(float)]
        ax.errorbar(group["ranks"], middle, errors, fmt=marker, color=INK, elinewidth=1, capsize=2.5, capthick=0.8, zorder=3)


def _ideals(ax: Axes, points: pd.DataFrame) -> list[EndLabel]:
    """Dashed lines of slope one from the baselines to the largest size, where there is anything above them."""
    gpu, node = unit(points["device"].iloc[0]), points["full_node_gpus"].iloc[0]
    bases = {"1gpu": (1, f"ideal from 1 {gpu}"), **({"1node": (node, "ideal from 1 node")} if node > 1 else {})}
    largest = points["ranks"].max()
    labels = []
    for baseline, (gpus, text) in bases.items():
        base = points[(points["nodes"] == 1) & (points["gpus_per_node"] == gpus)]
        if base.empty or gpus == largest:
            continue
        rate = base["samples_per_s"].iloc[0]
        ax.plot([gpus, largest], [rate, rate * largest / gpus], "--", color=BASELINES[baseline], linewidth=0.9, zorder=1)
        labels.append(EndLabel(rate * largest / gpus, text, BASELINES[baseline]))
    return labels


def _throughput_axis(ax: Axes, lowest: float, highest: float) -> None:
    """Logarithmic, with ticks close enough for the range."""
    ax.set_ylim(lowest, highest)
    steps = (1.0, 2.0, 5.0) if highest / lowest > 12 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    ax.yaxis.set_major_locator(LogLocator(base=10, subs=steps))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: quantity(value)))
    ax.grid(axis="y", color=GRID)
