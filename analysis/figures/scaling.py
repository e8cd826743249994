"""Throughput against GPUs beside perfect scaling, with published points where asked for; efficiency against the named baselines.

What was predicted is a band. Published points are filled where they may be trusted, hollow with a caveat, crossed out where
rejected. Efficiency against one GPU and one full node is in one panel: neither can be shown without the other. What a key changes
has the same throughput against its values, and below each value the ratio to the base, node hours and waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from hpcddp.analysis.figures import axis as axes_of
from hpcddp.analysis.figures.axis import EndLabel, PointStyle, draw_measured, draw_spread, rate_axis
from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK, PREDICTED
from hpcddp.analysis.figures.style import DEFAULT, Entry, MarkedFigure, Style, entitle, in_column, mark_point, new_figure, pt
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.effects import INTERVAL, Ratios, Spread, spread_note, spreads
from hpcddp.analysis.study.scaling import point_ratios
from hpcddp.analysis.util.wording import percent, quantity, unit
from hpcddp.analysis.verdicts.context import data_wait

PANEL_MM, EFFICIENCY_MM = 66.0, 56.0


def scaling_figure(
    scaling: pd.DataFrame,
    names: dict[str, str],
    runs: pd.DataFrame,
    overlay: pd.DataFrame | None = None,
    style: Style = DEFAULT,
) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, a panel per series; `runs`: rows of runs_frame; `overlay`: of references, in panels of
    GPUs.
    """
    ratios = point_ratios(runs)
    series = [group for _, group in scaling.groupby("series", sort=False)]
    also = overlay if overlay is not None and len(overlay) and (scaling["device"] != "cpu").all() else None
    entries = [] if also is None else [("measured", {"marker": "o", "color": INK}), *legend_entries(also)]
    note = spread_note(spreads(scaling, "samples_per_s", ratios), "the median")
    with new_figure(style, PANEL_MM, len(series), note, entries) as (figure, axes):
        labels = [_panel(ax, points, runs, ratios, also) for ax, points in zip(axes, series, strict=True)]
        lowest, highest = min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes)
        for ax, points, texts in zip(axes, series, labels, strict=True):
            rate_axis(ax, lowest, highest, quantity)
            name = names[points["series"].iloc[0]] if len(series) > 1 else ""
            entitle(ax, style, name, "Throughput, samples/s")
            axes_of.end_labels(ax, texts)
    return figure


def _panel(ax: Axes, points: pd.DataFrame, runs: pd.DataFrame, ratios: Ratios, overlay: pd.DataFrame | None) -> list[EndLabel]:
    """Draws everything but the labels, which wait for the final limits."""
    if overlay is not None:
        draw_overlay(ax, overlay)
    of_series = runs[(runs["state"] == "rejected") & (runs["series"] == points["series"].iloc[0])]
    rejected = of_series.dropna(subset=["samples_per_s"])
    ax.plot(rejected["gpus"], rejected["samples_per_s"], linestyle="", zorder=4, **axes_of.hollow())
    for _, run in rejected.iterrows():
        values = {"rejected": f"r{run['run']} of {run['label']}", "reason": str(run["reason"])}
        mark_point(ax, run["gpus"], run["samples_per_s"], values)
    published = [] if overlay is None else list(overlay["gpus"])
    labels = [*_draw_predicted(ax, points), *axes_of.draw_ideals(ax, points, max([points["gpus"].max(), *published]))]
    draw_measured(ax, points, "samples_per_s", ratios, PointStyle(INK))
    axes_of.marker_legend(ax, points, "lower right", odd="rejected" if len(rejected) else "")
    axes_of.size_axis(ax, points, also=[*rejected["gpus"], *published])
    ax.set_yscale("log")
    return [*labels, *([EndLabel(points["samples_per_s"].iloc[-1], "measured", INK)] if overlay is None else [])]


