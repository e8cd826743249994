"""Where the step goes: a bar per point, its parts in the order of a step and always in the same colours.

And one step, the one nearest to a run's median: the parts of each rank one after the other, below them the all-reduces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from hpcddp.analysis.figures import style as figure_style
from hpcddp.analysis.figures.axis import evenly, name_rows, short_hosts
from hpcddp.analysis.figures.colours import FAINT, GRID, INK, PARTS
from hpcddp.analysis.figures.style import (
    DEFAULT,
    LINE_MM,
    MarkedFigure,
    Style,
    entitle,
    in_column,
    mark_box,
    new_figure,
    parts_legend,
    pt,
)
from hpcddp.analysis.study.frames import NAMES, shown_parts, step_total_s
from hpcddp.analysis.util.wording import percent, quantity, unit

BESIDE_LETTERS = 10
"""What fits to the left of bars, and of steps, which have numbers to their right as well."""

LEAST_SHARE = 0.005
"""Of the step: what is not more is 0 %."""

BAR = 0.72
"""Height of a bar, as a share of a line."""

BAR_MM = 5.2
AROUND_MM = 32.0

TEXT_MM = 3.7
"""A line of a heading."""

BEFORE_MM = 1.6
"""Above a heading, which belongs to what is below it."""


@dataclass(frozen=True)
class Line:
    """One line of the figure: a bar with its name, or (no `row`) a heading, maybe of several lines of text."""

    text: str
    at: float
    """Its middle, in bars from the first line on."""
    row: pd.Series[Any] | None = None

    @property
    def layout(self) -> str:
        """Of a bar that is named by its GPUs, too."""
        return self.text if self.row is None or " x " in self.text else f"{self.row['nodes']} x {self.row['gpus_per_node']}"


@dataclass(frozen=True)
class BarLayout:
    """Lines from top to bottom."""

    lines: list[Line]
    height: float
    """Of all, in bars."""

    @property
    def bars(self) -> dict[Any, float]:
        """Row of the scaling table -> the middle of its bar."""
        return {line.row.name: line.at for line in self.lines if line.row is not None}


def breakdown_figure(scaling: pd.DataFrame, names: dict[str, str], short: dict[str, str], style: Style = DEFAULT) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, drawn from top to bottom; a series of several points gets a heading."""
    layout = lay_lines(scaling, names, short, BAR_MM)
    note = in_column(_note(scaling), figure_style.letters(style, 1))
    with new_figure(style, AROUND_MM + BAR_MM * layout.height + LINE_MM * len(note)) as (figure, (ax,)):
        heights, bars = list(layout.bars.values()), scaling.loc[list(layout.bars)]
        handles = [*_bars(ax, heights, bars), *_without_hook(ax, heights, bars)]
        _mark_parts(ax, layout.lines, bars)
        for line in layout.lines:
            _write_beside(ax, line)
        _axes(ax, layout, scaling)
        head_sizes(ax, style, "Where the step goes, by", scaling)
        parts_legend(figure, handles, note)
    return figure


def _note(scaling: pd.DataFrame) -> str:
    """Of which runs the parts are, and what an exchange is that was not split."""
    runs = sorted(set(scaling["breakdown_n"].astype(int)))
    of = "each point's only run" if runs == [1] else f"the median run of {' to '.join(map(str, sorted({runs[0], runs[-1]})))}"
    parts = shown_parts(scaling)
    mixed = {"comm_exposed", "transfer"} <= set(parts) and (parts["comm_exposed"] > 0).any()
    return f"Parts are of {of}." + (" Without sync wait beside it, an exchange includes it." if mixed else "")


def head_sizes(ax: Axes, style: Style, text: str, scaling: pd.DataFrame) -> None:
    """Above the rows what they are by; on paper that alone."""
    gpus = f"{unit(scaling['device'].iloc[0])}s"
    by = gpus if by_gpus(scaling) else f"nodes x {gpus} per node"
    if style.titles:
        figure_style.head(ax, f"{text} {by}")
    else:
        figure_style.at_edge(ax, by, (0, 1), "axes fraction", 2, va="bottom", color=FAINT)


def by_gpus(scaling: pd.DataFrame) -> bool:
    """Whether the number of GPUs says which point it is: one series, its nodes full wherever there are several."""
    several = scaling[scaling["nodes"] > 1]
    full = bool((several["gpus_per_node"] == scaling["gpus_per_node"].max()).all())
    return full and scaling["series"].nunique() == 1 and scaling["gpus"].is_unique


