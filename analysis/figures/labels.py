"""Direct labels: each line's name at its right end, moved apart where they would overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpcddp.analysis.figures.style import lay_out, pt

LINE_PT = 9.5
"""Height of a line of text with its space, at a type of 8 points."""


@dataclass(frozen=True)
class EndLabel:
    """A text at the right edge of the axes, at the height of `y` (data), in `colour`."""

    y: float
    text: str
    colour: str


def end_labels(ax: Axes, labels: Sequence[EndLabel]) -> None:
    """Draws the labels; the axis limits must be final."""
    ordered = sorted(labels, key=lambda label: (label.y, label.text))
    figure = ax.figure
    assert isinstance(figure, Figure)
    lay_out(figure)
    to_pt = 72.0 / figure.dpi
    heights = [ax.transData.transform((1.0, label.y))[1] * to_pt for label in ordered]
    for label, height, wanted in zip(ordered, spread_out(heights, pt(LINE_PT)), heights, strict=True):
        ax.annotate(
            label.text,
            xy=(1, label.y),
            xycoords=("axes fraction", "data"),
            xytext=(pt(4), height - wanted),
            textcoords="offset points",
            color=label.colour,
            va="center",
            ha="left",
            annotation_clip=False,
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved as little as need be for `gap` between neighbours: those that touch share their middle."""
    blocks: list[tuple[list[float], float]] = []
    for height in heights:
        members, middle = [height], height
        while blocks and middle - blocks[-1][1] < gap * (len(members) + len(blocks[-1][0])) / 2:
            members = [*blocks.pop()[0], *members]
            middle = sum(members) / len(members)
        blocks.append((members, middle))
    return [middle + gap * (i - (len(members) - 1) / 2) for members, middle in blocks for i in range(len(members))]
