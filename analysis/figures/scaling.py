"""Throughput against GPUs beside perfect scaling, with published points where asked for; efficiency against the named baselines.

Published points are filled where they may be trusted, hollow with a caveat, crossed out where rejected. Efficiency against one
GPU and one full node is in one panel: neither can be shown without the other. What a key changes has the same throughput against
its values, and below each value the ratio to the base, node hours and waiting.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from hpcddp.analysis.figures.axis import (
    EndLabel,
    Look,
    Rates,
    draw_ideals,
    draw_measured,
    draw_spread,
    end_labels,
    has_interval,
    hollow,
    is_product,
    label_ticks,
    marker_legend,
    percent_ticks,
    rate_axis,
    size_axis,
    sizes_with_room,
    spread_note,
    spread_of,
)
from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK
from hpcddp.analysis.figures.style import (
    DEFAULT,
    Entry,
    MarkedFigure,
    Style,
    entitle,
    in_column,
    legend_below,
    legend_mm,
    letters,
    mark_point,
    new_figure,
    note_entries,
    pt,
)
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.scaling import point_rates
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
    rates = point_rates(runs)
    rejected = runs[runs["state"] == "rejected"].dropna(subset=["samples_per_s"])
    series = [group for _, group in scaling.groupby("series", sort=False)]
    also = overlay if overlay is not None and len(overlay) and (scaling["device"] != "cpu").all() else None
    beyond = also is not None and any(not _reaches(points, also) for points in series)
    room = letters(style, len(series))
    note = spread_note(((int(row["n"]), has_interval(row, "samples_per_s")) for _, row in scaling.iterrows()), "the median")
    entries = note_entries(note, room) + ([] if also is None else legend_entries(also, room, measured=beyond))
    with new_figure(style, PANEL_MM, len(series), legend_mm(entries)) as (figure, axes):
        labels = [_panel(ax, points, rates, rejected, also) for ax, points in zip(axes, series, strict=True)]
        legend_below(figure, entries)
        lowest, highest = min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes)
        for ax, points, texts in zip(axes, series, labels, strict=True):
            rate_axis(ax, lowest, highest, quantity)
            name = names[points["series"].iloc[0]] if len(series) > 1 else ""
            entitle(ax, style, name, "Throughput, samples/s")
            end_labels(ax, texts)
    return figure


def _panel(ax: Axes, points: pd.DataFrame, rates: Rates, rejected: pd.DataFrame, overlay: pd.DataFrame | None) -> list[EndLabel]:
    """Draws everything but the labels, which wait for the final limits."""
    if overlay is not None:
        draw_overlay(ax, overlay)
    rejected = rejected[rejected["series"] == points["series"].iloc[0]]
    ax.plot(rejected["gpus"], rejected["samples_per_s"], linestyle="", zorder=4, **hollow())
    for _, run in rejected.iterrows():
        values = {"rejected": f"r{run['run']} of {run['label']}", "reason": str(run["reason"])}
        mark_point(ax, run["gpus"], run["samples_per_s"], values)
    published = [] if overlay is None else list(overlay["gpus"])
    ideals = draw_ideals(ax, points, max([points["gpus"].max(), *published]))
    draw_measured(ax, points, "samples_per_s", rates, Look(INK))
    marker_legend(ax, points, "lower right", odd="rejected" if len(rejected) else "")
    size_axis(ax, points, also=[*rejected["gpus"], *published])
    ax.set_yscale("log")
    if overlay is not None and not _reaches(points, overlay):
        return ideals  # the name would stand beside what others published: it is in the legend
    return [*ideals, EndLabel(points["samples_per_s"].iloc[-1], "measured", INK)]


def _reaches(points: pd.DataFrame, overlay: pd.DataFrame) -> bool:
    return bool(points["gpus"].max() >= overlay["gpus"].max())


CLOSE = 3.0
"""% of efficiency: where the two baselines' curves are nowhere further apart, one is drawn, and both ends are written."""