def _draw_predicted(ax: Axes, points: pd.DataFrame) -> list[EndLabel]:
    """A band for each number of GPUs per node, from the point that it was predicted from on; a label for the last of them."""
    labels = list[EndLabel]()
    for _, line in points.groupby("gpus_per_node"):
        known = line[line["predicted_low"].notna()]
        shown = line[line["predicted_low"].notna() | line["label"].isin(known["predicted_from"])]
        low, high = (shown[f"predicted_{end}"].fillna(shown["samples_per_s"]).astype(float) for end in ("low", "high"))
        if len(known):
            at = [*shown["gpus"]] if len(shown) > 1 else [shown["gpus"].iloc[0] * wide for wide in (0.9, 1.1)]
            ax.fill_between(at, low, high, color=PREDICTED, alpha=0.25, linewidth=0, zorder=0.4)
            labels = [EndLabel(known["predicted_samples_per_s"].iloc[-1], "predicted", PREDICTED)]
    return labels


CLOSE = 3.0
"""% of efficiency: where the two baselines' curves are nowhere further apart, one is drawn, and both ends are written."""


def efficiency_figure(scaling: pd.DataFrame, names: dict[str, str], runs: pd.DataFrame, style: Style = DEFAULT) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, a panel per series; `runs`: rows of runs_frame."""
    ratios = point_ratios(runs)
    series = [group for _, group in scaling.groupby("series", sort=False)]
    bases = [base for base in BASELINES if any(base in baselines(points) for points in series)]
    drawn = [spread for base in bases for spread in spreads(scaling, f"efficiency_{base}", ratios)]
    note = spread_note(drawn, "the ratio of medians", "runs over the baseline's median")
    if any(map(one_curve, series)):
        note += f" One curve stands for baselines that differ by less than {CLOSE:.0f} points."
    against = " and ".join({"1gpu": f"one {unit(scaling['device'].iloc[0])}", "1node": "one node"}[base] for base in bases)
    with new_figure(style, EFFICIENCY_MM, len(series), note) as (figure, axes):
        for ax, points in zip(axes, series, strict=True):
            name = names[points["series"].iloc[0]] if len(series) > 1 else ""
            entitle(ax, style, name, f"Efficiency against {against}" if style.titles else "Efficiency")
            _efficiency_panel(ax, points, ratios, titled=style.titles and len(bases) == 1)
    return figure


def baselines(points: pd.DataFrame) -> list[str]:
    """Those of one series that have another point."""
    node = points["full_node_gpus"].iloc[0]
    there = [base for base in BASELINES if points[f"efficiency_{base}"].notna().sum() > 1]
    return [base for base in there if base == "1gpu" or node > 1]


def one_curve(points: pd.DataFrame) -> bool:
    """Whether both baselines are there, and their curves would lie on each other."""
    apart = 100 * (points["efficiency_1gpu"] - points["efficiency_1node"]).abs().max()
    return len(baselines(points)) == len(BASELINES) and bool(apart < CLOSE)


def _efficiency_panel(ax: Axes, points: pd.DataFrame, ratios: Ratios, *, titled: bool) -> None:
    """`titled`: above it stands what it is against."""
    bases = baselines(points)
    drawn = bases[:1] if one_curve(points) else bases
    for base in drawn:
        aside = {"1gpu": -1.6, "1node": 1.6}[base] if len(drawn) > 1 else 0.0  # points, so that none hides the other's marks
        point_style = PointStyle(BASELINES[base], hollow=base == "1node", right=aside)
        draw_measured(ax, points, f"efficiency_{base}", ratios, point_style)
    ax.axhline(100, color=FAINT, linestyle="--", linewidth=pt(0.9), zorder=1)
    ax.set_ylim(0, max(112, ax.dataLim.y1 * 1.06))
    ax.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2.5, 5, 10]))
    ax.yaxis.set_major_formatter("{x:g} %")
    ax.grid(axis="y", color=GRID)
    axes_of.marker_legend(ax, points, "lower left")
    axes_of.size_axis(ax, points)
    if len(drawn) == 1 and not axes_of.is_product(points):
        _write_values(ax, spreads(points, f"efficiency_{drawn[0]}", ratios))
    labels = [_end(points, base, titled=titled) for base in bases]
    if labels and (waits := data_wait(points.iloc[-1])) is not None:
        labels.append(EndLabel(min(label.y for label in labels), f"({percent(waits)} data wait)", INK))
    axes_of.end_labels(ax, labels)


def _end(points: pd.DataFrame, base: str, *, titled: bool) -> EndLabel:
    last = float(points[f"efficiency_{base}"].dropna().iloc[-1])
    text = "" if titled else f" vs 1 {unit(points['device'].iloc[0]) if base == '1gpu' else 'node'}"
    return EndLabel(100 * last, f"{percent(last)}{text}", BASELINES[base])


def _write_values(ax: Axes, found: Sequence[Spread]) -> None:
    """Beside each point between the baseline and the last one, on the side of the line that is free and off that of 100 %."""
    values = {math.log2(each.x): percent(each.middle / 100) for each in found}
    room = axes_of.with_room(values, axes_of.DIGIT * (max(values) - min(values)))
    for before, each in pairwise(found[:-1]):
        if math.log2(each.x) in room:
            above = each.middle < LOW
            ha, va = "right" if (before.middle >= each.middle) is not above else "left", "bottom" if above else "top"
            at, off = (each.x, each.drawn[-1 if above else 0]), (0, pt(4.0 if above else -4.0))
            ax.annotate(room[math.log2(each.x)], at, off, textcoords="offset points", ha=ha, va=va)


LOW = 16.0
"""% of efficiency: below it there is no room under a point."""


MARKERS = ("D", "s", "^", "v", "P", "X")
COLOURS = ("#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A3600", "#8a8a8a")
"""Okabe and Ito's that the figure's own lines do not use, in the order of the names asked for."""

DOUBTS = {"caveat": "hollow: published with a caveat", "reject": "x: rejected"}


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


def legend_entries(overlay: pd.DataFrame) -> list[Entry]:
    """A source each, and what symbols say of how far it may be trusted."""
    entries = list[Entry]()
    for marker, colour, points in _styled(overlay):
        first = points.iloc[0]
        best = str(min(points["quality"], key=("ok", "caveat", "reject").index))
        entries.append((f"{first['name']}: {first['label']}\n{first['cite']}", _symbol(marker, colour, best)))
    words = "; ".join(text for quality, text in DOUBTS.items() if quality in set(overlay["quality"]))
    return [*entries, *([(words, {"linestyle": ""})] if words else [])]


def _styled(overlay: pd.DataFrame) -> list[tuple[str, str, pd.DataFrame]]:
    names = overlay.groupby("name", sort=False)
    return [(MARKERS[i % len(MARKERS)], COLOURS[i % len(COLOURS)], group) for i, (_, group) in enumerate(names)]


def _symbol(marker: str, colour: str, quality: str) -> dict[str, Any]:
    face = colour if quality == "ok" else "white"
    return {"linestyle": "", "marker": "x" if quality == "reject" else marker, "color": colour, "markerfacecolor": face}


EFFECT_MM = 62.0
BELOW_MM = 3.6
"""What a line below an axis takes."""

MAX_PANELS = 12
"""Sizes and values of other keys in one figure; the table and effects.csv have them all."""

LETTERS = 46
"""That fit below an axis, what stands to the left of it too, at 8 points."""


def effect_drawings(found: Sequence[Axis], style: Style = DEFAULT) -> tuple[dict[str, Callable[[], MarkedFigure]], list[str]]:
    """A figure for each key, and notes on what they leave out."""
    fewer = [axis for axis in found if len(axis.panels) > MAX_PANELS]
    notes = [f"the figure of {axis.name} shows {MAX_PANELS} of {len(axis.panels)} comparisons" for axis in fewer]
    return {axis.stem: partial(effect_figure, axis, style) for axis in found}, notes


def effect_figure(axis: Axis, style: Style = DEFAULT) -> MarkedFigure:
    """A panel for each size and each value of other keys, all on one scale."""
    panels = axis.panels[:MAX_PANELS]
    rows = [_lines_below(axis, panel) for panel in panels]
    height = EFFECT_MM + BELOW_MM * max(sum(1 + texts[0].count("\n") for texts in row.values()) for row in rows)
    found = [[_spread(place, value) for place, value in zip(_places(axis, each), each.values, strict=True)] for each in panels]
    every = [spread for of_panel in found for spread in of_panel]
    ends = [end for spread in every for end in spread.drawn]
    with new_figure(style, height, len(panels), spread_note(every, "the median")) as (figure, shown):
        for ax, panel, below, of_panel in zip(shown, panels, rows, found, strict=True):
            _draw(ax, axis, panel, of_panel)
            rate_axis(ax, min(ends) / 1.1, max(ends) * 1.1, quantity)
            _name_values(ax, axis, panel, below)
            entitle(ax, style, panel.where, "Throughput, samples/s")
    return figure


def _spread(place: float, value: AxisValue) -> Spread:
    low, high, kind = (value.point[name] for name in ("samples_per_s_low", "samples_per_s_high", "interval"))
    return Spread(place, value.rate, (float(low), float(high)) if str(kind) == INTERVAL else None, value.floats)


def _places(axis: Axis, panel: AxisPanel) -> list[float]:
    """Where the values stand: numbers above 0 by their logarithm, others side by side."""
    if axis.ordered and all(value.value > 0 for value in panel.values):
        return [math.log2(value.value) for value in panel.values]
    return [float(i) for i in range(len(panel.values))]


def _draw(ax: Axes, axis: Axis, panel: AxisPanel, found: Sequence[Spread]) -> None:
    """The base in colour; lines between numbers only."""
    places = [spread.x for spread in found]
    if axis.ordered:
        ax.plot(places, [spread.middle for spread in found], color=INK, zorder=2)
    ax.axhline(found[panel.base].middle, color=BASELINES["1node"], linestyle="--", linewidth=pt(0.9), zorder=1)
    for i, (spread, value) in enumerate(zip(found, panel.values, strict=True)):
        draw_spread(ax, spread, PointStyle(BASELINES["1node"] if i == panel.base else INK))
        mark_point(ax, spread.x, spread.middle, _mark(axis, panel, value))
    span = places[-1] - places[0]
    ax.set_xlim(places[0] - 0.5 * span / len(places), places[-1] + 0.5 * span / len(places))


def _mark(axis: Axis, panel: AxisPanel, value: AxisValue) -> dict[str, str]:
    found = {axis.name: ", ".join(filter(None, (value.text, value.also))), "samples/s": quantity(value.point["samples_per_s"])}
    found["runs"] = str(len(value.rates))
    if against := panel.against_base(value):
        base = panel.values[panel.base].text
        spread = "" if against.low is None else f" ({against.kind} {against.low:.3f}–{against.high:.3f})"
        found[f"times {base}"] = f"{against.ratio:.3f}{spread}"
    found["size"] = f"{panel.nodes} × {panel.gpus_per_node} {unit(panel.device)}s"
    return found


def _lines_below(axis: Axis, panel: AxisPanel) -> dict[str, list[str]]:
    """What stands below the values, a line each: name -> texts."""
    room = max(5, (LETTERS - 12) // len(panel.values))
    named = ["\n".join(in_column(value.text.replace("_", " "), room)) for value in panel.values]
    deepest = max(text.count("\n") for text in named)
    lines = {
        axis.name: [text + "\n" * (deepest - text.count("\n")) for text in named],
        "times": [
            f"{each.ratio:.{2 if each.ratio < 9.95 else 0}f}" if each else "base"
            for each in map(panel.against_base, panel.values)
        ],
        "node h": [_hours(value) for value in panel.values],
        "data wait": ["" if value.data_wait_share is None else percent(value.data_wait_share) for value in panel.values],
    }
    return {name: texts for name, texts in lines.items() if any(text.strip() for text in texts)}


def _hours(value: AxisValue) -> str:
    hours = value.point["node_h_per_epoch"]
    if pd.isna(hours) or hours <= 0:
        return ""
    return f"{hours:.{max(0, 1 - math.floor(math.log10(hours)))}f}"


def _name_values(ax: Axes, axis: Axis, panel: AxisPanel, lines: dict[str, list[str]]) -> None:
    """The values, and below each what it comes to; to the left what each line is."""
    places = _places(axis, panel)
    texts = dict(zip(places, map("\n".join, zip(*lines.values(), strict=True)), strict=True))
    letter = (places[-1] - places[0]) * (1 + 1 / len(places)) / (LETTERS - 12)
    shown = axes_of.with_room(texts, letter, places[panel.base])
    cut = {name: name if len(name) <= 13 else f"{name[:12]}…" for name in lines}
    axes_of.label_ticks(ax, shown, "\n".join(cut[name] + "\n" * texts[0].count("\n") for name, texts in lines.items()))
