"""Where the step goes, as bars whose parts tell their values; names and times are text, so that they fit any width."""

from __future__ import annotations

from typing import Any, cast

import pandas as pd

from hpcddp.analysis.figures.breakdown import layout_lines, seen_parts
from hpcddp.analysis.figures.style import DEFAULT
from hpcddp.analysis.report.chart import figure, tip
from hpcddp.analysis.report.html import Html, tag
from hpcddp.analysis.study.breakdown import NAMES, shown_parts, whole_step
from hpcddp.analysis.study.series import full_names, short_names
from hpcddp.analysis.util.wording import percent, quantity, unit
from hpcddp.analysis.verdicts.findings import Findings


def breakdown(found: Findings) -> Html:
    """A bar per point, its parts in the order of a step; which of very many are shown is said."""
    rows, every = found.shown[: DEFAULT.most_bars], len(found.shown)
    parts = shown_parts(rows).astype(float)
    parts = parts.loc[:, parts.clip(lower=0).max() > 0]
    whole = whole_step(rows).astype(float)
    lines = layout_lines(rows, full_names(found.shown_apart), short_names(found.shown_apart))
    scale = 100 / float(whole.max())
    bars = [
        tag("div", line.text, class_="heading")
        if line.row is None
        else _bar(
            line.text, cast("pd.Series[Any]", parts.loc[cast(int, line.row.name)]), float(whole[cast(int, line.row.name)]), scale
        )
        for line in lines
    ]
    entries = [part_swatch(part) for part in seen_parts(parts, whole)]
    title = f"Step, ms, by nodes × {unit(rows['device'].iloc[0])}s per node"
    some = f"the first {len(rows)} of {every} points" if len(rows) < every else ""
    return figure(title, some, tag("ul", *entries, class_="legend"), tag("div", *bars, class_="bars"))


def _bar(name: str, parts: pd.Series[Any], whole_s: float, scale: float) -> Html:
    """The parts side by side in per cent of the longest step."""
    left, cells = 0.0, []
    for part, seconds in parts.items():
        if not seconds > 0:
            continue
        values = {NAMES[str(part)]: f"{quantity(seconds * 1e3)} ms", "of the step": percent(seconds / whole_s), "layout": name}
        place = {"x": f"{left * scale:.3f}%", "width": f"{seconds * scale:.3f}%", "height": "100%"}
        cells.append(tag("rect", class_=f"p-{part}", **place, **tip(values)))
        left += seconds
    bar = tag("svg", *cells, class_="bar", role="group", aria_label=f"{name}: parts of the step")
    return tag("div", tag("span", name, class_="name"), bar, tag("span", quantity(whole_s * 1e3), class_="total"), class_="row")


def part_swatch(part: str) -> Html:
    """An entry of a legend."""
    return square(NAMES[part], f"p-{part}")


def square(text: str, kind: str) -> Html:
    """An entry of a legend; `kind` is a class of the page's style."""
    drawn = tag("svg", tag("rect", width=12, height=12, class_=kind), viewBox="0 0 12 12", class_="square", aria_hidden="true")
    return tag("li", drawn, text)
