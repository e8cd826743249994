"""Which figures a study gets, and their files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from hpcddp.analysis.figures.breakdown import breakdown_figure
from hpcddp.analysis.figures.comm import comm_figure, panels
from hpcddp.analysis.figures.distribution import MAX_ROWS, distribution_figure
from hpcddp.analysis.figures.efficiency import efficiency_figure
from hpcddp.analysis.figures.inline_svg import InlineSvg, inline_svg
from hpcddp.analysis.figures.marks import MarkedFigure
from hpcddp.analysis.figures.rank_map import rank_map_figure
from hpcddp.analysis.figures.scaling import scaling_figure
from hpcddp.analysis.figures.style import DEFAULT, SUFFIXES, Style, fix_layout, save
from hpcddp.analysis.figures.timeline import timeline_figure
from hpcddp.analysis.study.axes import OF_EFFECTS
from hpcddp.analysis.study.series import Apart, full_names, short_names
from hpcddp.analysis.verdicts.findings import Findings

Drawing = Callable[[], MarkedFigure]
"""A figure that is yet to be drawn."""

FIGURES = ("scaling", "efficiency", "breakdown", "steps", "ranks", "timeline", "comm", "accuracy", "to_accuracy")
MAX_SERIES = 6
"""Series in one figure, the largest ones; the table and the CSV have them all."""


def drawings(
    scaling: pd.DataFrame, runs: pd.DataFrame, apart: Apart, overlay: pd.DataFrame | None = None, style: Style = DEFAULT
) -> tuple[dict[str, Drawing], list[str]]:
    """Figures by name, and notes on what they leave out. A series with one layout has nothing to show of scaling.

    `overlay`: published points (references.overlay), drawn beside the throughput.
    """
    names, short = full_names(apart), short_names(apart)
    layouts = scaling.groupby("series", sort=False)["label"].transform("size")
    wide = list(dict.fromkeys(scaling.loc[layouts > 1, "series"]))
    shown = scaling[scaling["series"].isin(wide[:MAX_SERIES])]
    rejected = runs[(runs["state"] == "rejected") & runs["series"].isin(wide[:MAX_SERIES])]
    figures: dict[str, Drawing] = {}
    most = style.most_bars
    if len(scaling):
        figures["breakdown"] = partial(breakdown_figure, scaling[:most], names, short, style)
    if wide:
        rated = rejected.dropna(subset=["samples_per_s"])
        figures["scaling"] = partial(scaling_figure, shown, names, rated, overlay, style)
    if _has_baseline(shown):
        figures["efficiency"] = partial(efficiency_figure, shown, names, style)
    beside_cpus = overlay is not None and len(overlay) and (scaling["device"] == "cpu").any()
    left = [
        "published points are of GPUs: they are not drawn beside ranks on CPUs" if beside_cpus else "",
        f"the scaling figures show the {MAX_SERIES} largest of {len(wide)} series" if len(wide) > MAX_SERIES else "",
        f"figures/breakdown.png shows the first {most} of {len(scaling)} points" if len(scaling) > most else "",
    ]
    return figures, [note for note in left if note]


def _has_baseline(scaling: pd.DataFrame) -> bool:
    """Whether some series has an efficiency at more than its baseline."""
    known = scaling[["efficiency_1gpu", "efficiency_1node"]].notna().groupby(scaling["series"]).sum()
    return bool((known > 1).to_numpy().any())


def detail_drawings(found: Findings, style: Style = DEFAULT) -> tuple[dict[str, Drawing], list[str]]:
    """The same of runs looked at closely: all steps of each point, the ranks and one step of few runs, and the network."""
    detail = found.detail
    figures: dict[str, Drawing] = {}
    points = list(detail.times["row"].unique())
    shown = detail.times[detail.times["row"].isin(points[:MAX_ROWS])]
    if points:
        names, short = full_names(found.shown_apart), short_names(found.shown_apart)
        figures["steps"] = partial(distribution_figure, found.shown, shown, names, short, style)
    if len(detail.ranks):
        figures["ranks"] = partial(rank_map_figure, detail.ranks, style)
    if len(detail.parts):
        figures["timeline"] = partial(timeline_figure, detail.parts, detail.travels, style)
    layouts, fewer = panels(found.collectives, detail.trained)
    if layouts:
        figures["comm"] = partial(comm_figure, layouts, style)
    more = f"the figure of all steps shows the first {MAX_ROWS} of {len(points)} points" if len(points) > MAX_ROWS else None
    return figures, [note for note in (more, fewer) if note]


def figure_folder(folder: Path) -> None:
    """Makes the report's folder of figures, without those of an earlier analysis; a link in its place is removed."""
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*FIGURES, f"{OF_EFFECTS}*"):
        for file in [file for suffix in SUFFIXES for file in folder.glob(f"{name}{suffix}")]:
            file.unlink(missing_ok=True)


LABELS = {
    "scaling": "Throughput against size",
    "efficiency": "Efficiency against size",
    "breakdown": "Parts of the step",
    "steps": "Lengths of all steps",
    "ranks": "Each rank's own time",
    "timeline": "One step, the nearest to the run's median",
    "comm": "Bus bandwidth against message size",
    "accuracy": "Accuracy against time, epochs and node hours",
    "to_accuracy": "Speedup to an accuracy against size",
}
"""What the page calls a figure for those who do not see it."""


@dataclass(frozen=True)
class SavedFigure:
    """`files`: paths from the folder above; `panels`: what the page shows of it."""

    files: list[str]
    panels: list[InlineSvg]


def save_figure(folder: Path, name: str, draw: Drawing, style: Style, draw_page: Drawing) -> SavedFigure:
    """Drawn once for its files and the page, if its style is the page's; else `draw_page` draws what the page shows."""
    figure = draw()
    files = save(figure, folder / name, style)
    if style != DEFAULT:
        figure = draw_page()
        fix_layout(figure, DEFAULT)
    panels = inline_svg(
        figure, LABELS.get(name, "Throughput against what changes it"), parts=name in ("breakdown", "timeline", "accuracy")
    )
    return SavedFigure([f"{folder.name}/{file.name}" for file in files], panels)
