"""Throughput against GPUs beside perfect scaling, with published points where asked for; efficiency against the named baselines.

Published points are filled where they may be trusted, hollow with a caveat, crossed out where rejected. Efficiency against one
GPU and one full node is in one panel: neither can be shown without the other.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hpcddp.analysis.figures.axis import EndLabel, end_labels, percent_ticks, rate_axis, size_axis
from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK
from hpcddp.analysis.figures.series_lines import by_marker, hollow, ideals, marker_legend, point_values, tracks, whiskers
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, entitle, letters, mark_point, new_figure, pt
from hpcddp.analysis.util.wording import percent, quantity, unit
from hpcddp.analysis.verdicts.context import data_wait

PANEL_MM, EFFICIENCY_MM = 66.0, 56.0


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


def efficiency_figure(scaling: pd.DataFrame, names: dict[str, str], style: Style = DEFAULT) -> MarkedFigure:
    """`scaling`: rows of scaling_frame; a panel per series."""
    series = [group for _, group in scaling.groupby("series", sort=False)]
    with new_figure(style, EFFICIENCY_MM, len(series)) as (figure, axes):
        for ax, points in zip(axes, series, strict=True):
            name = names[points["series"].iloc[0]] if len(series) > 1 else ""
            entitle(ax, style, name, "Efficiency, %")
            _efficiency_panel(ax, points)
    return figure


def _efficiency_panel(ax: Axes, points: pd.DataFrame) -> None:
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


MARKERS = ("D", "s", "^", "v", "P", "X")
COLOURS = ("#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A3600", "#8a8a8a")
"""Okabe and Ito's that the figure's own lines do not use, in the order of the names asked for."""

DOUBTS = {"caveat": "hollow: published with a caveat", "reject": "x: rejected"}

LINE_MM = 4.0
"""Height that a line of the legend takes, its space included."""

Entry = tuple[str, dict[str, Any]]
"""Of the legend: text, and what the mark looks like."""


def draw_overlay(ax: Axes, overlay: pd.DataFrame) -> None:
    """The points, name by name, behind one's own; points of one source at growing sizes are not joined: they are not a run."""
    for marker, colour, points in _styled(overlay):
        for quality, group in points.groupby("quality"):
            symbol = _symbol(marker, colour, str(quality))
            ax.plot(group["gpus"], group["samples_per_s"], zorder=1.5, markeredgewidth=pt(0.9), **symbol)
            for _, row in group.iterrows():
                values = {"published": row["label"], "GPUs": str(row["gpus"]), "samples/s": quantity(row["samples_per_s"])}
                doubt = {} if quality == "ok" else {"quality": str(quality)}
                mark_point(ax, row["gpus"], row["samples_per_s"], values | doubt)


def overlay_legend(figure: Figure, entries: Sequence[Entry]) -> None:
    """Below the panels: whose each mark is, with its source."""
    handles = [Line2D([], [], label=text, markeredgewidth=pt(0.9), **symbol) for text, symbol in entries]
    if handles:
        figure.legend(
            handles=handles, loc="outside lower left", frameon=False, handletextpad=0.6, labelspacing=0.3, borderpad=0.1
        )


def legend_entries(overlay: pd.DataFrame, letters: int, measured: bool) -> list[Entry]:
    """In lines of so many letters; `measured`: one's own too."""
    entries: list[Entry] = [("measured", {"marker": "o", "color": INK})] if measured else []
    for marker, colour, points in _styled(overlay):
        first = points.iloc[0]
        lines = textwrap.wrap(f"{first['name']}: {first['label']}", letters, break_on_hyphens=False)
        best = str(min(points["quality"], key=("ok", "caveat", "reject").index))
        lines += textwrap.wrap(first["cite"], letters, break_on_hyphens=False)
        entries.append(("\n".join(lines), _symbol(marker, colour, best)))
    words = "; ".join(text for quality, text in DOUBTS.items() if quality in set(overlay["quality"]))
    return [*entries, *([(words, {"linestyle": ""})] if words else [])]


def legend_mm(entries: Sequence[Entry]) -> float:
    """The height it takes."""
    return LINE_MM * sum(text.count("\n") + 1 for text, _ in entries)


def _styled(overlay: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    names = overlay.groupby("name", sort=False)
    return [(MARKERS[i % len(MARKERS)], COLOURS[i % len(COLOURS)], group) for i, (_, group) in enumerate(names)]


def _symbol(marker: str, colour: str, quality: str) -> dict[str, Any]:
    crossed = quality == "reject"
    return {
        "linestyle": "",
        "marker": "x" if crossed else marker,
        "color": colour,
        "markerfacecolor": colour if quality == "ok" else "white",
    }
