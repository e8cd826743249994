"""The figures of a proposal: throughput and efficiency of the one series it is about, or of two studies side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from hpcddp.analysis.figures.efficiency import efficiency_figure
from hpcddp.analysis.figures.scaling import scaling_figure
from hpcddp.analysis.figures.style import DEFAULT, Style
from hpcddp.analysis.proposal.pair import ProposalPair
from hpcddp.analysis.proposal.pair_page import short_kind
from hpcddp.analysis.proposal.proposal import Proposal
from hpcddp.analysis.study.series import full_names


def drawings(found: Proposal | ProposalPair, style: Style = DEFAULT) -> dict[str, Callable[[], Figure]]:
    """What draws them, by name; none for a single size."""
    if isinstance(found, ProposalPair):
        return _of_both(found, style)
    if len(found.sizes) < 2:
        return {}
    return _drawings(_rows(found), full_names(found.found.apart), _rejected(found), style)


def _of_both(found: ProposalPair, style: Style) -> dict[str, Callable[[], Figure]]:
    """A panel for each study, throughput on one scale; none where a study has a single size."""
    both = (found.strong, found.weak)
    if any(len(each.sizes) < 2 for each in both):
        return {}
    names = {str(each.sizes[0].row["series"]): f"{short_kind(each).capitalize()}: {each.name}" for each in both}
    rejected = pd.concat([_rejected(each) for each in both])
    return _drawings(pd.concat([_rows(each) for each in both]), names, rejected, style)


def _drawings(rows: pd.DataFrame, names: dict[str, str], rejected: pd.DataFrame, style: Style) -> dict[str, Callable[[], Figure]]:
    return {
        "scaling": partial(scaling_figure, rows, names, rejected, style=style),
        "efficiency": partial(efficiency_figure, rows, names, style),
    }


def _rows(found: Proposal) -> pd.DataFrame:
    rows = found.found.shown
    mine: pd.DataFrame = rows[rows["series"] == found.sizes[0].row["series"]]
    return mine


def _rejected(found: Proposal) -> pd.DataFrame:
    runs, series = found.found.runs, found.sizes[0].row["series"]
    mine: pd.DataFrame = runs[(runs["state"] == "rejected") & (runs["series"] == series)].dropna(subset=["samples_per_s"])
    return mine
