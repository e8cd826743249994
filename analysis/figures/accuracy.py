"""Accuracy of trainings against time, epochs and node hours, a thin line per run; and how much sooner larger sizes reach one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from hpcddp.analysis.figures.axis import (
    EndLabel,
    PointStyle,
    draw_spread,
    end_labels,
    evenly,
    log_axis,
    rate_axis,
    size_axis,
    tracks,
)
from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK, SIZES
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, entitle, in_column, mark_point, new_figure, pt
from hpcddp.analysis.study.effects import Ratios, spread_note, spreads
from hpcddp.analysis.study.series import differing, full_names, short_names
from hpcddp.analysis.util.wording import points, quantity, time_words, times, unit
from hpcddp.analysis.verdicts.findings import Findings

PANEL_MM = 62.0

AGAINST = {"train_s": "Training time", "epoch": "Epochs", "node_h": "Node hours"}
"""Column of epochs_frame -> what accuracy is drawn against."""

UNITS_S = (("s", 1.0, 300.0), ("min", 60.0, 3 * 3600.0), ("h", 3600.0, float("inf")))
"""Of an axis of time: name, seconds, and up to how many of them it is used."""

LEGEND_AT = (0.56, 0.42)
"""Of a figure: the upper left corner of the place that three panels in two columns leave free."""

LOWEST = 0.15
"""Quantile of all accuracies at which the axis begins: the first epochs' would press the others together."""

LEGEND_LETTERS = 34


def accuracy_figure(epochs: pd.DataFrame, names: Mapping[str, str], target: float | None, style: Style = DEFAULT) -> MarkedFigure:
    """`epochs`: evaluated rows of epochs_frame, each with its `point`; `names`: of points, as in the legend; `target`: of all."""
    styles = {point: (name, colour) for (point, name), colour in zip(names.items(), SIZES, strict=False)}
    with new_figure(style, PANEL_MM, len(AGAINST), "A line per run.") as (figure, axes):
        for ax, column in zip(axes, AGAINST, strict=True):
            _panel(ax, epochs, column, styles, target)
            entitle(ax, style, "", "Accuracy, %")
        handles = [
            Line2D([], [], color=colour, label="\n".join(in_column(name, LEGEND_LETTERS))) for name, colour in styles.values()
        ]
        if target is not None:
            handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=pt(0.9), label=f"{points(target)} %"))
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=LEGEND_AT, frameon=False, labelspacing=0.4)
    return figure


def _panel(ax: Axes, epochs: pd.DataFrame, column: str, styles: Mapping[str, tuple[str, str]], target: float | None) -> None:
    """`styles`: point -> name, colour."""
    unit_name, scale = ("", 1.0)
    if column == "train_s":
        unit_name, scale = next((name, seconds) for name, seconds, until in UNITS_S if epochs[column].max() <= until)
    for _, run in epochs.groupby(["point", "label", "run"], sort=False):
        name, colour = styles[str(run["point"].iloc[0])]
        ax.plot(run[column] / scale, 100 * run["accuracy"], color=colour, linewidth=pt(0.8), alpha=0.8, zorder=2)
        there = run[run["accuracy"] >= target] if target is not None else run[:0]
        end = there.iloc[0] if len(there) else run.iloc[-1]
        if len(there):
            ax.plot(end[column] / scale, 100 * end["accuracy"], "o", color=colour, markersize=pt(2.6), zorder=3)
        mark_point(ax, end[column] / scale, 100 * end["accuracy"], _values(end, name))
    if target is not None:
        ax.axhline(100 * target, color=INK, linestyle="--", linewidth=pt(0.9), zorder=1)
    low, high = 100 * float(epochs["accuracy"].quantile(LOWEST)), 100 * float(epochs["accuracy"].max())
    room = 0.05 * max(high - low, 1.0)
    ax.set_ylim(low - room, high + room)
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.grid(axis="y", color=GRID)
    ax.set_xlabel(f"{AGAINST[column]}, {unit_name}" if unit_name else AGAINST[column])
    shown = epochs.loc[100 * epochs["accuracy"] >= ax.get_ylim()[0], column] / scale
    if column == "epoch":
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    else:
        log_axis(ax, ax.xaxis, float(shown.min()) / 1.1, float(shown.max()) * 1.1, "{:g}".format)