def efficiency_figure(scaling: pd.DataFrame, names: dict[str, str], runs: pd.DataFrame, style: Style = DEFAULT) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, a panel per series; `runs`: rows of runs_frame."""
    rates = point_rates(runs)
    series = [group for _, group in scaling.groupby("series", sort=False)]
    bases = [base for base in BASELINES if any(base in baselines(points) for points in series)]
    entries = note_entries(_efficiency_note(series, bases), letters(style, len(series)))
    against = " and ".join({"1gpu": f"one {unit(scaling['device'].iloc[0])}", "1node": "one node"}[base] for base in bases)
    with new_figure(style, EFFICIENCY_MM, len(series), legend_mm(entries)) as (figure, axes):
        legend_below(figure, entries)
        for ax, points in zip(axes, series, strict=True):
            name = names[points["series"].iloc[0]] if len(series) > 1 else ""
            entitle(ax, style, name, f"Efficiency against {against}" if style.titles else "Efficiency")
            _efficiency_panel(ax, points, rates, titled=style.titles and len(bases) == 1)
    return figure


def _efficiency_note(series: Sequence[pd.DataFrame], bases: Sequence[str]) -> str:
    rows = [(row, f"efficiency_{base}") for points in series for _, row in points.iterrows() for base in bases]
    drawn = [(int(row["n"]), has_interval(row, column)) for row, column in rows if pd.notna(row[column])]
    spreads = spread_note(drawn, "the ratio of medians", "runs over the baseline's median")
    one = f" One curve stands for baselines that differ by less than {CLOSE:.0f} points." if any(map(one_curve, series)) else ""
    return spreads + one


def baselines(points: pd.DataFrame) -> list[str]:
    """Those of one series that have another point."""
    node = points["full_node_gpus"].iloc[0]
    there = [base for base in BASELINES if points[f"efficiency_{base}"].notna().sum() > 1]
    return [base for base in there if base == "1gpu" or node > 1]


def one_curve(points: pd.DataFrame) -> bool:
    """Whether both baselines are there, and their curves would lie on each other."""
    apart = 100 * (points["efficiency_1gpu"] - points["efficiency_1node"]).abs().max()
    return len(baselines(points)) == len(BASELINES) and bool(apart < CLOSE)


def _efficiency_panel(ax: Axes, points: pd.DataFrame, rates: Rates, *, titled: bool) -> None:
    """`titled`: above it stands what it is against."""
    bases = baselines(points)
    drawn = bases[:1] if one_curve(points) else bases
    for base in drawn:
        side = 0.0 if len(drawn) == 1 else SIDES[base]
        look = Look(BASELINES[base], hollow=base == "1node", right=side)
        draw_measured(ax, points, f"efficiency_{base}", rates, look)
    ax.axhline(100, color=FAINT, linestyle="--", linewidth=pt(0.9), zorder=1)
    ax.set_ylim(0, max(112, ax.dataLim.y1 * 1.06))
    ticks = percent_ticks(ax.get_ylim()[1])
    ax.set_yticks(ticks, [f"{tick} %" for tick in ticks])
    ax.grid(axis="y", color=GRID)
    marker_legend(ax, points, "lower left")
    size_axis(ax, points)
    if len(drawn) == 1 and not is_product(points):
        _write_values(ax, points, drawn[0], rates)
    labels = [_end(points, base, titled=titled) for base in bases]
    if labels and (waits := data_wait(points.iloc[-1])) is not None:
        labels.append(EndLabel(min(label.y for label in labels), f"({percent(waits)} data wait)", INK))
    end_labels(ax, labels)


SIDES = {"1gpu": -1.6, "1node": 1.6}
"""Points by which curves of baselines are moved from where their size is, so that none hides the other's marks."""


def _end(points: pd.DataFrame, base: str, *, titled: bool) -> EndLabel:
    last = float(points[f"efficiency_{base}"].dropna().iloc[-1])
    text = "" if titled else f" vs 1 {unit(points['device'].iloc[0]) if base == '1gpu' else 'node'}"
    return EndLabel(100 * last, f"{percent(last)}{text}", BASELINES[base])


