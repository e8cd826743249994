"""One step, the one nearest to a run's median: the parts of each rank one after the other, below them the all-reduces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from hpcddp.analysis.figures.axis import short_hosts
from hpcddp.analysis.figures.breakdown import LEAST_SHARE
from hpcddp.analysis.figures.colours import GRID, INK, PARTS
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, Style, entitle, legend_of_parts, mark_box, new_figure
from hpcddp.analysis.study.frames import NAMES
from hpcddp.analysis.util.wording import percent, quantity

ROW_MM = 3.6
AROUND_MM = 38.0
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
    with new_figure(style, AROUND_MM + ROW_MM * rows, len(panels)) as (figure, axes):
        for ax, (name, panel) in zip(axes, panels, strict=True):
            _panel(ax, panel, shown_travels(travels, str(name)), end_ms(parts, travels) * 1.01)
            entitle(ax, style, title(panel), most=TITLE_LETTERS)
        legend_of_parts(figure, _handles(parts, travels), "outside lower left")
    return figure


def shown_ranks(panel: pd.DataFrame) -> list[int]:
    """All ranks; of many those from the first to the last that has nothing left to compute, evenly, in their order."""
    own = panel[panel["part"] != "comm_exposed"]
    ordered = (own["end_s"] - own["begin_s"]).groupby(own["rank"]).sum().sort_values(kind="stable").index
    if len(ordered) <= MAX_RANKS:
        return sorted(map(int, ordered))
    return sorted(int(ordered[round(i * (len(ordered) - 1) / (MAX_RANKS - 1))]) for i in range(MAX_RANKS))


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


def _panel(ax: Axes, panel: pd.DataFrame, travels: pd.DataFrame, end_ms: float) -> None:
    ranks = shown_ranks(panel)
    bars = [*_computed(panel, ranks), *_travelled(travels, len(ranks) + GAP)]
    ax.add_collection(PolyCollection([bar.outline for bar in bars], facecolors=[bar.colour for bar in bars], linewidths=0))
    for bar in bars:
        if bar.end > bar.begin:
            mark_box(ax, (bar.begin, bar.end), (bar.low, bar.high), bar.values)
    names = [*rank_names(panel, ranks), *(bucket_name(each) for _, each in travels.iterrows())]
    ax.set_yticks([*range(len(ranks)), *(len(ranks) + GAP + i for i in range(len(travels)))], names)
    ax.set_ylim(len(ranks) + len(travels) + GAP * (len(travels) > 0) - 0.4, -0.6)
    ax.set_xlim(0, end_ms)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
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
    def low(self) -> float:
        return self.row - self.height / 2

    @property
    def high(self) -> float:
        return self.row + self.height / 2

    @property
    def outline(self) -> list[tuple[float, float]]:
        """Its corners."""
        return [(self.begin, self.low), (self.end, self.low), (self.end, self.high), (self.begin, self.high)]


COMPUTED, TRAVELLED = 0.78, 0.5
"""Heights, as shares of a row."""


def _computed(panel: pd.DataFrame, ranks: Sequence[int]) -> Iterator[Bar]:
    """A row per rank, a bar per part."""
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
        travel = {"travels": f"{quantity(done - last)} ms", "until": f"{quantity(done)} ms"}
        yield Bar(last, done, row, TRAVELLED, TRAVELS, name | travel)


def _handles(parts: pd.DataFrame, travels: pd.DataFrame) -> list[Artist]:
    handles: list[Artist] = [Patch(color=PARTS[part], label=NAMES[part]) for part in parts_of_steps(parts)]
    if (travels["last_ready_s"] > travels["first_ready_s"]).any():
        handles.append(Patch(color=WAITS, label="bucket waits"))
    if len(travels):
        handles.append(Patch(color=TRAVELS, label="bucket travels"))
    return handles


def parts_of_steps(parts: pd.DataFrame) -> list[str]:
    """In the order of a step; those that are more than 0 % of it on some rank."""
    lengths = (parts["end_s"] - parts["begin_s"]).astype(float)
    long = lengths > LEAST_SHARE * float(parts["end_s"].max())
    there = {SHOWN_AS.get(part, part) for part in parts.loc[long, "part"]}
    return [part for part in PARTS if part in there]
