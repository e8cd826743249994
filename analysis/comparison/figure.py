"""How much faster one study is than the other, a line per point: ratio, its interval, and how far is near enough."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hpcddp.analysis.comparison.compare import StudyComparison
from hpcddp.analysis.comparison.text import point_names, share
from hpcddp.analysis.figures.colours import BASELINES, FAINT, GRID, INK
from hpcddp.analysis.figures.style import DEFAULT, Style, entitle, new_figure, pt

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
    """Hollow where the verdict rests on the median alone; the band is the threshold on both sides of 1."""
    points = found.points[:MAX_POINTS]
    with new_figure(style, AROUND_MM + LINE_MM * len(points)) as (figure, (ax,)):
        ax.axvspan(1 - found.threshold, 1 + found.threshold, color=GRID, linewidth=0, zorder=0)
        ax.axvline(1, color=FAINT, linewidth=pt(0.9), zorder=1)
        for i, point in enumerate(points):
            colour, ratio = COLOURS[point.judgement], point.ratio
            if ratio.low is not None and ratio.high is not None:
                ax.plot([ratio.low, ratio.high], [i, i], color=colour, zorder=2)
            ax.plot([ratio.ratio], [i], "o", color=colour, markerfacecolor=colour if point.sure else "white", zorder=3)
        ax.set_yticks(range(len(points)), point_names(found)[:MAX_POINTS])
        ax.set_ylim(len(points) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(f"throughput of B / of A; band: {share(found.threshold)}")
        entitle(ax, style, "", "Nodes x GPUs per node")
    return figure
