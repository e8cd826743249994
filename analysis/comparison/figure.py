"""How much faster one study is than the other, a line per point: ratio, its interval, and how far is near enough."""

from __future__ import annotations

from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hpcddp.analysis.comparison.compare import ComparedPoint, StudyComparison
from hpcddp.analysis.comparison.text import point_names, share
from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK
from hpcddp.analysis.figures.style import DEFAULT, Style, entitle, new_figure, pt
from hpcddp.analysis.study.effects import Spread, spread_note

LINE_MM = 5.0
AROUND_MM = 24.0
MAX_POINTS = 40
"""Points that the figure shows, the first ones; the table has them all."""

COLOURS = {
    **dict.fromkeys(("slower", "slightly slower"), BASELINES["1gpu"]),
    **dict.fromkeys(("faster", "slightly faster"), BASELINES["1node"]),
    **{"same": INK, "unclear": FAINT},
}
"""What differs has a colour; the band says whether it matters."""


def compare_figure(found: StudyComparison, style: Style = DEFAULT) -> Figure:
    """Hollow dots of runs where they are too few for an interval; the band is the threshold on both sides of 1."""
    points = found.points[:MAX_POINTS]
    spreads = [_spread(i, point) for i, point in enumerate(points)]
    note = spread_note(spreads, "the ratio of medians", "runs of B over the median of A")
    with new_figure(style, AROUND_MM + LINE_MM * len(points), 1, note) as (figure, (ax,)):
        ax.axvspan(1 - found.threshold, 1 + found.threshold, color=GRID, linewidth=0, zorder=0)
        ax.axvline(1, color=FAINT, linewidth=pt(0.9), zorder=1)
        for i, (point, spread) in enumerate(zip(points, spreads, strict=True)):
            colour = COLOURS[point.judgement]
            if spread.ends:
                ax.plot(spread.ends, [i, i], color=colour, zorder=2)
            elif len(spread.runs) > 1:
                ax.plot([spread.middle], [i], "|", color=colour, markersize=pt(9), zorder=2)
            face, at = (colour, [spread.middle]) if spread.ends else ("white", spread.runs)
            ax.plot(at, [i] * len(at), "o", color=colour, markerfacecolor=face, zorder=3)
        ax.set_yticks(range(len(points)), point_names(found)[:MAX_POINTS])
        ax.set_ylim(len(points) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(f"throughput of B / of A; band: {share(found.threshold)}")
        entitle(ax, style, "", "Nodes x GPUs per node")
    return figure


def _spread(row: int, point: ComparedPoint) -> Spread:
    ratio, before = point.ratio, median(point.a.rates)
    ends = (ratio.low, ratio.high) if point.sure and ratio.low is not None and ratio.high is not None else None
    return Spread(row, ratio.ratio, ends, [float(rate / before) for rate in point.b.rates])
