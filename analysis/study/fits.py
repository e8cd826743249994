"""Laws of scaling fitted to a study: over full nodes and over the GPUs of one node, never both; and what they imply in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations, groupby
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.analysis.study.effects import SEED, interval_rank, resampled
from hpcddp.analysis.study.frames import typed_frame
from hpcddp.analysis.study.scaling import by_point, rates_per_s, timed_runs
from hpcddp.analysis.util.wording import unit
from hpcddp.core.batch_means import CONFIDENCE
from hpcddp.core.point import scaling_kind
from hpcddp.core.text import first_few

Floats = NDArray[np.float64]


def usl_peak(contention: float, crosstalk: float) -> float:
    """sqrt((1 - sigma) / kappa): the n of the highest throughput, 1 at least; infinite without crosstalk (Gunther 2007)."""
    return max(1.0, math.sqrt((1 - contention) / crosstalk)) if crosstalk > 0 else math.inf


@dataclass(frozen=True)
class Law:
    """A law as a linear model; `formula` is the form that readers know."""

    name: str
    formula: str
    terms: Callable[[Floats], Floats]
    """Numbers of units (points) -> the terms' values (points, terms)."""
    of_throughput: bool
    """The terms add up to the throughput per unit; otherwise to the units' time per sample, its inverse."""
    parameters: Callable[[Floats], Mapping[str, Floats]]
    """Coefficients (..., terms) -> each parameter (...)."""


def columns(*terms: Floats | float) -> Floats:
    """(points, terms)"""
    return np.stack(np.broadcast_arrays(*terms), axis=-1).astype(np.float64)


def _share(coefficients: Floats, index: int) -> Floats:
    """Of what one unit takes: the crosstalk of one unit is none."""
    share: Floats = coefficients[..., index] / (coefficients[..., 0] + coefficients[..., 1])
    return share


def _serial(coefficients: Floats) -> Mapping[str, Floats]:
    return {"serial_share": _share(coefficients, 1)}


def _usl(coefficients: Floats) -> Mapping[str, Floats]:
    contention, crosstalk = _share(coefficients, 1), _share(coefficients, 2)
    peak = np.array([usl_peak(*pair) for pair in zip(contention.flat, crosstalk.flat, strict=True)]).reshape(contention.shape)
    return {"contention": contention, "crosstalk": crosstalk, "peak": peak}


AMDAHL = Law("amdahl", "n / (1 + s (n - 1))", lambda n: columns(1.0, n), False, _serial)
"""Time per sample and unit: (1 - s) + s n; s is the share of one unit's time that no other unit can take over (Amdahl 1967)."""

GUSTAFSON = Law("gustafson", "s + (1 - s) n", lambda n: columns(1.0, 1 / n), True, _serial)
"""Throughput per unit: (1 - s) + s / n; each further unit adds 1 - s of the first one's throughput (Gustafson 1988)."""

USL = Law("usl", "n / (1 + sigma (n - 1) + kappa n (n - 1))", lambda n: columns(1.0, n, n * (n - 1)), False, _usl)
"""Time per sample and unit: 1 + sigma (n - 1) + kappa n (n - 1), the Universal Scalability Law (Gunther 2007, "Guerrilla
Capacity Planning"). Contention sigma is waiting for what is shared (kappa = 0: Amdahl's law), crosstalk kappa what each pair of
units costs."""


Rates = Mapping[int, Sequence[Fraction]]
"""Units -> samples per second of each run."""

FEWEST_POINTS = 3

WORTH_PERCENT = 10
"""A law that is further off the points it was not fitted to is not shown."""

NOTHING = 1e-9
"""Of the time per sample: a term that explains less is rounding."""


@dataclass(frozen=True)
class Parameter:
    """A parameter's value, with its 95 % interval where each point has six runs or more."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class LawFit:
    """A law with the parameters that fit the points best."""

    law: Law
    parameters: Mapping[str, Parameter]
    units: tuple[int, ...]
    error_percent: float
    """Root mean square of the law's distance from the points, % of each point."""
    left_out_percent: float
    """The same distance, each point predicted by the law fitted to the others: what the law is worth as a prediction."""

    @property
    def holds(self) -> bool:
        return self.left_out_percent <= WORTH_PERCENT


