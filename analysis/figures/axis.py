"""Axes: GPUs, with the nodes they make on a second line, rates, shares; names beside lines and rows; lines through a series.

A line joins more GPUs in one node, and more nodes with the same GPUs each; a product has a marker per GPUs per node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID
from hpcddp.analysis.figures.style import lay_out, mark_point, pt
from hpcddp.analysis.study.effects import Ratios, Spread, spreads
from hpcddp.analysis.util.wording import percent, percent_within, percents, quantity, shortened, times, unit
from hpcddp.analysis.verdicts.context import data_wait

TICK_PT = 3.5
LABEL_PAD = 3.0
"""Points between a tick and its label."""

TICK_STEPS: Sequence[tuple[float, Sequence[float]]] = ((1500, (1,)), (12, (1, 2, 5)), (0, (1, 1.5, 2, 3, 5, 7)))
"""(from which high / low on, ticks per decade), the widest first."""

LEAST_SPAN = 2.5
"""high / low of an axis of rates at least: it has two ticks then, wherever it begins, and what hardly differs looks so."""


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... between the two; closer or farther apart as TICK_STEPS says."""
    steps = next(steps for least, steps in TICK_STEPS if high / low >= least)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10**decade for decade in decades for step in steps if low <= step * 10**decade <= high]


def fix_ticks(axis: Axis, ticks: Iterable[float]) -> None:
    """At these and nowhere else."""
    axis.set_major_locator(FixedLocator(list(map(float, ticks))))
    axis.set_minor_locator(NullLocator())


def rate_axis(ax: Axes, low: float, high: float, text: Callable[[float], str]) -> None:
    """A log_axis of y, with its grid."""
    log_axis(ax, ax.yaxis, low, high, text)
    ax.grid(axis="y", color=GRID)


def log_axis(ax: Axes, axis: XAxis | YAxis, low: float, high: float, text: Callable[[float], str]) -> None:
    """Over at least LEAST_SPAN, with ticks close enough for the range."""
    wider = math.sqrt(max(1.0, LEAST_SPAN * low / high))
    low, high = low / wider, high * wider
    ax.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    fix_ticks(axis, log_ticks(low, high))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def size_axis(ax: Axes, points: pd.DataFrame, also: Iterable[int] = ()) -> None:
    """Ticks at 1, 2, 4, 8, ... GPUs, below each its number of nodes; sizes in `also` are within the axis too."""
    sizes = sorted({*map(int, points["gpus"]), *map(int, also)})
    ticks = size_ticks(sizes, lambda tick: nodes_at(points, tick))
    gpus = f"{unit(points['device'].iloc[0])}s"
    ax.set_xscale("log", base=2)
    ax.set_xlim(sizes[0] / 1.15, sizes[-1] * 1.15)
    if (points["nodes"] == 1).all():
        label_ticks(ax, {tick: str(tick) for tick in ticks})
        ax.set_xlabel(f"{gpus} of one node")
    else:
        label_ticks(ax, {tick: f"{tick}\n{nodes_at(points, tick)}" for tick in ticks}, f"{gpus}\nnodes")


def label_ticks(ax: Axes, texts: Mapping[float, str], names: str = "") -> None:
    """Below the x axis; `names`: what each line of the texts is, to their left at the same height."""
    fix_ticks(ax.xaxis, texts)
    ax.tick_params(axis="x", pad=pt(LABEL_PAD), length=pt(TICK_PT))
    ax.set_xticklabels(list(texts.values()))
    if names:
        down = -pt(LABEL_PAD + TICK_PT)
        ax.annotate(names, (0, 0), (down, down), "axes fraction", "offset points", ha="right", va="top")


DIGIT = 0.04
"""The width of a digit, as a share of an axis that has labels at its right; half of that is the least space between two ticks."""


def size_ticks(sizes: Sequence[int], below: Callable[[int], str] = str) -> list[int]:
    """Powers of two in the range where most sizes are ones, else the sizes themselves; of either, as many as have room with what
    is written `below` them.
    """
    powers = [2**k for k in range(math.ceil(math.log2(sizes[0])), math.floor(math.log2(sizes[-1])) + 1)]
    evenly = [powers[::-every][::-1] for every in range(1, len(powers) + 1)]
    digit = DIGIT * math.log2(sizes[-1] / sizes[0])
    for ticks in evenly if 2 * len(set(sizes) & set(powers)) >= len(sizes) else [sizes]:
        shown = with_room({math.log2(tick): f"{tick}\n{below(tick)}" for tick in ticks}, digit)
        if len(shown) == len(ticks):
            break
    return [tick for tick in ticks if math.log2(tick) in shown]


