"""Which figures a study gets, what the page says of each, and their files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from hpcddp.analysis.figures.accuracy import training_drawings
from hpcddp.analysis.figures.breakdown import breakdown_figure
from hpcddp.analysis.figures.comm import comm_figure, panels
from hpcddp.analysis.figures.distribution import MAX_ROWS, distribution_figure
from hpcddp.analysis.figures.effect import effect_drawings
from hpcddp.analysis.figures.inline_svg import InlineSvg, inline_svg
from hpcddp.analysis.figures.rank_map import rank_map_figure
from hpcddp.analysis.figures.scaling import efficiency_figure, scaling_figure
from hpcddp.analysis.figures.style import DEFAULT, SUFFIXES, MarkedFigure, Style, fix_layout, save
from hpcddp.analysis.figures.timeline import timeline_figure
from hpcddp.analysis.study.axes import OF_EFFECTS
from hpcddp.analysis.study.series import full_names, short_names
from hpcddp.analysis.verdicts.findings import Findings

Drawing = Callable[[], MarkedFigure]
"""A figure that is yet to be drawn."""

Drawings = tuple[dict[str, Drawing], list[str]]
"""Figures by name, and notes on what they leave out."""


@dataclass(frozen=True)
class FigureKind:
    """What the page says of a figure."""

    label: str
    """What it is called for those who do not see it."""
    below: tuple[str, ...] = ()
    """It stands below the first of these tables that is there, otherwise among what shows single runs."""
    caption: str | None = None
    parts: bool = False
    """Its colours are those of the parts of a step."""


FIGURES = {
    "scaling": FigureKind("Throughput against size", ("scaling",)),
    "efficiency": FigureKind("Efficiency against size", ("scaling",)),
    "breakdown": FigureKind("Parts of the step", ("breakdown",), parts=True),
    "accuracy": FigureKind("Accuracy against time, epochs and node hours", ("accuracy",), parts=True),
    "to_accuracy": FigureKind("Speedup to an accuracy against size", ("to_accuracy",)),
    "steps": FigureKind("Lengths of all steps", caption="All steps of each point"),
    "ranks": FigureKind("Each rank's own time", caption="Each rank's own time, without waiting for others"),
    "timeline": FigureKind(
        "One step, the nearest to the run's median", caption="One step, the nearest to the run's median", parts=True
    ),
    "comm": FigureKind("Bus bandwidth against message size", ("collectives", "exchange")),
}
"""Every figure by the name of its files, but those of keys."""


def figure_kind(name: str) -> FigureKind:
    """Of a figure of a key, too, which has the name of its table."""
    return FIGURES.get(name) or FigureKind("Throughput against what changes it", (name,))


MAX_SERIES = 6
"""Series in one figure, the largest ones; the table and the CSV have them all."""


def study_drawings(found: Findings, style: Style = DEFAULT, overlay: pd.DataFrame | None = None) -> Drawings:
    """All of a study's figures, those of its keys first where it is about them; of what raises there are none.

    `overlay`: published points (references.overlay), drawn beside the throughput.
    """
    groups: dict[str, Callable[[], Drawings]] = {
        "points": lambda: point_drawings(found, style, overlay),
        "trainings": lambda: training_drawings(found, style),
        "keys": lambda: effect_drawings(found.effects, style),
        "single runs": lambda: detail_drawings(found, style),
    }
    nothing: Drawings = ({}, [])
    done = {of: found.failures.contain(f"figures of {of}", make, nothing) for of, make in groups.items()}
    ordered = [*([done["keys"]] if found.is_of_keys else []), *done.values()]
    figures = {name: draw for drawn, _ in ordered for name, draw in drawn.items()}
    return figures, [note for _, notes in done.values() for note in notes]


def point_drawings(found: Findings, style: Style = DEFAULT, overlay: pd.DataFrame | None = None) -> Drawings:
    """How points scale, and where their steps go. A series with one layout has nothing to show of scaling."""
    scaling, runs, apart = found.shown, found.runs, found.shown_apart
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


def detail_drawings(found: Findings, style: Style = DEFAULT) -> Drawings:
    """Of runs looked at closely: all steps of each point, the ranks and one step of few runs, and the network."""
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
    kind = figure_kind(name)
    panels = inline_svg(figure, kind.label, parts=kind.parts)
    return SavedFigure([f"{folder.name}/{file.name}" for file in files], panels)
