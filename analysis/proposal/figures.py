"""The figures of a proposal: throughput and efficiency of the one series it is about."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from matplotlib.figure import Figure

from hpcddp.analysis.figures.scaling import efficiency_figure, scaling_figure
from hpcddp.analysis.figures.style import DEFAULT, Style
from hpcddp.analysis.proposal.proposal import Proposal
from hpcddp.analysis.study.series import full_names


def drawings(found: Proposal, style: Style = DEFAULT) -> dict[str, Callable[[], Figure]]:
    """What draws them, by name; none for a single size."""
    if len(found.sizes) < 2:
        return {}
    shown, runs, series = found.found.shown, found.found.runs, found.sizes[0].row["series"]
    rows, names = shown[shown["series"] == series], full_names(found.found.apart)
    rejected = runs[(runs["state"] == "rejected") & (runs["series"] == series)].dropna(subset=["samples_per_s"])
    return {
        "scaling": partial(scaling_figure, rows, names, rejected, style=style),
        "efficiency": partial(efficiency_figure, rows, names, style),
    }
