"""Bus bandwidth against message size, a panel per layout: each collective alone, buckets of gradients, and the fabric's limit."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from hpcddp.analysis.figures.axis import EndLabel, end_labels, evenly, label_ticks, rate_axis
from hpcddp.analysis.figures.colours import COLLECTIVES, FAINT, TRAINED
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, entitle, mark_point, new_figure, pt
from hpcddp.analysis.study.comm_bench import OPS
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.text import message_size

PANEL_MM = 66.0
TICKS = tuple(2**power for power in range(10, 31, 5))
"""1 KiB, 32 KiB, 1 MiB, 32 MiB, 1 GiB."""

SMALLEST, LARGEST = TICKS[0] / 1.5, TICKS[-1] * 1.5
"""Bytes at the axis's ends."""

MAX_PANELS = 6

KINDS = {"bucket": ("gradients", "bucket"), "together": ("gradients (mean)", "buckets, mean size")}
"""Kind of trained_frame -> in words, and what a mark is."""


@dataclass(frozen=True)
class Panel:
    """One layout; either table may have no rows."""

    layout: str
    sizes: pd.DataFrame
    trained: pd.DataFrame

    @property
    def limit(self) -> float | None:
        """GB/s"""
        found = (self.sizes if len(self.sizes) else self.trained)["limit_bytes_per_s"].iloc[0]
        return None if pd.isna(found) else float(found) / 1e9


def panels(sizes: pd.DataFrame, trained: pd.DataFrame) -> tuple[list[Panel], str | None]:
    """Rows of comm_frame and of trained_frame by layout, from the first to the last of many, and a note where some are left out.

    Without a benchmark the layouts whose buckets have bandwidths of their own, and anything to be compared with: a limit or
    another size.
    """
    sizes = sizes[sizes["busbw_bytes_per_s"] > 0]
    trained = trained[trained["bytes"].between(SMALLEST, LARGEST) & (trained["busbw_bytes_per_s"] > 0)]
    if len(sizes):
        found = [_benched(group, trained) for _, group in sizes.groupby("label", sort=False)]
    else:
        own = trained[trained["kind"] == "bucket"]
        own = own[own["limit_bytes_per_s"].notna() | (own.groupby("layout")["bytes"].transform("nunique") > 1)]
        found = [Panel(str(layout), sizes, group) for layout, group in own.groupby("layout", sort=False)]
    fewer = f"the figure of collectives shows {MAX_PANELS} of {len(found)} layouts" if len(found) > MAX_PANELS else None
    return evenly(found, MAX_PANELS), fewer


def _benched(group: pd.DataFrame, trained: pd.DataFrame) -> Panel:
    first = group.iloc[0]
    same = (trained["nodes"] == first["nodes"]) & (trained["gpus_per_node"] == first["gpus_per_node"])
    same &= trained["gpu"].fillna("") == ("" if pd.isna(first["gpu"]) else first["gpu"])
    return Panel(str(first["layout"]), group, trained[same])


def comm_figure(shown: list[Panel], style: Style = DEFAULT) -> MarkedFigure:
    """All panels on the same scales, so that layouts can be compared."""
    tables = [table for each in shown for table in (each.sizes, each.trained)]
    rates = [float(rate) / 1e9 for table in tables for rate in table["busbw_bytes_per_s"]]
    rates += [each.limit for each in shown if each.limit is not None]
    note = "Points: medians over batches of calls." if any(len(each.sizes) for each in shown) else ""
    with new_figure(style, PANEL_MM, len(shown), note) as (figure, axes):
        for ax, each in zip(axes, shown, strict=True):
            ax.set_xscale("log", base=2)
            ax.set_xlim(SMALLEST, LARGEST)
            label_ticks(ax, {tick: message_size(tick) for tick in TICKS})
            ax.set_xlabel("message size")
            rate_axis(ax, min(rates) / 1.3, max(rates) * 1.3, "{:g}".format)
            unknown = " (limit unknown)" if each.limit is None else ""
            entitle(ax, style, each.layout, f"Bus bandwidth, GB/s{unknown}")
            labels = [_line(ax, op, each.sizes[each.sizes["op"] == op]) for op in OPS if (each.sizes["op"] == op).any()]
            if each.limit is not None:
                ax.axhline(each.limit, color=FAINT, linestyle="--", linewidth=pt(0.9), zorder=1)
                labels.append(EndLabel(each.limit, f"fabric {quantity(each.limit)}", FAINT))
            end_labels(ax, [*labels, *_trained(ax, each.trained)])
    return figure


def _line(ax: Axes, op: str, points: pd.DataFrame) -> EndLabel:
    rates = points["busbw_bytes_per_s"] / 1e9
    ax.plot(points["bytes"], rates, color=COLLECTIVES[op], marker="o", markersize=pt(1.8), linewidth=pt(1.2))
    for size, rate, time_s in zip(points["bytes"], rates, points["time_s"], strict=True):
        values = {OPS[op]: message_size(int(size)), "bus": f"{quantity(rate)} GB/s", "time": f"{quantity(time_s * 1e6)} µs"}
        mark_point(ax, size, rate, values)
    return EndLabel(rates.iloc[-1], OPS[op], COLLECTIVES[op])


def _trained(ax: Axes, trained: pd.DataFrame) -> list[EndLabel]:
    """Buckets as marks: they are of one model, not of a series of sizes."""
    if trained.empty:
        return []
    kind, what = KINDS[str(trained["kind"].iloc[0])]
    rates = trained["busbw_bytes_per_s"].astype(float) / 1e9
    ax.plot(trained["bytes"].astype(float), rates, linestyle="", marker="D", markersize=pt(4), color=TRAINED, zorder=4)
    for size, rate in zip(trained["bytes"], rates, strict=True):
        mark_point(ax, size, rate, {what: f"{quantity(size / 1e6)} MB", "bus": f"{quantity(rate)} GB/s"})
    largest = int(trained["bytes"].astype(int).argmax())
    return [EndLabel(float(rates.iloc[largest]), kind, TRAINED)]