def _values(row: Any, name: str) -> dict[str, str]:
    """What a run says when it is pointed at, where it reached the target, or ended."""
    return {
        "run": f"r{row['run']}, {name}",
        "accuracy": f"{points(row['accuracy'])} %",
        "epochs": str(row["epoch"]),
        "time": time_words(row["train_s"]),
        "node hours": quantity(row["node_h"]),
    }


def to_accuracy_figure(
    targets: pd.DataFrame, names: Mapping[str, str], epochs: pd.DataFrame, style: Style = DEFAULT
) -> MarkedFigure:
    """`targets`: rows of targets_frame of series with a baseline and a larger size; a panel each. `epochs`: evaluated rows of
    epochs_frame.
    """
    series = [group for _, group in targets.groupby("series", sort=False)]
    ratios = _time_ratios(targets, epochs)
    drawn = [spread for group in series for spread in spreads(group, f"speedup_{base_of(group)}", ratios)]
    note = spread_note(drawn, "the ratio of medians", "the baseline's median time over each run's")
    with new_figure(style, PANEL_MM, len(series), note) as (figure, axes):
        labels = [_speedups(ax, group, ratios) for ax, group in zip(axes, series, strict=True)]
        for ax, group, texts in zip(axes, series, labels, strict=True):
            low, high = ax.get_ylim()
            rate_axis(ax, low, high, "{:g}".format)
            name = names.get(str(group["series"].iloc[0]), "") if len(series) > 1 else ""
            base = unit(group["device"].iloc[0]) if base_of(group) == "1gpu" else "node"
            entitle(ax, style, name, f"Speedup over one {base}")
            end_labels(ax, texts)
    return figure


def base_of(series: pd.DataFrame) -> str | None:
    """The baseline of a series' speedups that has a larger size beside it: one GPU, else one node; None without any."""
    return next((base for base in ("1gpu", "1node") if series[f"speedup_{base}"].notna().sum() > 1), None)


def _speedups(ax: Axes, series: pd.DataFrame, ratios: Ratios) -> list[EndLabel]:
    base = str(base_of(series))
    known, colour = series[series[f"speedup_{base}"].notna()], BASELINES[base]
    speedups, rates, gpus = known[f"speedup_{base}"], known[f"throughput_{base}"], known["gpus"]
    ideal = gpus.iloc[-1] / gpus.iloc[0]
    ax.plot([gpus.iloc[0], gpus.iloc[-1]], [1, ideal], "--", color=FAINT, linewidth=pt(0.9), zorder=1)
    for line in tracks(known):
        for column, of in ((f"throughput_{base}", INK), (f"speedup_{base}", colour)):
            ax.plot(line["gpus"], line[column], color=of, zorder=2)
    ax.plot(gpus, rates, "o", color=INK, zorder=3)
    for spread, (_, row) in zip(spreads(known, f"speedup_{base}", ratios), known.iterrows(), strict=True):
        draw_spread(ax, spread, PointStyle(colour, "s"))
        mark_point(ax, spread.x, spread.middle, _speedup_values(row, base))
    ax.set_yscale("log")
    ax.set_ylim(min(0.9, 0.9 * speedups.min()), 1.15 * max(ideal, rates.max()))
    size_axis(ax, series)
    target = f"to {points(known['target'].iloc[-1])} %"
    ends_at = ((ideal, "ideal", FAINT), (rates.iloc[-1], "samples/s", INK), (speedups.iloc[-1], target, colour))
    return [EndLabel(y, text, of) for y, text, of in ends_at if pd.notna(y)]


