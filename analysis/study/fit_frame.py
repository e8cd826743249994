"""Laws of scaling fitted to a study: over full nodes and over the GPUs of one node, never over both.

The first step between nodes is another network: a law through both fits neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hpcddp.analysis.study.fits import LawFit, fit_all
from hpcddp.analysis.study.scaling import by_point, rates_per_s, timed_runs
from hpcddp.analysis.util.wording import unit
from hpcddp.core.point import scaling_kind

LAW_COLUMNS = {
    "series": "string",
    "over": "string",
    "law": "string",
    "formula": "string",
    "points": "Int64",
    "smallest": "Int64",
    "largest": "Int64",
    "error_percent": "Float64",
    "left_out_percent": "Float64",
    "parameter": "string",
    "value": "Float64",
    "low": "Float64",
    "high": "Float64",
    "interval": "string",
}
"""One row per parameter. `over`: `node`, or `GPU` of one node; an infinite value (a peak that is nowhere) is NA.

`error_percent` is how far the law is off its points (root mean square); `left_out_percent`, off points left out of the fit.
"""


@dataclass(frozen=True)
class Fitted:
    """A law fitted to one direction of a series: over its nodes, or over the GPUs of one node."""

    series: str
    over: str
    """What is counted: `node`, `GPU` or `rank`."""
    fit: LawFit


def fit_study(runs: pd.DataFrame, scaling: pd.DataFrame, hold: str) -> list[Fitted]:
    """All laws that can be fitted, series in the scaling table's order, nodes before GPUs."""
    rates = {key: rates_per_s(timed_runs(group)) for key, group in by_point(runs)}
    return [
        Fitted(str(series), over, each)
        for series, points in scaling.groupby("series", sort=False)
        for over, track in _tracks(points)
        for each in fit_all(
            {n: rates[layout] for n, layout in track.items()},
            strong=scaling_kind(hold, points["work"].iloc[0]).startswith("strong"),
        )
    ]


def laws_frame(fitted: Sequence[Fitted]) -> pd.DataFrame:
    """A row per parameter of each fitted law; LAW_COLUMNS."""
    return pd.DataFrame([row for each in fitted for row in _rows(each)], columns=list(LAW_COLUMNS)).astype(LAW_COLUMNS)


def _tracks(points: pd.DataFrame) -> Iterator[tuple[str, dict[int, tuple[str, int, int]]]]:
    """For each direction: what it counts, and number -> the point of that size."""
    keys = list(points[["series", "nodes", "gpus_per_node"]].itertuples(index=False, name=None))
    node_gpus = int(points["full_node_gpus"].iloc[0])
    yield "node", {nodes: (series, nodes, gpus) for series, nodes, gpus in keys if gpus == node_gpus}
    yield unit(points["device"].iloc[0]), {gpus: (series, nodes, gpus) for series, nodes, gpus in keys if nodes == 1}


def _rows(fitted: Fitted) -> Iterator[dict[str, Any]]:
    fit = fitted.fit
    for name, found in fit.parameters.items():
        low, high = found.interval or (None, None)
        yield {
            "series": fitted.series,
            "over": fitted.over,
            "law": fit.law.name,
            "formula": fit.law.formula,
            "points": len(fit.units),
            "smallest": fit.units[0],
            "largest": fit.units[-1],
            "error_percent": fit.error_percent,
            "left_out_percent": fit.left_out_percent,
            "parameter": name,
            "value": _finite(found.value),
            "low": _finite(low),
            "high": _finite(high),
            "interval": "95 %" if found.interval else None,
        }


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