def fit_all(rates: Rates, *, strong: bool) -> list[LawFit]:
    """Laws that there are enough points for: Amdahl's where the work is the same at every size (`strong`), else Gustafson's."""
    units = sorted(rates)
    if len(units) < FEWEST_POINTS:
        return []
    laws = [AMDAHL if strong else GUSTAFSON, *([USL] if len(units) > 3 else [])]
    return [fit(law, rates) for law in laws]


def fit(law: Law, rates: Rates) -> LawFit:
    """The law fitted by least squares of relative errors of the points' median throughput."""
    units = sorted(rates)
    # exact quotients: perfect scaling gives equal numbers
    n, per_unit = np.array(units, dtype=np.float64), np.array([float(median(rates[each]) / each) for each in units])
    coefficients = solve(law, n, per_unit)
    values = {name: float(value) for name, value in law.parameters(coefficients).items()}
    ends = _intervals(law, n, rates)
    return LawFit(
        law=law,
        parameters={name: Parameter(value, ends.get(name)) for name, value in values.items()},
        units=tuple(units),
        error_percent=100 * _rms(_off(law, n, per_unit, coefficients)),
        left_out_percent=100 * left_out_error(law, n, per_unit),
    )


def solve(law: Law, n: Floats, per_unit: Floats) -> Floats:
    """Coefficients >= 0 (..., terms) of the least relative squares; `per_unit` (..., points) is throughput per unit.

    With two or three terms all choices of terms that are not 0 are tried: the best whose coefficients are positive is the
    optimum (Lawson & Hanson 1974). More terms must explain more than rounding: perfect scaling has exactly one.
    """
    target = per_unit if law.of_throughput else 1 / per_unit
    scaled = law.terms(n) / target[..., None]
    terms = scaled.shape[-1]
    best, error = np.zeros((*target.shape[:-1], terms)), np.full(target.shape[:-1], np.inf)
    sets = chain.from_iterable(combinations(range(terms), size) for size in range(1, terms + 1))
    for chosen in (list(each) for each in sets if each[0] < 2):  # one of the first two terms says what one unit does
        found = np.zeros_like(best)
        q, r = np.linalg.qr(scaled[..., chosen])
        found[..., chosen] = np.linalg.solve(r, q.sum(axis=-2)[..., None])[..., 0]
        squares = ((np.einsum("...pt,...t->...p", scaled, found) - 1) ** 2).sum(axis=-1)
        better = (found >= 0).all(axis=-1) & (squares < error - n.size * NOTHING**2)
        best, error = np.where(better[..., None], found, best), np.where(better, squares, error)
    return best


def left_out_error(law: Law, n: Floats, per_unit: Floats) -> float:
    """Root mean square of the relative errors of points, each predicted from the others."""
    errors = []
    for point in range(n.size):
        others = np.arange(n.size) != point
        coefficients = solve(law, n[others], per_unit[others])
        errors.append(_off(law, n[[point]], per_unit[[point]], coefficients)[0])
    return _rms(np.array(errors))


def _off(law: Law, n: Floats, per_unit: Floats, coefficients: Floats) -> Floats:
    target = per_unit if law.of_throughput else 1 / per_unit
    off: Floats = law.terms(n) @ coefficients / target - 1
    return off


