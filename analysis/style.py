"""One look for all figures: made for a column of 85 mm, the same bytes wherever and whenever they are drawn."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpcddp.analysis.colours import FAINT, GRID, INK

COLUMN_MM = 85.0
PAGE_MM = 176.0
PNG_DPI = 300
MM_PER_INCH = 25.4

LOOK: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.bottom": False,
    "ytick.minor.left": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "hpcddp",
}


def look() -> AbstractContextManager[None]:
    """Everything drawn or saved inside has the one look, whatever the user's matplotlibrc says."""
    plain: Any = {key: value for key, value in mpl.rcParamsDefault.items() if not key.startswith("backend")} | LOOK
    return mpl.rc_context(plain)


def new_figure(panel_mm: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of a column's width for one panel of that height; for several, of a page's width with two side by side."""
    columns, rows = (1, 1) if panels == 1 else (2, math.ceil(panels / 2))
    width_mm = COLUMN_MM if columns == 1 else PAGE_MM
    figure = Figure(figsize=(width_mm / MM_PER_INCH, panel_mm * rows / MM_PER_INCH), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[panels:]:
        unused.set_visible(False)
    return figure, axes[:panels]


def save(figure: Figure, stem: Path) -> list[Path]:
    """STEM.png and STEM.svg, without dates and versions in them."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    with look():
        figure.savefig(png, dpi=PNG_DPI, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [png, svg]
