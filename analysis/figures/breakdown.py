"""Where the step goes: a bar per point, its parts in the order of a step and always in the same colours.

And one step, the one nearest to a run's median: the parts of each rank one after the other, below them the all-reduces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

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
from hpcddp.analysis.verdicts.context import step_s

BESIDE_LETTERS = 10
"""What fits to the left of bars, and of steps, which have numbers to their right as well."""

LEAST_SHARE = 0.005
"""Of the step: what is not more is 0 %, as tables round, and a legend needs no such part."""

BAR = 0.72
"""Height of a bar, as a share of a line."""

BAR_MM = 5.2
AROUND_MM = 32.0

TEXT_MM = 3.7
"""A line of a heading."""

BEFORE_MM = 1.6
"""Above a heading, which belongs to what is below it."""


class Line(NamedTuple):
    """A bar with its name."""

    text: str
    at: float
    """Its middle, in bars from the first line on."""
    row: pd.Series[Any]
    """Of the scaling table."""

    @property
    def layout(self) -> str:
        """Of a bar that is named by its GPUs, too."""
        return self.text if " x " in self.text else f"{self.row['nodes']} x {self.row['gpus_per_node']}"


class BarLayout(NamedTuple):
    """Bars, and headings between them: texts, maybe of several lines, and their middles."""

    bars: list[Line]
    headings: list[tuple[str, float]]
    height: float
    """Of all, in bars."""


def breakdown_figure(scaling: pd.DataFrame, names: dict[str, str], short: dict[str, str], style: Style = DEFAULT) -> MarkedFigure:
    """`scaling`: rows of scaling_frame, drawn from top to bottom; a series of several points gets a heading."""
    layout = lay_lines(scaling, names, short, BAR_MM)
    note = in_column(_note(scaling), figure_style.letters(style, 1))
    shares = shown_parts(scaling).astype(float).div(step_total_s(scaling).astype(float), axis=0).max()
    visible = [str(part) for part, share in shares.items() if share > LEAST_SHARE]
    with new_figure(style, AROUND_MM + BAR_MM * layout.height + LINE_MM * len(note)) as (figure, (ax,)):
        draw_bars(ax, _bars(layout, scaling), pt(0.4))
        handles = part_handles([part for part in visible if part != "comm_exposed" or "transfer" not in visible])
        strokes = _write_lengths(ax, layout)
        name_rows(ax, [line.at for line in layout.bars], [line.text for line in layout.bars], layout.height - 0.4)
        ms_axis(ax, max(step_total_s(scaling).max(), scaling["step_s"].max()) * 1e3 * 1.24)
        head_rows(ax, style, "Where the step goes, by", scaling, layout)
        parts_legend(figure, [*handles, *strokes], note)
    return figure


class Bar(NamedTuple):
    """From `begin` to `end` in ms, about the middle of its row."""

    begin: float
    end: float
    row: float
    height: float
    colour: str
    values: Mapping[str, str]
    """What it says when it is pointed at."""


def draw_bars(ax: Axes, bars: Iterable[Bar], edge_pt: float = 0.0) -> None:
    """Those longer than nothing; white edges of that width tell neighbours apart."""
    for bar in bars:
        if bar.end > bar.begin:
            low, high = bar.row - bar.height / 2, bar.row + bar.height / 2
            shape: dict[str, Any] = {"facecolor": bar.colour, "edgecolor": "white", "linewidth": edge_pt}
            ax.add_patch(Rectangle((bar.begin, low), bar.end - bar.begin, bar.height, **shape))
            mark_box(ax, (bar.begin, bar.end), (low, high), bar.values)


def part_handles(parts: Sequence[str]) -> list[Artist]:
    """Of parts, or of what a bucket does."""
    return [Patch(color=BUCKETS.get(part) or PARTS[part], label=NAMES.get(part, part)) for part in parts]


def ms_axis(ax: Axes, end_ms: float) -> None:
    """From 0."""
    ax.set_xlim(0, end_ms)
    ax.grid(axis="x", color=GRID)
    ax.set_xlabel("ms")


def _note(scaling: pd.DataFrame) -> str:
    """Of which runs the parts are, and what an exchange is that was not split."""
    runs = sorted(set(scaling["breakdown_n"].astype(int)))
    of = "each point's only run" if runs == [1] else f"the median run of {' to '.join(map(str, sorted({runs[0], runs[-1]})))}"
    parts = shown_parts(scaling)
    mixed = {"comm_exposed", "transfer"} <= set(parts) and (parts["comm_exposed"] > 0).any()
    return f"Parts are of {of}." + (" Without sync wait beside it, an exchange includes it." if mixed else "")


def head_rows(ax: Axes, style: Style, text: str, scaling: pd.DataFrame, layout: BarLayout) -> None:
    """Between the rows their headings; above them what they are by, on paper that alone."""
    for heading, at in layout.headings:
        figure_style.at_edge(ax, heading, (0, at), "data", 0)
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
    bars, headings, height = list[Line](), list[tuple[str, float]](), 0.0
    for i in ordered:
        key, points = series[i]
        if len(series) > 1 and not beside[i]:
            text = in_column(f"the same with {short[key]}" if i else names[key])
            space = (len(text) * TEXT_MM + (BEFORE_MM if i else 0)) / bar_mm
            headings.append(("\n".join(text), height + space - len(text) * TEXT_MM / bar_mm / 2 - 0.5))
            height += space
        for _, row in points.iterrows():
            size = str(row["gpus"]) if by_gpus(scaling) else f"{row['nodes']} x {row['gpus_per_node']}"
            bars.append(Line(f"{size}, {short[key]}" if beside[i] else size, height, row))
            height += 1
    return BarLayout(bars, headings, height)


def _bars(layout: BarLayout, rows: pd.DataFrame) -> Iterator[Bar]:
    parts_ms = shown_parts(rows).astype(float).clip(lower=0).fillna(0) * 1e3
    for line in layout.bars:
        begin = 0.0
        for part, length in parts_ms.loc[[line.row.name]].iloc[0].items():
            share = percent(length / (step_s(line.row) * 1e3))
            values = {NAMES[str(part)]: f"{quantity(length)} ms", "of the step": share, "layout": line.layout}
            yield Bar(begin, begin + length, line.at, BAR, PARTS[str(part)], values)
            begin += length


def _write_lengths(ax: Axes, layout: BarLayout) -> list[Line2D]:
    """The step's after each bar; a stroke where it ends without the communication hook, unless that is the bar, or not known."""
    strokes = []
    for line in layout.bars:
        plain_ms, step_ms = float(line.row["step_s"]) * 1e3, step_s(line.row) * 1e3
        at = (max(step_ms, plain_ms), line.at)
        ax.annotate(f"{quantity(step_ms)} ms", at, (pt(3), 0), textcoords="offset points", va="center")
        if pd.notna(line.row["step_hook_s"]) and not line.row["hook"]:
            strokes.append((plain_ms, line.at))
    stroke: dict[str, Any] = {"color": INK, "label": "step without hook", "markersize": pt(9), "markeredgewidth": pt(1.2)}
    return ax.plot(*zip(*strokes, strict=True), "|", **stroke) if strokes else []