def lay_lines(scaling: pd.DataFrame, names: dict[str, str], short: dict[str, str], bar_mm: float) -> BarLayout:
    """Headings and bars: `16 x 4` under its series' heading; behind the first series those of one point that differ from it in
    little, `1 x 4, workers 2`. Headings of the others say what differs from the first. `bar_mm`: a bar with the space around it.
    """
    series = [(str(key), points) for key, points in scaling.groupby("series", sort=False)]
    beside = [len(points) == 1 and len(short[key]) <= BESIDE_LETTERS and i > 0 for i, (key, points) in enumerate(series)]
    ordered = sorted(range(len(series)), key=lambda i: (i > 0, not beside[i]))
    lines, height = list[Line](), 0.0
    for i in ordered:
        key, points = series[i]
        if len(series) > 1 and not beside[i]:
            text = in_column(f"the same with {short[key]}" if i else names[key])
            space = (len(text) * TEXT_MM + (BEFORE_MM if i else 0)) / bar_mm
            lines.append(Line("\n".join(text), height + space - len(text) * TEXT_MM / bar_mm / 2 - 0.5))
            height += space
        for _, row in points.iterrows():
            size = str(row["gpus"]) if by_gpus(scaling) else f"{row['nodes']} x {row['gpus_per_node']}"
            lines.append(Line(f"{size}, {short[key]}" if beside[i] else size, height, row))
            height += 1
    return BarLayout(lines, height)


def _bars(ax: Axes, heights: Sequence[float], rows: pd.DataFrame) -> list[Artist]:
    """Draws the parts next to each other; returns handles for those that anyone can see."""
    left = pd.Series(0.0, index=rows.index)
    parts = shown_parts(rows)
    for part, seconds in parts.items():
        width = (seconds.fillna(0).astype(float) * 1e3).clip(lower=0)
        if width.max() > 0:
            ax.barh(heights, width, left=left, height=BAR, color=PARTS[str(part)], edgecolor="white", linewidth=pt(0.4))
        left = left + width
    visible = visible_parts(parts, step_total_s(rows))
    return [
        Patch(color=PARTS[part], label=NAMES[part]) for part in visible if part != "comm_exposed" or "transfer" not in visible
    ]


def visible_parts(parts: pd.DataFrame, steps_s: pd.Series[Any]) -> list[str]:
    """Those that are more than 0 % of some point's step, as tables round: a legend needs no others."""
    shares = parts.astype(float).div(steps_s.astype(float), axis=0).max()
    return [str(part) for part, share in shares.items() if share > LEAST_SHARE]


def _mark_parts(ax: Axes, lines: Sequence[Line], rows: pd.DataFrame) -> None:
    bars = [(line.at, line.layout) for line in lines if line.row is not None]
    parts_ms = shown_parts(rows).astype(float).clip(lower=0).fillna(0) * 1e3
    for (height, name), (_, parts), step_s in zip(bars, parts_ms.iterrows(), step_total_s(rows).astype(float), strict=True):
        left_ms = 0.0
        for part, length_ms in parts[parts > 0].items():
            share = percent(length_ms / (step_s * 1e3))
            values = {NAMES[str(part)]: f"{quantity(length_ms)} ms", "of the step": share, "layout": name}
            mark_box(ax, (left_ms, left_ms + length_ms), (height - BAR / 2, height + BAR / 2), values)
            left_ms += length_ms


def _without_hook(ax: Axes, heights: Sequence[float], rows: pd.DataFrame) -> list[Artist]:
    """A stroke where the step ends without the communication hook; nothing where that is the bar, or not known."""
    both = rows["step_hook_s"].notna() & ~rows["hook"]
    if not both.any():
        return []
    ends_ms = rows.loc[both, "step_s"].astype(float) * 1e3
    at = [height for height, known in zip(heights, both, strict=True) if known]
    return list(ax.plot(ends_ms, at, "|", color=INK, label="step without hook", markersize=pt(9), markeredgewidth=pt(1.2)))


def _write_beside(ax: Axes, line: Line) -> None:
    """The step's length after the bar, and after the stroke where that is longer; a heading from the figure's edge on."""
    if line.row is None:
        figure_style.at_edge(ax, line.text, (0, line.at), "data", 0)
        return
    at_ms = max(_step_ms(line.row), float(line.row["step_s"]) * 1e3)
    ax.annotate(
        f"{quantity(_step_ms(line.row))} ms", (at_ms, line.at), xytext=(pt(3), 0), textcoords="offset points", va="center"
    )


