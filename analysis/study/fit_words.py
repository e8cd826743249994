"""Laws of scaling fitted to a study: over full nodes and over the GPUs of one node, never both; and what they imply in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from hpcddp.analysis.study.fits import WORTH_PERCENT, LawFit, Parameter, fit_all
from hpcddp.analysis.study.scaling import by_point, rates_per_s, timed_runs
from hpcddp.analysis.util.wording import unit
from hpcddp.core.point import scaling_kind
from hpcddp.core.text import first_few

SMALLEST_SHARE = 0.0005
"""A share that is 0.0 % in print is nothing to tell."""

FAR = 16
"""Times the largest size measured: a peak beyond that is a guess."""

Implied = tuple[str, str]
"""What a law says, and the interval of that with `; ` after it."""


def implied(fitted: Sequence[Fitted], names: dict[str, str]) -> list[str]:
    """A sentence per series and direction in which the law that predicts best says something; `names` says which series."""
    several = len({each.series for each in fitted}) > 1
    found = []
    for (series, over), laws in groupby(fitted, key=lambda each: (each.series, each.over)):
        sentence = _best(over, [each.fit for each in laws])
        if sentence:
            found.append(f"{names[series]}: {sentence}" if several else sentence)
    return found


def _best(over: str, fits: Sequence[LawFit]) -> str | None:
    """The sentence of the law that predicts left-out points best."""
    best = min(fits, key=lambda each: each.left_out_percent)
    found = SAYS[best.law.name](over, best)
    where = f"{NAMES[best.law.name]}, {best.units[0]}-{best.units[-1]} {over}s, off by {best.left_out_percent:.1f} %"
    return f"{found[0]} ({found[1]}{where})" if found else None


def law_notes(fitted: Sequence[Fitted], names: Mapping[str, str]) -> Iterator[str]:
    """Which fitted laws are in no table and no sentence, and why; `names` says which series, empty for a single one."""
    off = [
        f"{NAMES[fit.law.name]} over {fit.units[0]}-{fit.units[-1]} {each.over}s"
        f"{f' with {name}' if (name := names[each.series]) else ''} (by {fit.left_out_percent:.0f} %)"
        for each in fitted
        if not (fit := each.fit).holds
    ]
    if off:
        yield f"fitted laws that miss left-out points by more than {WORTH_PERCENT} % are not shown: {first_few(off)}"


def _amdahl(over: str, fit: LawFit) -> Implied | None:
    share = fit.parameters["serial_share"]
    return (
        (f"about {_percent(share.value)} of the work is serial: {_ceiling(over, share)}", _ends(share))
        if _is_visible(share)
        else None
    )


def _gustafson(over: str, fit: LawFit) -> Implied | None:
    share = fit.parameters["serial_share"]
    if not _is_visible(share):
        return None
    adds = Parameter(1 - share.value, share.interval and (1 - share.interval[1], 1 - share.interval[0]))
    return f"each further {over} adds about {_percent(adds.value)} of what one {over} trains", _ends(adds)


def _usl(over: str, fit: LawFit) -> Implied | None:
    contention, peak = fit.parameters["contention"], fit.parameters["peak"]
    if peak.value <= FAR * fit.units[-1]:
        known = "" if peak.interval is None else f"95 %: {_count(peak.interval[0])}-{_count(peak.interval[1])}; "
        return f"throughput levels off at about {_count(peak.value)} {over}s and falls beyond", known
    if not _is_visible(contention):
        return None
    return f"sharing costs about {_percent(contention.value)} per {over}: {_ceiling(over, contention)}", _ends(contention)


def _is_visible(share: Parameter) -> bool:
    return share.value >= SMALLEST_SHARE


def _ceiling(over: str, share: Parameter) -> str:
    return f"at most {_count(1 / share.value)} times one {over}, whatever the number"


def _ends(share: Parameter) -> str:
    """The interval over runs, in words. How far the law itself is off its points stands beside it."""
    if share.interval is None:
        return ""
    low, high = (100 * end for end in share.interval)
    decimals = 0 if low >= 10 and high - low >= 2 else 1
    return f"95 %: {low:.{decimals}f}-{high:.{decimals}f} %; "


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.1 else 1}f} %"


def _count(units: float) -> str:
    if math.isinf(units):
        return "nowhere"
    return f"{units:.{1 if units < 10 else 0}f}"


SAYS = {"amdahl": _amdahl, "gustafson": _gustafson, "usl": _usl}
NAMES = {"amdahl": "Amdahl's law", "gustafson": "Gustafson's law", "usl": "USL"}


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
