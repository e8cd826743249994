"""Lines through a series' points: more GPUs in one node, and more nodes with the same GPUs each; a marker per GPUs per node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hpcddp.analysis.figures.colours import FAINT
from hpcddp.analysis.figures.style import pt
from hpcddp.analysis.util.wording import percent, percent_within, percents, quantity, times, unit
from hpcddp.analysis.verdicts.context import data_wait

MARKERS = "os^Dv"
"""For the most GPUs per node, the next, and so on."""


def hollow() -> dict[str, Any]:
    """How what does not count is drawn."""
    return {"marker": "o", "markerfacecolor": "none", "markeredgecolor": FAINT, "markeredgewidth": pt(0.8)}


def whiskers() -> dict[str, Any]:
    """How an interval is drawn."""
    return {"elinewidth": pt(1), "capsize": pt(2.5), "capthick": pt(0.8)}


def tracks(points: pd.DataFrame) -> list[pd.DataFrame]:
    """The points of each line in order; the last line is that of the most GPUs per node."""
    within = points[points["nodes"] == 1].sort_values("gpus")
    across = [group.sort_values("nodes") for _, group in points.groupby("gpus_per_node") if group["nodes"].nunique() > 1]
    lines = [*([within] if len(within) > 1 else []), *across]
    ordered = points.sort_values(["gpus", "nodes"])
    return lines or [ordered[i : i + 1] for i in range(len(ordered))]


def ideals(points: pd.DataFrame, largest: int) -> list[tuple[str, str, list[tuple[int, float]]]]:
    """(baseline, in words, ends of a line of slope one): perfect scaling from each baseline that is there to `largest` GPUs."""
    gpu, node = unit(points["device"].iloc[0]), int(points["full_node_gpus"].iloc[0])
    bases = {"1gpu": (1, f"ideal from 1 {gpu}"), **({"1node": (node, "ideal from 1 node")} if node > 1 else {})}
    found = []
    for base, (gpus, text) in bases.items():
        there = points[(points["nodes"] == 1) & (points["gpus_per_node"] == gpus)]
        if len(there) and gpus < largest:
            rate = float(there["samples_per_s"].iloc[0])
            found.append((base, text, [(gpus, rate), (largest, rate * largest / gpus)]))
    return found


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


def marker_legend(ax: Axes, points: pd.DataFrame, loc: Literal["lower left", "lower right"], odd: str = "") -> None:
    """Which marker stands for how many GPUs per node, and what hollow ones (`odd`) are; nothing where neither needs saying."""
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=FAINT, label=f"{group['gpus_per_node'].iloc[0]} per node")
        for marker, group in (by_marker(points) if is_product(points) else ())
    ]
    if odd:
        handles.append(Line2D([], [], linestyle="", label=odd, **hollow()))
    if handles:
        ax.legend(handles=handles, loc=loc, frameon=False, handletextpad=0.1, labelspacing=0.2, borderpad=0.1)


def point_values(row: pd.Series[Any]) -> dict[str, str]:
    """What a point, a row of scaling_frame, says when it is pointed at."""
    gpu = unit(row["device"])
    values = {
        "nodes": f"{row['nodes']} × {row['gpus_per_node']} {gpu}s",
        f"{gpu}s": str(row["gpus"]),
        "samples/s": quantity(row["samples_per_s"]),
        "runs": str(row["n"]),
    }
    if pd.notna(row["interval"]):
        values[row["interval"]] = f"{quantity(row['samples_per_s_low'])}–{quantity(row['samples_per_s_high'])}"
    for base, name in (("1gpu", f"vs 1 {gpu}"), ("1node", "vs 1 node")):
        if pd.notna(row[f"speedup_{base}"]) and not (row["input"] == "io" and row[f"speedup_{base}"] == 1):
            low, high = (
                None if pd.isna(row[end]) else float(row[end]) for end in (f"efficiency_{base}_low", f"efficiency_{base}_high")
            )
            ends = "" if low is None or high is None else f" ({percents(low, high, '–')})"
            values[name] = f"{times(row[f'speedup_{base}'])}×, {percent_within(row[f'efficiency_{base}'], low, high)}{ends}"
    if (waits := data_wait(row)) is not None:
        values["waits for data"] = percent(waits)
    return values