def _write_values(ax: Axes, points: pd.DataFrame, base: str, rates: Rates) -> None:
    """Beside each point between the baseline and the last one, on the side of the line that is free and off that of 100 %."""
    column = f"efficiency_{base}"
    known = points.dropna(subset=[column])
    values = dict(zip(known["gpus"].astype(int), 100 * known[column].astype(float), strict=True))
    spreads = [spread_of(row, column, rates) for _, row in known.iterrows()]
    room = sizes_with_room(list(values), lambda gpus: percent(values[gpus] / 100))
    for (_, before), (gpus, value), (ends, runs) in zip(values.items(), list(values.items())[1:-1], spreads[1:], strict=False):
        if gpus in room:
            drawn, falls, above = [value, *(ends or runs)], before >= value, value < LOW
            ha = "right" if falls is not above else "left"
            up = pt(4.0 if above else -4.0)
            at, va = (gpus, max(drawn) if above else min(drawn)), "bottom" if above else "top"
            ax.annotate(percent(value / 100), at, (0, up), textcoords="offset points", ha=ha, va=va)


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

BASE = BASELINES["1node"]


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
    ends = [end for panel in panels for value in panel.values for end in _ends(value)]
    drawn = [(len(value.rates), has_interval(value.point, "samples_per_s")) for panel in panels for value in panel.values]
    entries = note_entries(spread_note(drawn, "the median"), letters(style, len(panels)))
    with new_figure(style, height, len(panels), legend_mm(entries)) as (figure, every):
        legend_below(figure, entries)
        for ax, panel, below in zip(every, panels, rows, strict=True):
            _draw(ax, axis, panel)
            rate_axis(ax, min(ends) / 1.1, max(ends) * 1.1, quantity)
            _name_values(ax, axis, panel, below)
            entitle(ax, style, panel.where, "Throughput, samples/s")
    return figure


def _ends(value: AxisValue) -> tuple[float, float]:
    low, high = (value.point[f"samples_per_s_{end}"] for end in ("low", "high"))
    middle = float(value.point["samples_per_s"])
    return (middle, middle) if pd.isna(low) else (float(low), float(high))


def _places(axis: Axis, panel: AxisPanel) -> list[float]:
    """Where the values stand: numbers above 0 by their logarithm, others side by side."""
    if axis.ordered and all(value.value > 0 for value in panel.values):
        return [math.log2(value.value) for value in panel.values]
    return [float(i) for i in range(len(panel.values))]


def _draw(ax: Axes, axis: Axis, panel: AxisPanel) -> None:
    """The base in colour; lines between numbers only."""
    places = _places(axis, panel)
    rates = [float(value.point["samples_per_s"]) for value in panel.values]
    if axis.ordered:
        ax.plot(places, rates, color=INK, zorder=2)
    ax.axhline(rates[panel.base], color=BASE, linestyle="--", linewidth=pt(0.9), zorder=1)
    for i, (place, rate, value) in enumerate(zip(places, rates, panel.values, strict=True)):
        low, high = _ends(value)
        colour = BASE if i == panel.base else INK
        ends = (low, high) if has_interval(value.point, "samples_per_s") else None
        draw_spread(ax, (place, rate), ends, value.floats, Look(colour))
        mark_point(ax, place, rate, _mark(axis, panel, value))
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
    shown = _with_room(places, ["\n".join(column) for column in zip(*lines.values(), strict=True)], panel.base)
    cut = {name: name if len(name) <= 13 else f"{name[:12]}…" for name in lines}
    label_ticks(ax, shown, "\n".join(cut[name] + "\n" * texts[0].count("\n") for name, texts in lines.items()))


def _with_room(places: Sequence[float], texts: Sequence[str], base: int) -> dict[float, str]:
    """The base's, and from the last value on those whose texts reach no other's."""
    letter = (places[-1] - places[0]) * (1 + 1 / len(places)) / (LETTERS - 12)
    widths = [max(map(len, text.splitlines())) for text in texts]
    shown = [base]
    for i in reversed(range(len(places))):
        if i != base and all(abs(places[i] - places[j]) >= letter * ((widths[i] + widths[j]) / 2 + 1) for j in shown):
            shown.append(i)
    return {places[i]: texts[i] for i in sorted(shown)}
