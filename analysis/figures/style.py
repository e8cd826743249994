"""One look for all figures, in the sizes that print and screens ask for; the same bytes wherever and whenever they are drawn.

Figures are laid out with a type of 8 points: their heights and lines are given so, and a style makes all of it larger or smaller.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hpcddp.analysis.figures.colours import FAINT, GRID, INK
from hpcddp.analysis.util.files import write_file

TYPE_PT = 8.0
PANEL_MM = 85.0
"""What a panel is at least as wide, at that type."""

COLUMN_LETTERS, LEGEND_LETTERS = 44, 46
"""That fit into it; and beside a mark of a legend."""

ENTRY_MM = 28.0
"""Width of an entry of a legend."""

MM_PER_INCH = 25.4
METADATA: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Ending of a figure's file -> what would differ between two of the same figure."""
SUFFIXES = tuple(METADATA)


@dataclass(frozen=True)
class Style:
    """What a figure is made for; lengths as they come out."""

    column_mm: float
    """Width of a figure of one panel."""
    page_mm: float
    """Width of one of several."""
    type_pt: float
    png_dpi: int
    titles: bool = True
    """Without, what is above a single panel is left to the caption, and what is measured stands beside its axis."""
    height_mm: float | None = None
    """Of every figure; type gets smaller where it would not fit. None: as high as what is in it."""
    most_bars: int = 40
    """Of a breakdown."""
    pdf_fonts: int = 3
    """3: drawn by matplotlib; 42: TrueType, which takes as long as all else of a figure. Journals refuse 3."""


SLIDE_MM = 40 / 3 * MM_PER_INCH

DEFAULT = Style(column_mm=85.0, page_mm=176.0, type_pt=8.0, png_dpi=300)
STYLES = {
    "default": DEFAULT,
    "paper": Style(column_mm=3.4 * MM_PER_INCH, page_mm=7.0 * MM_PER_INCH, type_pt=7.0, png_dpi=300, titles=False, pdf_fonts=42),
    "slides": Style(column_mm=SLIDE_MM, page_mm=SLIDE_MM, type_pt=18.0, png_dpi=144, height_mm=SLIDE_MM * 9 / 16, most_bars=12),
}
"""By the names of `--style`: a column of this project's own pages, one of a journal, and a slide of 16:9 (1920 x 1080 as PNG)."""

RC_PARAMS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    **dict.fromkeys(("axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize"), "medium"),
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "xtick.minor.bottom", "ytick.minor.left"), False),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), FAINT),
    **dict.fromkeys(("figure.facecolor", "savefig.facecolor"), "white"),
    "axes.axisbelow": True,
    "grid.color": GRID,
    "svg.hashsalt": "hpcddp",
    "text.parse_math": False,  # names are a sweep's own: `$` in them begins no formula
}

SIZES = {
    "font.size": TYPE_PT,
    "axes.titlepad": 7.0,
    "axes.labelpad": 4.0,
    "axes.linewidth": 0.6,
    **{f"{axis}tick.major.{what}": size for axis in "xy" for what, size in (("width", 0.6), ("size", 3.5), ("pad", 3.5))},
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.0,
    "lines.markeredgewidth": 1.0,
    **{f"figure.constrained_layout.{pad}": 3 / 72 for pad in ("h_pad", "w_pad")},
}
"""At a type of 8 points; all grow with it."""


