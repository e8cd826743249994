"""Which figures a study gets, and their files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from hpcddp.analysis.figure_breakdown import breakdown_figure
from hpcddp.analysis.figure_efficiency import efficiency_figure
from hpcddp.analysis.figure_scaling import scaling_figure
from hpcddp.analysis.series import Apart, full_names, short_names
from hpcddp.analysis.style import save

FIGURES = ("scaling", "efficiency", "breakdown")
MAX_SERIES = 6
"""Series in one figure, the largest ones; the table and the CSV have them all."""

MAX_BARS = 40


def draw(scaling: pd.DataFrame, runs: pd.DataFrame, apart: Apart) -> tuple[dict[str, Figure], list[str]]:
    """Figures by name, and notes on what they leave out. A series with one layout has nothing to show of scaling."""
    names, short = full_names(apart), short_names(apart)
    layouts = scaling.groupby("series", sort=False)["label"].transform("size")
    wide = list(dict.fromkeys(scaling.loc[layouts > 1, "series"]))
    shown = scaling[scaling["series"].isin(wide[:MAX_SERIES])]
    rejected = runs[(runs["state"] == "rejected") & runs["series"].isin(wide[:MAX_SERIES])]
    figures = {}
    if len(scaling):
        figures["breakdown"] = breakdown_figure(scaling[:MAX_BARS], names, short)
    if wide:
        figures["scaling"] = scaling_figure(shown, names, rejected.dropna(subset=["samples_per_s"]))
        figures["efficiency"] = efficiency_figure(shown, names)
    left = [
        f"the scaling figures show the {MAX_SERIES} largest of {len(wide)} series" if len(wide) > MAX_SERIES else "",
        f"the breakdown figure shows the first {MAX_BARS} of {len(scaling)} points" if len(scaling) > MAX_BARS else "",
    ]
    return figures, [note for note in left if note]


def write_figures(folder: Path, figures: dict[str, Figure]) -> list[str]:
    """FIGURE.png and FIGURE.svg for each in `folder`; those of an earlier analysis that no longer apply are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FIGURES:
        for old in (folder / f"{name}.png", folder / f"{name}.svg"):
            old.unlink(missing_ok=True)
    return [f"{folder.name}/{file.name}" for name, figure in figures.items() for file in save(figure, folder / name)]