def _rms(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def _intervals(law: Law, n: Floats, rates: Rates) -> dict[str, tuple[float, float]]:
    """Intervals of the parameters: refitted to medians of runs drawn with replacement at each point; none below six runs."""
    if interval_rank(min(map(len, rates.values()))) is None:
        return {}
    draw = np.random.default_rng(SEED)
    medians = [np.median(resampled(rates[units], draw), axis=1) / units for units in sorted(rates)]
    drawn = law.parameters(solve(law, n, np.stack(medians, axis=-1)))
    ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    # inverted_cdf: an infinite peak is not averaged
    found = {name: np.quantile(values, ends, method="inverted_cdf") for name, values in drawn.items()}
    return {name: (float(low), float(high)) for name, (low, high) in found.items()}


SMALLEST_SHARE = 0.0005
"""A share that is 0.0 % in print is nothing to tell."""

FAR = 16
"""Times the largest size measured: a peak beyond that is a guess."""


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
    best = min(fits, key=lambda each: each.left_out_percent)
    found = SAYS[best.law.name](over, best)
    where = f"{NAMES[best.law.name]}, {best.units[0]}-{best.units[-1]} {over}s, off by {best.left_out_percent:.1f} %"
    return f"{found} The law is {where}." if found else None


def law_notes(fitted: Sequence[Fitted], names: Mapping[str, str]) -> Iterator[str]:
    """Which fitted laws are in no table and no sentence, and why; `names` says which series, empty for a single one."""
    off = [
        f"{NAMES[fit.law.name]} over {fit.units[0]}-{fit.units[-1]} {each.over}s"
        f"{f' with {name}' if (name := names[each.series]) else ''} (by {fit.left_out_percent:.0f} %)"
        for each in fitted
        if not (fit := each.fit).holds
    ]
    if off:
        yield f"Fitted laws that miss held-out points by more than {WORTH_PERCENT} % are not shown: {first_few(off, 1)}."


def _amdahl(over: str, fit: LawFit) -> str | None:
    share = fit.parameters["serial_share"]
    if share.value < SMALLEST_SHARE:
        return None
    return f"About {_percent(share.value)} of the work is serial{_ends(share)}. {_ceiling(over, share)}"


def _gustafson(over: str, fit: LawFit) -> str | None:
    share = fit.parameters["serial_share"]
    if share.value < SMALLEST_SHARE:
        return None
    adds = Parameter(1 - share.value, share.interval and (1 - share.interval[1], 1 - share.interval[0]))
    return f"Each further {over} adds about {_percent(adds.value)} of the throughput of one {over}{_ends(adds)}."


def _usl_words(over: str, fit: LawFit) -> str | None:
    contention, peak = fit.parameters["contention"], fit.parameters["peak"]
    if peak.value <= FAR * fit.units[-1]:
        known = "" if peak.interval is None else f" (95 %: {_count(peak.interval[0])}-{_count(peak.interval[1])})"
        return f"Throughput levels off at about {_count(peak.value)} {over}s{known} and falls beyond."
    if contention.value < SMALLEST_SHARE:
        return None
    return f"Sharing costs about {_percent(contention.value)} per {over}{_ends(contention)}. {_ceiling(over, contention)}"


def _ceiling(over: str, share: Parameter) -> str:
    return f"The speedup over one {over} is at most {_count(1 / share.value)}."


def _ends(share: Parameter) -> str:
    """The interval over runs, in words. How far the law itself is off its points stands beside it."""
    if share.interval is None:
        return ""
    low, high = (100 * end for end in share.interval)
    decimals = 0 if low >= 10 and high - low >= 2 else 1
    return f" (95 %: {low:.{decimals}f}-{high:.{decimals}f} %)"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.1 else 1}f} %"


def _count(units: float) -> str:
    return "nowhere" if math.isinf(units) else f"{units:.{1 if units < 10 else 0}f}"


SAYS = {"amdahl": _amdahl, "gustafson": _gustafson, "usl": _usl_words}
NAMES = {"amdahl": "Amdahl's law", "gustafson": "Gustafson's law", "usl": "USL"}


LAW_COLUMNS = {
    **dict.fromkeys(("series", "over", "law", "formula"), "string"),
    **dict.fromkeys(("points", "smallest", "largest"), "Int64"),
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
    return typed_frame((row for each in fitted for row in _rows(each)), LAW_COLUMNS)


def _tracks(points: pd.DataFrame) -> Iterator[tuple[str, dict[int, tuple[str, int, int]]]]:
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
