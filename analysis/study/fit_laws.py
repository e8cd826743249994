"""Laws of scaling: how many times the throughput of one unit (a node, a GPU) n units have.

All are sums of non-negative terms in n, of the time one sample takes one unit (or of the throughput per unit): perfect
scaling is the first term alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
"""Throughput per unit: (1 - s) + s / n; for work that grows with n, each further unit adds 1 - s of the first one's throughput
(Gustafson 1988).
"""

USL = Law("usl", "n / (1 + sigma (n - 1) + kappa n (n - 1))", lambda n: columns(1.0, n, n * (n - 1)), False, _usl)
"""Time per sample and unit: 1 + sigma (n - 1) + kappa n (n - 1), the Universal Scalability Law (Gunther 2007, "Guerrilla
Capacity Planning"). Contention sigma is waiting for what is shared (kappa = 0: Amdahl's law), crosstalk kappa what each pair of
units costs.
"""
