"""Formulas within one run. A step of a DDP job lasts as long as its slowest rank; times are integer nanoseconds as recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hpcddp.records import PARTS, WARMUP

Floats = NDArray[np.float64]
"""Nanoseconds in doubles: exact up to 2^53 ns, 104 days; nan was not measured."""


@dataclass(frozen=True)
class RunSteps:
    """The steps of one run, reduced over its ranks; every array has one entry per step."""

    steady: NDArray[np.bool_]
    """False for the warm-up."""
    step_ns: Floats
    """Max over ranks."""
    part_ns: Mapping[str, Floats]
    """Part -> mean over the ranks that measured it; nan where none did."""


def over_ranks(ranks: Iterable[pd.DataFrame]) -> RunSteps:
    """Reduces step tables, one rank at a time: memory does not grow with ranks. ValueError where ranks stepped differently."""
    first: pd.DataFrame | None = None
    step_ns = np.zeros(0)
    sums: dict[str, Floats] = {}
    counts: dict[str, Floats] = {}
    for rank, table in enumerate(ranks):
        total = column_ns(table, "total_ns")
        if first is None:
            first, step_ns = table[["step", "flags"]].copy(), total
        elif not first.equals(table[["step", "flags"]]):
            raise ValueError(f"rank {rank} did not step like rank 0 ({len(table)} and {len(first)} rows)")
        step_ns = np.maximum(step_ns, total)
        for part in PARTS:
            value = column_ns(table, f"{part}_ns")
            sums[part] = sums.get(part, 0.0) + np.nan_to_num(value)
            counts[part] = counts.get(part, 0.0) + np.isfinite(value)
    if first is None:
        raise ValueError("no rank has step rows")
    steady = (first["flags"].to_numpy() & WARMUP) == 0
    return RunSteps(steady, step_ns, {part: mean_over_ranks(sums[part], counts[part]) for part in PARTS})


def column_ns(table: pd.DataFrame, name: str) -> Floats:
    """A column of a rank's step table as nanoseconds; empty cells are nan."""
    return table[name].to_numpy(dtype=np.float64, na_value=np.nan)


def mean_over_ranks(sums: Floats, counts: Floats) -> Floats:
    """Sum over ranks / ranks that measured, per step; nan where none measured."""
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def median_step_ns(steps: RunSteps) -> float | None:
    """Median over steady steps of the slowest rank's time; None without a measured steady step."""
    return median_or_none(steps.step_ns[steps.steady])


def part_median_ns(steps: RunSteps, part: str) -> float | None:
    """Median over steady steps of the part's mean over ranks; None where it was not measured."""
    return median_or_none(steps.part_ns[part][steps.steady])


def median_or_none(values: Floats) -> float | None:
    """The median of what is finite; None of nothing."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else None


def throughput_per_s(global_batch: int, step_ns: float) -> Fraction:
    """Samples per second: global_batch / step. An exact fraction, so that equal times give ratios of exactly 1."""
    return Fraction(global_batch) * 10**9 / Fraction(step_ns)


def unaccounted(step: float, parts: Iterable[float | None]) -> float:
    """What the measured parts leave of the step, in their unit: gaps between marks, the slowest rank's excess over the mean."""
    return step - sum(part for part in parts if part is not None)