def with_room(texts: Mapping[float, str], letter: float, first: float | None = None) -> dict[float, str]:
    """Of texts by their places the `first`, and from the last on those that reach no other; `letter`: the width of one."""
    widths = {place: max(map(len, text.splitlines())) for place, text in texts.items()}
    shown = [] if first is None else [first]
    for place in reversed(list(texts)):
        if all(abs(place - other) >= letter * (widths[place] + widths[other] + 1) / 2 for other in shown):
            shown.append(place)
    return {place: texts[place] for place in sorted(shown)}


def nodes_at(points: pd.DataFrame, gpus: int) -> str:
    """The nodes of the points of that size: `4`, `1-4` where layouts differ, nothing where there is none."""
    nodes = points.loc[points["gpus"] == gpus, "nodes"]
    if nodes.empty:
        return ""
    return str(nodes.min()) if nodes.min() == nodes.max() else f"{nodes.min()}-{nodes.max()}"


LINE_PT = 9.5
"""Height of a line of text with its space, at a type of 8 points."""


@dataclass(frozen=True)
class EndLabel:
    """A text at the right edge of the axes, at the height of `y` (data), in `colour`."""

    y: float
    text: str
    colour: str


def end_labels(ax: Axes, labels: Sequence[EndLabel]) -> None:
    """Draws the labels; the axis limits must be final."""
    ordered = sorted(labels, key=lambda label: (label.y, label.text))
    figure = ax.figure
    assert isinstance(figure, Figure)
    lay_out(figure)
    to_pt = 72.0 / figure.dpi
    heights = [ax.transData.transform((1.0, label.y))[1] * to_pt for label in ordered]
    for label, height, wanted in zip(ordered, spread_out(heights, pt(LINE_PT)), heights, strict=True):
        write_beside(ax, label.text, label.y, (pt(5), height - wanted), color=label.colour)


def write_beside(ax: Axes, text: str, y: float, away_pt: tuple[float, float], **properties: Any) -> None:
    """At the right edge of the axes, so many points to the right of it and above `y` (data)."""
    ax.annotate(
        text, (1, y), away_pt, ("axes fraction", "data"), "offset points", va="center", annotation_clip=False, **properties
    )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved as little as need be for `gap` between neighbours: those that touch share their middle."""
    blocks: list[tuple[list[float], float]] = []
    for height in heights:
        members, middle = [height], height
        while blocks and middle - blocks[-1][1] < gap * (len(members) + len(blocks[-1][0])) / 2:
            members = [*blocks.pop()[0], *members]
            middle = sum(members) / len(members)
        blocks.append((members, middle))
    return [middle + gap * (i - (len(members) - 1) / 2) for members, middle in blocks for i in range(len(members))]


def evenly(found: Sequence[Any], most: int) -> list[Any]:
    """All of them, or of more than `most` so many from the first to the last."""
    return [found[round(i * (len(found) - 1) / (most - 1))] for i in range(most)] if len(found) > most else list(found)


def name_rows(ax: Axes, at: Sequence[float], names: Sequence[str], bottom: float, top: float = -0.6, **text: Any) -> None:
    """The y axis of rows from top to bottom: names without ticks or a line, from `top` to `bottom`."""
    ax.set_yticks(at, names, **text)
    ax.set_ylim(bottom, top)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


HOST_LETTERS = 12


def short_hosts(hosts: Iterable[str]) -> dict[str, str]:
    """Name -> a form that fits beside a row, different for each: `…134` for `ip-10-0-12-134` beside `ip-10-0-12-99`."""
    names = sorted({str(host) for host in hosts})
    short = zip(names, shortened(names, HOST_LETTERS), strict=True)
    return {name: cut if name.startswith(cut) else f"…{cut}" for name, cut in short}


MARKERS = "os^Dv"
"""For the most GPUs per node, the next, and so on."""


def hollow() -> dict[str, Any]:
    """How what does not count is drawn."""
    return {"marker": "o", "markerfacecolor": "none", "markeredgecolor": FAINT, "markeredgewidth": pt(0.8)}


RUN_PT = 2.6
"""Between the dots of a point's runs, which stand side by side."""


@dataclass(frozen=True)
class PointStyle:
    """Of points and their line."""

    colour: str
    marker: str = MARKERS[0]
    hollow: bool = False
    right: float = 0.0
    """Points by which it is moved, so that it lies on no other line."""

    def symbol(self, size: float = 4.0) -> dict[str, Any]:
        """Of one point."""
        face = "white" if self.hollow else self.colour
        return {"color": self.colour, "marker": self.marker, "markersize": pt(size), "markerfacecolor": face, "linestyle": ""}


def moved(ax: Axes, right: float) -> Transform:
    """Data coordinates, so many points further to the right."""
    return ax.transData if not right else ax.transData + ScaledTranslation(pt(right) / 72, 0, ax.figure.dpi_scale_trans)