def rc_style(type_pt: float = TYPE_PT) -> AbstractContextManager[None]:
    """Everything drawn or saved inside has the one look, whatever the user's matplotlibrc says."""
    plain: Any = {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")} | RC_PARAMS
    return mpl.rc_context(plain | {key: size * type_pt / TYPE_PT for key, size in SIZES.items()})


def pt(points: float) -> float:
    """A length at a type of 8 points as it is in the figure being drawn."""
    return points * float(mpl.rcParams["font.size"]) / TYPE_PT


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


@contextmanager
def new_figure(
    style: Style, panel_mm: float, panels: int = 1, note: str = "", entries: Sequence[Entry] = ()
) -> Iterator[tuple[MarkedFigure, list[Axes]]]:
    """A figure of as many panels of that height, beneath them all a note and a legend, to be drawn inside.

    Several are two side by side; on slides as many as above each other.
    """
    columns = min(panels, 2) if style.height_mm is None else math.ceil(math.sqrt(panels))
    rows = math.ceil(panels / columns)
    below = _wrapped(note, entries, letters(style, panels))
    width_mm, sheet_mm = _width_mm(style, panels), panel_mm * rows + LINE_MM * sum(text.count("\n") + 1 for text, _ in below)
    type_pt = style.type_pt
    if style.height_mm is not None:
        type_pt = min(type_pt, TYPE_PT * style.height_mm / sheet_mm, TYPE_PT * width_mm / (columns * PANEL_MM))
    height_mm = style.height_mm or sheet_mm * type_pt / TYPE_PT
    with rc_style(type_pt):
        figure = MarkedFigure(figsize=(width_mm / MM_PER_INCH, height_mm / MM_PER_INCH), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for unused in axes[panels:]:
            unused.set_visible(False)
        if below:
            _legend_below(figure, below)
        yield figure, axes[:panels]


def entitle(ax: Axes, style: Style, name: str, measured: str = "", most: int = COLUMN_LETTERS) -> None:
    """Above a panel its name, and what its y axis measures: as the figure's title where it has no other panel; `most`: letters
    in a line of the narrowest panel.
    """
    figure, grid = ax.figure, ax.get_gridspec()
    assert isinstance(figure, Figure)
    assert grid is not None
    lines = in_column(name, int(most * _sheet_mm(figure) / grid.ncols / PANEL_MM))
    several = sum(each.get_visible() for each in figure.axes) > 1
    if not style.titles:
        ax.set_ylabel(measured)
    elif measured:
        lines.append(measured)
    if several or (name and style.titles):
        ax.set_title("\n".join(lines))
    elif style.titles:
        head(ax, measured)


def head(ax: Axes, text: str) -> None:
    """The title of a figure of one panel, from its left edge on."""
    at_edge(ax, text, (0, 1), "axes fraction", 9, va="bottom", weight="bold")


def at_edge(ax: Axes, text: str, at: tuple[float, float], height: str, up: float, **properties: Any) -> None:
    """`at`: a fraction of the figure's width, and a height in the coordinates called `height`; the text is `up` points above."""
    where = {"xycoords": ("figure fraction", height), "xytext": (pt(3), pt(up)), "textcoords": "offset points"}
    ax.annotate(text, at, **{"va": "center", **where, **properties})


Entry = tuple[str, dict[str, Any]]
"""Of a legend: text, and what the mark looks like."""

LINE_MM = 4.0
"""Height that a line of a legend takes, its space included."""


def _wrapped(note: str, entries: Sequence[Entry], letters: int) -> list[Entry]:
    """In lines of so many letters, the note's in a few more: it has no mark."""
    lines = ["\n".join(line for part in text.splitlines() for line in in_column(part, letters)) for text, _ in entries]
    noted = [("\n".join(in_column(note, letters + 6)), {"linestyle": ""})] if note else []
    return [*noted, *((text, symbol) for text, (_, symbol) in zip(lines, entries, strict=True))]


def _legend_below(figure: Figure, entries: Sequence[Entry]) -> None:
    handles = [Line2D([], [], label=text, markeredgewidth=pt(0.9), **symbol) for text, symbol in entries]
    marked = any("marker" in symbol for _, symbol in entries)
    spacing = {"handlelength": 2.0 * marked, "handletextpad": 0.6 * marked, "labelspacing": 0.3, "borderpad": 0.1}
    figure.legend(handles=handles, loc="outside lower left", frameon=False, **spacing)


def parts_legend(figure: Figure, handles: Sequence[Artist], note: Sequence[str] = ()) -> None:
    """Below the panels, in as many columns as there is room for, under lines on all of them."""
    close = ("handlelength", "handleheight", "columnspacing")
    spacing: dict[str, Any] = dict.fromkeys(close, 0.9) | {"handletextpad": 0.5, "labelspacing": 0.3, "borderpad": 0.1}
    spacing |= {"title": "\n".join(note) or None, "alignment": "left", "ncols": int(_sheet_mm(figure) / ENTRY_MM)}
    figure.legend(handles=handles, loc="outside lower left", frameon=False, **spacing)


def _sheet_mm(figure: Figure) -> float:
    """Its width, were its type one of 8 points."""
    return figure.get_figwidth() * MM_PER_INCH / pt(1)


def letters(style: Style, panels: int) -> int:
    """That fit into a line of a legend as wide as a figure of so many panels."""
    return int(_width_mm(style, panels) * TYPE_PT / style.type_pt * LEGEND_LETTERS / PANEL_MM)


def _width_mm(style: Style, panels: int) -> float:
    return style.column_mm if panels == 1 else style.page_mm


def in_column(name: str, most: int = COLUMN_LETTERS) -> list[str]:
    """The lines of what may be too long for a panel, such as all that tells a series from the others."""
    return textwrap.wrap(name, most, break_on_hyphens=False)


def lay_out(figure: Figure) -> None:
    """Finds where the axes are, as drawing it would; `figure` is a new_figure."""
    layout = figure.get_layout_engine()
    assert layout is not None
    layout.execute(figure)


def fix_layout(figure: Figure, style: Style) -> None:
    """Lays it out for good: else each file takes two drawings, and the first the layout twice."""
    with rc_style():
        figure.dpi = style.png_dpi
        lay_out(figure)
        figure.set_layout_engine(None)


def save(figure: Figure, stem: Path, style: Style) -> list[Path]:
    """STEM.png, STEM.svg and STEM.pdf, without dates and versions in them."""
    with rc_style():
        mpl.rcParams["pdf.fonttype"] = style.pdf_fonts
        fix_layout(figure, style)
        drawn = {stem.with_suffix(suffix): io.BytesIO() for suffix in SUFFIXES}
        for file, out in drawn.items():  # without its dpi: 100, as the figure was made
            figure.savefig(out, format=file.suffix[1:], dpi=style.png_dpi, metadata=dict(METADATA[file.suffix]))
    try:
        for file, out in drawn.items():
            write_file(file, out.getvalue())
    except OSError:
        for file in drawn:  # all of it or nothing
            file.unlink(missing_ok=True)
        raise
    return list(drawn)
