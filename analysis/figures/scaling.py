"""Throughput against GPUs, with what it would be if it scaled perfectly from the named baselines."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from hpcddp.analysis.figures.axis import rate_axis, size_axis
from hpcddp.analysis.figures.colours import BASELINES, INK
from hpcddp.analysis.figures.labels import EndLabel, end_labels
from hpcddp.analysis.figures.marks import MarkedFigure, mark_point
from hpcddp.analysis.figures.overlay import draw_overlay, legend_entries, legend_mm, overlay_legend
from hpcddp.analysis.figures.series_lines import by_marker, hollow, ideals, marker_legend, point_values, tracks, whiskers
from hpcddp.analysis.figures.style import DEFAULT, Style, entitle, letters, new_figure, pt
from hpcddp.analysis.util.wording import quantity

PANEL_MM = 66.0


def scaling_figure(
    scaling: pd.DataFrame,
    names: dict[str, str],
    rejected: pd.DataFrame,
    overlay: pd.DataFrame | None = None,
    style: Style = DEFAULT,
) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, a panel per series, all on the same scale; `rejected`: runs drawn hollow.

    `overlay`: published points of references.overlay, drawn in every panel of GPUs with their sources below.
    """
    series = [group for _, group in scaling.groupby("series", sort=False)]
    also = overlay if overlay is not None and len(overlay) and (scaling["device"] != "cpu").all() else None
    beyond = also is not None and any(not _reaches(points, also) for points in series)
    entries = [] if also is None else legend_entries(also, letters(style, len(series)), measured=beyond)
    with new_figure(style, PANEL_MM, len(series), legend_mm(entries)) as (figure, axes):
        labels = [_panel(ax, points, rejected, also) for ax, points in zip(axes, series, strict=True)]
        overlay_legend(figure, entries)
        lowest, highest = min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes)
        for ax, points, texts in zip(axes, series, labels, strict=True):
            rate_axis(ax, lowest, highest, quantity)
            name = names[points["series"].iloc[0]] if len(series) > 1 else ""
            entitle(ax, style, name, "Throughput, samples/s")
            end_labels(ax, texts)
    return figure


def _panel(ax: Axes, points: pd.DataFrame, rejected: pd.DataFrame, overlay: pd.DataFrame | None) -> list[EndLabel]:
    """Draws everything but the labels, which wait for the final limits."""
    if overlay is not None:
        draw_overlay(ax, overlay)
    rejected = rejected[rejected["series"] == points["series"].iloc[0]]
    ax.plot(rejected["gpus"], rejected["samples_per_s"], linestyle="", zorder=4, **hollow())
    for _, run in rejected.iterrows():
        values = {"rejected": f"r{run['run']} of {run['label']}", "reason": str(run["reason"])}
        mark_point(ax, run["gpus"], run["samples_per_s"], values)
    published = [] if overlay is None else list(overlay["gpus"])
    ideals = _ideals(ax, points, max([points["gpus"].max(), *published]))
    _measured(ax, points)
    marker_legend(ax, points, "lower right", odd="rejected" if len(rejected) else "")
    size_axis(ax, points, also=[*rejected["gpus"], *published])
    ax.set_yscale("log")
    if overlay is not None and not _reaches(points, overlay):
        return ideals  # the name would stand beside what others published: it is in the legend
    return [*ideals, EndLabel(points["samples_per_s"].iloc[-1], "measured", INK)]


def _reaches(points: pd.DataFrame, overlay: pd.DataFrame) -> bool:
    """Whether one's own points end at the right edge."""
    return bool(points["gpus"].max() >= overlay["gpus"].max())


def _measured(ax: Axes, points: pd.DataFrame) -> None:
    """Points, their spread and the lines between them."""
    for line in tracks(points):
        ax.plot(line["gpus"], line["samples_per_s"], color=INK, zorder=2)
    for marker, group in by_marker(points):
        middle = group["samples_per_s"]
        below, above = middle - group["samples_per_s_low"], group["samples_per_s_high"] - middle
        errors = [below.fillna(0).astype(float), above.fillna(0).astype(float)]
        ax.errorbar(group["gpus"], middle, errors, fmt=marker, color=INK, zorder=3, **whiskers())
        for _, row in group.iterrows():
            mark_point(ax, row["gpus"], row["samples_per_s"], point_values(row))


def _ideals(ax: Axes, points: pd.DataFrame, largest: int) -> list[EndLabel]:
    """Dashed lines to the largest size shown."""
    labels = []
    for baseline, text, ends in ideals(points, largest):
        ax.plot(*zip(*ends, strict=True), "--", color=BASELINES[baseline], linewidth=pt(0.9), zorder=1)
        labels.append(EndLabel(ends[-1][1], text, BASELINES[baseline]))
    return labels