def _time_ratios(targets: pd.DataFrame, epochs: pd.DataFrame) -> Ratios:
    """Of each size its median time to the target by that of each run that reached it."""
    at = ["series", "nodes", "gpus_per_node"]
    both = epochs.merge(targets[[*at, "target", "train_s"]], on=at, suffixes=("", "_median"))
    first = both[both["accuracy"] >= both["target"]].groupby([*at, "label", "run"])[["train_s", "train_s_median"]].min()
    ratios = (first["train_s_median"] / first["train_s"]).dropna()
    return {point: list(map(float, group)) for point, group in ratios.groupby(level=at)}  # type: ignore[misc]


def _speedup_values(row: Any, base: str) -> dict[str, str]:
    values = {
        "nodes": f"{row['nodes']} × {row['gpus_per_node']} {unit(row['device'])}s",
        "time": time_words(row["train_s"]),
        "epochs": f"{row['epochs']:g}",
        "speedup": f"{times(row[f'speedup_{base}'])}×",
    }
    rate = row[f"throughput_{base}"]
    return values | ({} if pd.isna(rate) else {"samples/s": f"{times(rate)}×"}) | {"reached": f"{row['reached']} of {row['n']}"}


def point_names(epochs: pd.DataFrame, apart: Mapping[str, str]) -> dict[str, str]:
    """Point -> `2 x 4 GPUs, batch/GPU 64`."""
    found = {}
    for _, row in epochs.drop_duplicates("point").iterrows():
        each = unit(row["device"])
        size = f"{row['nodes']} x {row['gpus_per_node']} {each}s" if row["gpus"] > 1 else f"1 {each}"
        found[str(row["point"])] = ", ".join(filter(None, [size, apart.get(str(row["series"]), "")]))
    return found


MAX_PANELS = 4
"""Series in the figure of speedups; the table has them all."""


def training_drawings(found: Findings, style: Style = DEFAULT) -> tuple[dict[str, Callable[[], MarkedFigure]], list[str]]:
    """Figures by name, and notes on what they leave out; none without evaluated epochs."""
    epochs, targets, apart = found.epochs, found.targets, found.shown_apart
    figures: dict[str, Callable[[], MarkedFigure]] = {}
    notes = []
    evaluated = epochs[epochs["accuracy"].notna() & epochs["series"].isin(list(apart))]
    if len(evaluated):
        evaluated = _with_points(evaluated)
        every = point_names(evaluated, short_names(differing(evaluated["series"].unique())))
        names = dict(evenly(list(every.items()), len(SIZES)))
        shown = evaluated[evaluated["point"].isin(list(names))]
        aims = set(targets["target"].dropna())
        figures["accuracy"] = partial(accuracy_figure, shown, names, aims.pop() if len(aims) == 1 else None, style)
        if len(every) > len(names):
            notes.append(
                f"figures/accuracy.png shows {len(names)} of {len(every)} points; with `--to csv`, epochs.csv has them all"
            )
    wide = [group for _, group in targets.groupby("series", sort=False) if base_of(group) is not None]
    if wide:
        figures["to_accuracy"] = partial(to_accuracy_figure, pd.concat(wide[:MAX_PANELS]), full_names(apart), evaluated, style)
    if len(wide) > MAX_PANELS:
        shown_of = f"{MAX_PANELS} of {len(wide)} series"
        notes.append(f"figures/to_accuracy.png shows {shown_of}; with `--to csv`, to_accuracy.csv has them all")
    return figures, notes


def _with_points(epochs: pd.DataFrame) -> pd.DataFrame:
    """Series in the order in which they come, their sizes from the smallest; `point`: which one a row is of."""
    ordered = epochs.assign(place=pd.factorize(epochs["series"])[0])
    ordered["point"] = ordered[["place", "gpus", "nodes"]].astype(str).agg(" ".join, axis=1)
    return ordered.sort_values(["place", "gpus", "nodes", "label", "run", "epoch"], kind="stable")