def _step_ms(row: pd.Series[Any]) -> float:
    """What the bar adds up to."""
    return float(row["step_s"] if pd.isna(row["step_hook_s"]) else row["step_hook_s"]) * 1e3


def _axes(ax: Axes, layout: BarLayout, scaling: pd.DataFrame) -> None:
    name_rows(ax, list(layout.bars.values()), [line.text for line in layout.lines if line.row is not None], layout.height - 0.4)
    ax.set_xlim(0, max(step_total_s(scaling).max(), scaling["step_s"].max()) * 1e3 * 1.24)
    ax.grid(axis="x", color=GRID)
    ax.set_xlabel("ms")


RANK_MM = 3.6
TIMELINE_MM = 38.0
MAX_RANKS = 12
MAX_BUCKETS = 8
TITLE_LETTERS = 34

SHOWN_AS = {"record": "other"}
"""Parts that have another's colour and name, as in the breakdown."""

WAITS, TRAVELS = GRID, INK


def timeline_figure(parts: pd.DataFrame, travels: pd.DataFrame, style: Style = DEFAULT) -> MarkedFigure:
    """Columns findings.PARTS_COLUMNS and TRAVELS_COLUMNS; a panel per run."""
    panels = [(name, panel) for name, panel in parts.groupby("panel", sort=False)]
    rows = max(len(shown_ranks(panel)) + len(shown_travels(travels, str(name))) for name, panel in panels)
    with new_figure(style, TIMELINE_MM + RANK_MM * rows, len(panels)) as (figure, axes):
        for ax, (name, panel) in zip(axes, panels, strict=True):
            _timeline_panel(ax, panel, shown_travels(travels, str(name)), end_ms(parts, travels) * 1.01)
            entitle(ax, style, title(panel), most=TITLE_LETTERS)
        untitled = [] if style.titles or len(panels) > 1 else in_column(title(panels[0][1]), figure_style.letters(style, 1))
        parts_legend(figure, _handles(parts, travels), untitled)
    return figure


def shown_ranks(panel: pd.DataFrame) -> list[int]:
    """All ranks; of many those from the first to the last that has nothing left to compute, evenly, in their order."""
    own = panel[panel["part"] != "comm_exposed"]
    ordered = (own["end_s"] - own["begin_s"]).groupby(own["rank"]).sum().sort_values(kind="stable").index
    return sorted(map(int, evenly(list(ordered), MAX_RANKS)))