RANK_MM = 3.6
TIMELINE_MM = 38.0
MAX_RANKS = 12
MAX_BUCKETS = 8
TITLE_LETTERS = 34

SHOWN_AS = {"record": "other"}
"""Parts that have another's colour and name, as in the breakdown."""

WAITS, TRAVELS = GRID, INK
BUCKETS = {"bucket waits for a rank": WAITS, "bucket in flight": TRAVELS}


def timeline_figure(parts: pd.DataFrame, travels: pd.DataFrame, style: Style = DEFAULT) -> MarkedFigure:
    """Columns findings.PARTS_COLUMNS and TRAVELS_COLUMNS; a panel per run."""
    panels = [(name, panel) for name, panel in parts.groupby("panel", sort=False)]
    rows = max(len(shown_ranks(panel)) + len(shown_travels(travels, str(name))) for name, panel in panels)
    with new_figure(style, TIMELINE_MM + RANK_MM * rows, len(panels)) as (figure, axes):
        for ax, (name, panel) in zip(axes, panels, strict=True):
            _timeline_panel(ax, panel, shown_travels(travels, str(name)), end_ms(parts, travels) * 1.01)
            entitle(ax, style, title(panel), most=TITLE_LETTERS)
        untitled = [] if style.titles or len(panels) > 1 else in_column(title(panels[0][1]), figure_style.letters(style, 1))
        late = (travels["last_ready_s"] > travels["first_ready_s"]).any()
        of_buckets = ["bucket waits for a rank"] * bool(late) + ["bucket in flight"] * bool(len(travels))
        parts_legend(figure, part_handles([*parts_of_steps(parts), *of_buckets]), untitled)
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
    draw_bars(ax, [*_computed(panel, ranks), *_travelled(travels, len(ranks) + GAP)])
    names = [*rank_names(panel, ranks), *(bucket_name(each) for _, each in travels.iterrows())]
    at = [*range(len(ranks)), *(len(ranks) + GAP + i for i in range(len(travels)))]
    name_rows(ax, at, names, len(ranks) + len(travels) + GAP * (len(travels) > 0) - 0.4)
    ms_axis(ax, end_ms)


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


def parts_of_steps(parts: pd.DataFrame) -> list[str]:
    """In the order of a step; those that are more than 0 % of it on some rank."""
    lengths = (parts["end_s"] - parts["begin_s"]).astype(float)
    long = lengths > LEAST_SHARE * float(parts["end_s"].max())
    there = {SHOWN_AS.get(part, part) for part in parts.loc[long, "part"]}
    return [part for part in PARTS if part in there]
