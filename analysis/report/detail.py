"""Runs looked at closely, on the page: all steps of each point, who is late when, and one step; rows tell their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.analysis.figures.breakdown import layout_lines
from hpcddp.analysis.figures.distribution import HEADS, MAX_ROWS, Ridge, heights, ridges
from hpcddp.analysis.figures.rank_map import blocks, scale, stand_out
from hpcddp.analysis.figures.timeline import (
    SHOWN_AS,
    bucket_name,
    end_ms,
    lane_names,
    seen_parts,
    shown_ranks,
    shown_travels,
    title,
)
from hpcddp.analysis.report.breakdown_bars import part_swatch, square
from hpcddp.analysis.report.chart import figure, legend, tip
from hpcddp.analysis.report.html import Html, join, tag
from hpcddp.analysis.study.breakdown import NAMES
from hpcddp.analysis.study.series import full_names, short_names
from hpcddp.analysis.util.wording import percent, quantity, times, unit
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import count

HEAT = 6
"""Shades on either side of none."""

FLOOR = 78
"""Of 100: where a histogram of timed steps stands, and one of the warm-up hangs."""


def close_figures(found: Findings) -> dict[str, Callable[[], Html]]:
    """What draws them, by the names of the files that show the same; nothing to show is drawn as nothing."""
    close = found.close
    return {
        "steps": lambda: _steps(found) if len(close.times) else Html(),
        "ranks": lambda: join(_ranks(panel) for _, panel in close.ranks.groupby("panel", sort=False)),
        "timeline": lambda: join(_timeline(panel, close.travels) for _, panel in close.parts.groupby("panel", sort=False)),
    }


def _steps(found: Findings) -> Html:
    """A histogram per point about its median."""
    times_ = found.close.times
    edges, points = ridges(times_[times_["row"].isin(times_["row"].unique()[:MAX_ROWS])])
    rows = found.shown.loc[list(points)]
    lines = layout_lines(rows, full_names(found.shown_apart), short_names(found.shown_apart))
    drawn = [
        tag("div", line.text, class_="heading") if line.row is None else _ridge(line.text, edges, points[line.row.name])
        for line in lines
    ]
    heads = tag("div", tag("span"), tag("span"), *(tag("span", head, class_="total faint") for head in HEADS), class_="row")
    ticks = {(value - edges[0]) / (edges[-1] - edges[0]): f"{value:g}" for value in _ticks(edges[0], edges[-1])}
    foot = tag("div", tag("span"), _axis(ticks), class_="row")
    key = legend([square("timed steps", "s-timed"), square("warm-up, apart", "s-warmup"), square("mean", "s-mean")])
    caption = f"Step / its median, by nodes × {unit(rows['device'].iloc[0])}s per node"
    return figure(caption, "", key, tag("div", heads, *drawn, foot, class_="bars ridges"))


def _ridge(name: str, edges: NDArray[np.float64], ridge: Ridge) -> Html:
    values = {
        "steps": f"{ridge.steps:,}".replace(",", " "),
        "median": f"{quantity(ridge.median_s * 1e3)} ms",
        "mean": f"{quantity(ridge.mean * ridge.median_s * 1e3)} ms",
        "5–95 %": f"{times(ridge.low)}–{times(ridge.high)}",
        "99 %": times(ridge.p99),
        "longest": times(ridge.longest),
    }
    if ridge.warmup is not None:
        values["warm-up"] = f"{count(ridge.warmup_steps, 'step')}, median {times(ridge.warmup)}"
    columns = len(edges) - 1
    middle, mean = ((at - edges[0]) / (edges[-1] - edges[0]) * columns for at in (1, min(ridge.mean, edges[-1])))
    shapes = [
        tag("path", d=f"M0,{FLOOR}H{columns}M{middle:.2f},0V{FLOOR}", class_="rule", vector_effect="non-scaling-stroke"),
        tag("path", d=_stairs(ridge.timed_shares, FLOOR, -FLOOR), class_="s-timed"),
        tag("path", d=_stairs(ridge.warmup_shares, FLOOR, 100 - FLOOR), class_="s-warmup"),
        tag("path", d=f"M{mean:.2f},0V{FLOOR}", class_="mean", vector_effect="non-scaling-stroke"),
    ]
    drawn = tag(
        "svg", *shapes, viewBox=f"0 0 {columns} 100", preserveAspectRatio="none", class_="ridge", **tip({"layout": name} | values)
    )
    label = tag("span", name, tag("span", f" {quantity(ridge.median_s * 1e3)} ms", class_="faint"), class_="name")
    numbers = [
        tag("span", text, class_="total faint" if head == "warm-up" else "total")
        for head, text in zip(HEADS, ridge.told, strict=True)
    ]
    return tag("div", label, drawn, *numbers, class_="row")


def _stairs(shares: NDArray[np.float64], floor: float, reach: float) -> str:
    """A path about the columns that hold steps; `reach`: how far the fullest one goes from the floor."""
    if not shares.max() > 0:
        return ""
    return "".join(f"M{i},{floor:g}v{reach * height:.1f}h1V{floor:g}z" for i, height in enumerate(heights(shares)) if height > 0)


def _ticks(low: float, high: float) -> list[float]:
    """Round values, three to six of them."""
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (high - low) / step <= 6)
    return [round(i * step, 2) for i in range(int(np.ceil(low / step)), int(high / step) + 1)]


def _axis(ticks: Mapping[float, str]) -> Html:
    """Text below bars; share of the width -> text."""
    texts = [tag("text", text, x=f"{100 * share:.2f}%", y=12, text_anchor=_anchor(share)) for share, text in ticks.items()]
    return tag("svg", *texts, class_="ticks", aria_hidden="true")


def _anchor(share: float) -> str:
    """Within the width at its ends."""
    return "start" if share < 0.02 else "end" if share > 0.98 else "middle"


def _ranks(panel: pd.DataFrame) -> Html:
    """A row per rank, redder where it needs longer than the median rank."""
    most = scale(panel)
    starts = {block.first: block.name for block in blocks(panel)}
    slow = {round(each.middle): each for each in reversed(stand_out(panel))}
    every = [cells for _, cells in panel.groupby("row", sort=True)]
    beside = [slow[i].text() if i in slow else "" for i in range(len(every))]
    drawn = [_rank(cells, most, starts.get(i), beside[i]) for i, cells in enumerate(every)]
    ends = panel.iloc[-1]
    foot = _axis({0.0: "first timed step", 1.0: f"step {int(ends['first_step'] + ends['steps'])}"})
    shades = [(-HEAT, f"-{most:.0f} %"), (0, "as the median rank"), (HEAT, f"+{most:.0f} % of the step")]
    key = legend([square(text, f"h{shade}") for shade, text in shades])
    rows = tag("div", *drawn, tag("div", tag("span"), foot, tag("span"), class_="row"), class_="bars heat")
    return figure("Each rank's own time, without waiting for others", str(panel["panel"].iloc[0]), key, rows)


def _rank(cells: pd.DataFrame, most: float, name: str | None, beside: str) -> Html:
    """`name`: of the host that begins with this row."""
    first = cells.iloc[0]
    over = cells["over_percent"].astype(float)
    worst = cells.iloc[int(over.argmax())]
    values = {
        "rank": "the host's slowest" if pd.isna(first["rank"]) else str(first["rank"]),
        "host": str(first["host"]),
        "beyond the median rank": f"{over.median():+.1f} % of the step",
        "most": f"{worst['over_percent']:+.1f} %, from timed step {worst['first_step']} on",
    }
    shades = np.clip(np.rint(over / most * HEAT), -HEAT, HEAT).astype(int)
    at, shapes = 0, []
    for shade, members in groupby(shades):
        width = len(list(members))
        shapes += [tag("rect", x=at, y=0, width=width, height=1, class_=f"h{shade}")]
        at += width
    drawn = tag("svg", *shapes, viewBox=f"0 0 {at} 1", preserveAspectRatio="none", class_="bar", **tip(values))
    return tag(
        "div",
        tag("span", name or "", class_="name"),
        drawn,
        tag("span", beside, class_="total"),
        class_="row begins" if name else "row",
    )


def _timeline(panel: pd.DataFrame, travels: pd.DataFrame) -> Html:
    """A bar per rank, a lane per all-reduce."""
    ranks, mine = shown_ranks(panel), shown_travels(travels, str(panel["panel"].iloc[0]))
    whole_ms = end_ms(panel, mine)
    bars = [
        _row(name, list(_parts(panel[panel["rank"] == rank], whole_ms)), f"{name}: parts of the step")
        for name, rank in zip(lane_names(panel, ranks), ranks, strict=True)
    ]
    lanes = [_row(bucket_name(each), _travel(each, whole_ms), f"{bucket_name(each)}: its way") for _, each in mine.iterrows()]
    foot = _axis({0.0: "0", 0.5: quantity(whole_ms / 2), 1.0: f"{quantity(whole_ms)} ms"})
    entries = [part_swatch(part) for part in seen_parts(panel)]
    entries += [square("bucket waits for a rank", "b-waits"), square("bucket travels", "b-travels")] if len(mine) else []
    made = tag("div", *bars, *lanes, tag("div", tag("span"), foot, class_="row"), class_="bars lanes")
    return figure("One step, the nearest to the run's median", title(panel), legend(entries), made)


def _row(name: str, shapes: Sequence[Html], label: str) -> Html:
    bar = tag("svg", *shapes, class_="bar", role="group", aria_label=label)
    return tag("div", tag("span", name, class_="name"), bar, class_="row")


def _parts(mine: pd.DataFrame, whole_ms: float) -> Iterator[Html]:
    for _, each in mine.iterrows():
        part, begin, end = SHOWN_AS.get(each["part"], each["part"]), each["begin_s"] * 1e3, each["end_s"] * 1e3
        if end > begin:
            who = {"rank": f"{each['rank']} on {each['host']}"}
            told = {
                NAMES[part]: f"{quantity(end - begin)} ms",
                "from": f"{quantity(begin)} ms",
                "of the step": percent((end - begin) / (each["step_s"] * 1e3)),
            }
            yield _piece(begin, end, whole_ms, f"p-{part}", told | who)


def _travel(each: pd.Series[Any], whole_ms: float) -> list[Html]:
    first, last, done = (float(each[name]) * 1e3 for name in ("first_ready_s", "last_ready_s", "done_s"))
    who = {bucket_name(each): ""}
    return [
        _piece(first, last, whole_ms, "b-waits", who | {"waits for the last rank": f"{quantity(last - first)} ms"}),
        _piece(
            last, done, whole_ms, "b-travels", who | {"travels": f"{quantity(done - last)} ms", "until": f"{quantity(done)} ms"}
        ),
    ]


def _piece(begin: float, end: float, whole: float, kind: str, values: Mapping[str, str]) -> Html:
    place = {"x": f"{100 * begin / whole:.3f}%", "width": f"{100 * max(end - begin, 0) / whole:.3f}%", "height": "100%"}
    return tag("rect", class_=kind, **place, **tip(values))


def heat_rules(slower: str, faster: str) -> str:
    """The classes of shades: towards one colour or the other from what the page has for none."""
    shades = range(-HEAT, HEAT + 1)
    mixed = {n: f"color-mix(in srgb,{slower if n > 0 else faster} {100 * abs(n) / HEAT:.0f}%,var(--none))" for n in shades}
    return "".join(f".h{n}{{fill:{colour}}}" for n, colour in mixed.items())
