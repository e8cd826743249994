"""What a mark of a figure measured: values that the page shows when the mark is pointed at, and speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure


@dataclass(frozen=True)
class Mark:
    """A box in the panel's data coordinates, or a point where both ends of both sides are the same."""

    ax: Axes
    x: tuple[float, float]
    y: tuple[float, float]
    values: Mapping[str, str]
    """Name -> text."""


class MarkedFigure(Figure):
    """A figure with the marks of its panels, in the order in which the keyboard goes through them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.marks: list[Mark] = []


def mark_point(ax: Axes, x: Any, y: Any, values: Mapping[str, str]) -> None:
    """A symbol."""
    mark_box(ax, (float(x), float(x)), (float(y), float(y)), values)


def mark_box(ax: Axes, x: tuple[float, float], y: tuple[float, float], values: Mapping[str, str]) -> None:
    """A bar, or a row."""
    figure = ax.figure
    assert isinstance(figure, MarkedFigure)
    figure.marks.append(Mark(ax, x, y, values))
