"""What a key changes: throughput against its values, and below each value the ratio to the base, node hours and waiting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from hpcddp.analysis.figures.axis import LABEL_PAD, TICK_PT, rate_axis
from hpcddp.analysis.figures.colours import BASELINES, INK
from hpcddp.analysis.figures.series_lines import whiskers
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, entitle, in_column, mark_point, new_figure, pt
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue
from hpcddp.analysis.util.wording import percent, quantity, unit

PANEL_MM = 62.0
LINE_MM = 3.6
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
    height = PANEL_MM + LINE_MM * max(sum(1 + max(text.count("\n") for text in texts) for texts in row.values()) for row in rows)
    ends = [end for panel in panels for value in panel.values for end in _ends(value)]
    with new_figure(style, height, len(panels)) as (figure, every):
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
        ax.errorbar([place], [rate], [[rate - low], [high - rate]], fmt="o", color=colour, zorder=3, **whiskers())
        mark_point(ax, place, rate, _mark(axis, panel, value))
    span = places[-1] - places[0]
    ax.set_xlim(places[0] - 0.5 * span / len(places), places[-1] + 0.5 * span / len(places))


def _mark(axis: Axis, panel: AxisPanel, value: AxisValue) -> dict[str, str]:
    """What a point says when it is pointed at."""
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
        "times": [_short(each.ratio) if each else "base" for each in map(panel.against_base, panel.values)],
        "node h": [_hours(value) for value in panel.values],
        "data wait": ["" if value.data_wait_share is None else percent(value.data_wait_share) for value in panel.values],
    }
    return {name: texts for name, texts in lines.items() if any(text.strip() for text in texts)}


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"


def _hours(value: AxisValue) -> str:
    hours = value.point["node_h_per_epoch"]
    if pd.isna(hours) or hours <= 0:
        return ""
    return f"{hours:.{max(0, 1 - math.floor(math.log10(hours)))}f}"


def _name_values(ax: Axes, axis: Axis, panel: AxisPanel, lines: dict[str, list[str]]) -> None:
    """The values, and below each what it comes to; to the left what each line is."""
    places = _places(axis, panel)
    shown = _with_room(places, ["\n".join(column) for column in zip(*lines.values(), strict=True)], panel.base)
    ax.xaxis.set_major_locator(FixedLocator(list(shown)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.tick_params(axis="x", pad=pt(LABEL_PAD), length=pt(TICK_PT))
    ax.set_xticklabels(list(shown.values()))
    names = "\n".join(
        (name if len(name) <= 13 else f"{name[:12]}…") + "\n" * texts[0].count("\n") for name, texts in lines.items()
    )
    down = -pt(LABEL_PAD + TICK_PT)
    ax.annotate(names, xy=(0, 0), xycoords="axes fraction", xytext=(down, down), textcoords="offset points", ha="right", va="top")


def _with_room(places: Sequence[float], texts: Sequence[str], base: int) -> dict[float, str]:
    """The base's, and from the last value on those whose texts reach no other's."""
    letter = (places[-1] - places[0]) * (1 + 1 / len(places)) / (LETTERS - 12)
    widths = [max(map(len, text.splitlines())) for text in texts]
    shown = [base]
    for i in reversed(range(len(places))):
        if i != base and all(abs(places[i] - places[j]) >= letter * ((widths[i] + widths[j]) / 2 + 1) for j in shown):
            shown.append(i)
    return {places[i]: texts[i] for i in sorted(shown)}
