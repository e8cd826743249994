"""Which figures a study of whole trainings gets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd

from hpcddp.analysis.figures.accuracy import accuracy_figure, base_of, chosen_points, to_accuracy_figure
from hpcddp.analysis.figures.marks import MarkedFigure
from hpcddp.analysis.figures.style import DEFAULT, Style
from hpcddp.analysis.study.series import Apart, differing, full_names, short_names

MAX_PANELS = 4
"""Series in the figure of speedups; the table has them all."""


def training_drawings(
    epochs: pd.DataFrame, targets: pd.DataFrame, apart: Apart, style: Style = DEFAULT
) -> tuple[dict[str, Callable[[], MarkedFigure]], list[str]]:
    """Figures by name, and notes on what they leave out; none without evaluated epochs."""
    figures: dict[str, Callable[[], MarkedFigure]] = {}
    notes = []
    evaluated = epochs[epochs["accuracy"].notna() & epochs["series"].isin(list(apart))]
    if len(evaluated):
        evaluated = _with_points(evaluated)
        names, every = chosen_points(evaluated, short_names(differing(evaluated["series"].unique())))
        shown = evaluated[evaluated["point"].isin(list(names))]
        aims = set(targets["target"].dropna())
        figures["accuracy"] = partial(accuracy_figure, shown, names, aims.pop() if len(aims) == 1 else None, style)
        if every > len(names):
            notes.append(f"figures/accuracy.png shows {len(names)} of {every} points; epochs.csv has them all")
    wide = [group for _, group in targets.groupby("series", sort=False) if base_of(group) is not None]
    if wide:
        figures["to_accuracy"] = partial(to_accuracy_figure, pd.concat(wide[:MAX_PANELS]), full_names(apart), style)
    if len(wide) > MAX_PANELS:
        notes.append(f"figures/to_accuracy.png shows {MAX_PANELS} of {len(wide)} series; to_accuracy.csv has them all")
    return figures, notes


def _with_points(epochs: pd.DataFrame) -> pd.DataFrame:
    """Series in the order in which they come, their sizes from the smallest; `point`: which one a row is of."""
    order = {series: i for i, series in enumerate(dict.fromkeys(epochs["series"]))}
    ordered = epochs.assign(place=[order[series] for series in epochs["series"]])
    ordered["point"] = ordered["place"].astype(str) + " " + ordered["gpus"].astype(str) + " " + ordered["nodes"].astype(str)
    return ordered.sort_values(["place", "gpus", "nodes", "label", "run", "epoch"], kind="stable")