def shown_travels(travels: pd.DataFrame, panel: str) -> pd.DataFrame:
    """The panel's all-reduces in the order in which they begin; of many the first and the last ones."""
    mine = travels[travels["panel"] == panel]
    return mine if len(mine) <= MAX_BUCKETS else pd.concat([mine.iloc[: MAX_BUCKETS // 2], mine.iloc[-MAX_BUCKETS // 2 :]])


def title(panel: pd.DataFrame) -> str:
    """Which step it is, and what is left out."""
    first, ranks = panel.iloc[0], panel["rank"].nunique()
    some = f"; {MAX_RANKS} of {ranks} ranks, the fastest and the slowest among them" if ranks > MAX_RANKS else ""
    clocks = "" if first["aligned"] else "; clocks not known: ranks begin together"
    return f"{first['panel']}: step {first['step']}{some}{clocks}"


def _timeline_panel(ax: Axes, panel: pd.DataFrame, travels: pd.DataFrame, end_ms: float) -> None:
    ranks = shown_ranks(panel)
    bars = [*_computed(panel, ranks), *_travelled(travels, len(ranks) + GAP)]
    ax.add_collection(PolyCollection([bar.outline for bar in bars], facecolors=[bar.colour for bar in bars], linewidths=0))
    for bar in bars:
        if bar.end > bar.begin:
            mark_box(ax, (bar.begin, bar.end), bar.sides, bar.values)
    names = [*rank_names(panel, ranks), *(bucket_name(each) for _, each in travels.iterrows())]
    at = [*range(len(ranks)), *(len(ranks) + GAP + i for i in range(len(travels)))]
    name_rows(ax, at, names, len(ranks) + len(travels) + GAP * (len(travels) > 0) - 0.4)
    ax.set_xlim(0, end_ms)
    ax.grid(axis="x", color=GRID)
    ax.set_xlabel("ms")


GAP = 0.4
"""Rows between ranks and all-reduces."""


def rank_names(panel: pd.DataFrame, ranks: Sequence[int]) -> list[str]:
    """`rank 5`; the first of a host with its name where there are several."""
    of_rank = panel.drop_duplicates("rank").set_index("rank")["host"]
    short = short_hosts(of_rank)
    hosts = [short[str(of_rank[rank])] for rank in ranks]
    new = [of_rank.nunique() > 1 and host != before for host, before in zip(hosts, ["", *hosts], strict=False)]
    return [f"{host} rank {rank}" if first else f"rank {rank}" for rank, host, first in zip(ranks, hosts, new, strict=True)]


def bucket_name(each: pd.Series[Any]) -> str:
    """`bucket 0, 25.0 MB`"""
    size = int(each["bytes"])
    return f"bucket {each['bucket']}, {f'{quantity(size / 1e6)} MB' if size >= 10_000 else f'{size} B'}"


def end_ms(parts: pd.DataFrame, travels: pd.DataFrame) -> float:
    """When all that is shown has ended."""
    return float(max(parts["end_s"].max(), travels["done_s"].max() if len(travels) else 0)) * 1e3


class Bar(NamedTuple):
    """From `begin` to `end` in ms, about the middle of its row."""

    begin: float
    end: float
    row: float
    height: float
    colour: str
    values: Mapping[str, str]
    """What it says when it is pointed at."""

    @property
    def sides(self) -> tuple[float, float]:
        """Where it begins and ends vertically."""
        return self.row - self.height / 2, self.row + self.height / 2

    @property
    def outline(self) -> list[tuple[float, float]]:
        """Its corners."""
        low, high = self.sides
        return [(self.begin, low), (self.end, low), (self.end, high), (self.begin, high)]


COMPUTED, TRAVELLED = 0.78, 0.5
"""Heights, as shares of a row."""


def _computed(panel: pd.DataFrame, ranks: Sequence[int]) -> Iterator[Bar]:
    for row, rank in enumerate(ranks):
        for _, each in panel[panel["rank"] == rank].iterrows():
            part, begin, end = SHOWN_AS.get(each["part"], each["part"]), 1e3 * float(each["begin_s"]), 1e3 * float(each["end_s"])
            values = {
                NAMES[part]: f"{quantity(end - begin)} ms",
                "from": f"{quantity(begin)} ms",
                "of the step": percent((end - begin) / (float(each["step_s"]) * 1e3)),
                "rank": f"{rank} on {each['host']}",
            }
            yield Bar(begin, end, row, COMPUTED, PARTS[part], values)


def _travelled(travels: pd.DataFrame, first_row: float) -> Iterator[Bar]:
    """A row each: pale while ranks are ready that wait for others, dark while it travels."""
    for number, (_, each) in enumerate(travels.iterrows()):
        first, last, done = (float(each[name]) * 1e3 for name in ("first_ready_s", "last_ready_s", "done_s"))
        name, row = {bucket_name(each): ""}, first_row + number
        yield Bar(first, last, row, COMPUTED, WAITS, name | {"waits for the last rank": f"{quantity(last - first)} ms"})
        travel = {"in flight": f"{quantity(done - last)} ms", "until": f"{quantity(done)} ms"}
        yield Bar(last, done, row, TRAVELLED, TRAVELS, name | travel)


def _handles(parts: pd.DataFrame, travels: pd.DataFrame) -> list[Artist]:
    handles: list[Artist] = [Patch(color=PARTS[part], label=NAMES[part]) for part in parts_of_steps(parts)]
    if (travels["last_ready_s"] > travels["first_ready_s"]).any():
        handles.append(Patch(color=WAITS, label="bucket waits for a rank"))
    if len(travels):
        handles.append(Patch(color=TRAVELS, label="bucket in flight"))
    return handles


def parts_of_steps(parts: pd.DataFrame) -> list[str]:
    """In the order of a step; those that are more than 0 % of it on some rank."""
    lengths = (parts["end_s"] - parts["begin_s"]).astype(float)
    long = lengths > LEAST_SHARE * float(parts["end_s"].max())
    there = {SHOWN_AS.get(part, part) for part in parts.loc[long, "part"]}
    return [part for part in PARTS if part in there]