def draw_spread(ax: Axes, spread: Spread, point_style: PointStyle) -> None:
    """The median with its interval; without one the runs side by side, and a dash at their median."""
    at, middle = moved(ax, point_style.right), spread.middle
    if spread.ends is not None or len(spread.runs) < 2:
        low, high = spread.ends or (middle, middle)
        bar: dict[str, Any] = {"elinewidth": pt(1), "capsize": pt(2.5 if high > low else 0), "capthick": pt(0.8)}
        off = [[middle - low], [high - middle]]
        ax.errorbar([spread.x], [middle], off, transform=at, zorder=3, clip_on=False, **point_style.symbol(), **bar)
        return
    ax.update_datalim([(spread.x, run) for run in spread.runs])
    count = len(spread.runs)
    dash: dict[str, Any] = {"color": point_style.colour, "markersize": pt(RUN_PT * count + 3)}
    ax.plot([spread.x], [middle], "_", transform=at, zorder=3, clip_on=False, **dash)
    for i, run in enumerate(spread.runs):
        aside = moved(ax, point_style.right + RUN_PT * (i - (count - 1) / 2))
        ax.plot([spread.x], [run], transform=aside, zorder=4, clip_on=False, markeredgewidth=pt(0.6), **point_style.symbol(2.4))


def draw_measured(ax: Axes, points: pd.DataFrame, column: str, ratios: Ratios, point_style: PointStyle) -> None:
    """`column` where it is known, as `spreads` has it, and the lines between points."""
    known = points.dropna(subset=[column])
    middles = dict(zip(known.index, spreads(known, column, ratios), strict=True))
    for line in tracks(known):
        ys = [middles[i].middle for i in line.index]
        ax.plot(line["gpus"], ys, color=point_style.colour, transform=moved(ax, point_style.right), zorder=2)
    for marker, group in by_marker(points):
        for i, row in group[group.index.isin(known.index)].iterrows():
            draw_spread(ax, middles[i], replace(point_style, marker=marker))
            mark_point(ax, row["gpus"], middles[i].middle, point_values(row))


def tracks(points: pd.DataFrame) -> list[pd.DataFrame]:
    """The points of each line in order; the last line is that of the most GPUs per node."""
    within = points[points["nodes"] == 1].sort_values("gpus")
    across = [group.sort_values("nodes") for _, group in points.groupby("gpus_per_node") if group["nodes"].nunique() > 1]
    lines = [*([within] if len(within) > 1 else []), *across]
    ordered = points.sort_values(["gpus", "nodes"])
    return lines or [ordered[i : i + 1] for i in range(len(ordered))]


IDEALS_APART = 0.02
"""Of the panel's height: closer than that, perfect scaling from one GPU and from one node is one line."""


def draw_ideals(ax: Axes, points: pd.DataFrame, largest: int) -> list[EndLabel]:
    """Perfect scaling, dashed, from each baseline that is there to `largest` GPUs; one line where two would lie on each other."""
    gpu, node = unit(points["device"].iloc[0]), int(points["full_node_gpus"].iloc[0])
    bases = {1: (f"1 {gpu}", BASELINES["1gpu"])} | ({node: ("1 node", BASELINES["1node"])} if node > 1 else {})
    single = points[(points["nodes"] == 1) & points["gpus_per_node"].isin(list(bases)) & (points["gpus"] < largest)]
    rates = {int(row["gpus"]): float(row["samples_per_s"]) for _, row in single.iterrows()}
    ends = {gpus: rate * largest / gpus for gpus, rate in rates.items()}
    height = math.log(max(ends.values(), default=1.0) / float(points["samples_per_s"].min()))
    one = len(ends) == 2 and abs(math.log(ends[1] / ends[node])) < IDEALS_APART * height
    labels = []
    for gpus in list(ends)[: 1 if one else 2]:
        text, colour = bases[gpus]
        ax.plot((gpus, largest), (rates[gpus], ends[gpus]), "--", color=colour, linewidth=pt(0.9), zorder=1)
        labels.append(EndLabel(ends[gpus], f"ideal from {text}{', 1 node' if one else ''}", colour))
    return labels


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
            known = [row[f"efficiency_{base}_{end}"] for end in ("low", "high")]
            low, high = (None if pd.isna(end) else float(end) for end in known)
            ends = "" if low is None or high is None else f" ({percents(low, high, '–')})"
            values[name] = f"{times(row[f'speedup_{base}'])}×, {percent_within(row[f'efficiency_{base}'], low, high)}{ends}"
    if pd.notna(row["predicted_low"]):
        values["predicted"] = f"{quantity(row['predicted_low'])}–{quantity(row['predicted_high'])}"
    if (waits := data_wait(row)) is not None:
        values["waits for data"] = percent(waits)
    return values
