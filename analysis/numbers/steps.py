"""Formulas within one run. A step of a DDP job lasts as long as its slowest rank; times are integer nanoseconds as recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.rows import Columns
from hpcddp.records import PARTS

Floats = NDArray[np.float64]
"""Nanoseconds in doubles: exact up to 2^53 ns, 104 days; nan was not measured."""


RECORDED = (*PARTS, "h2d_hidden")
"""The parts of a step, and the copies that go on beside them, outside their sum."""


@dataclass(frozen=True)
class RunSteps:
    """The steps of one run, reduced over its ranks; every array has one entry per step, and one row per rank where it says so."""

    steady: NDArray[np.bool_]
    """False for the warm-up, for what follows a pause, and for steps of which a rank does not know how long they took."""
    step_ns: Floats
    """Max over ranks."""
    part_ns: Mapping[str, Floats]
    """Part -> mean over the ranks that measured it; nan where none did."""
    own_ns: Floats
    """(ranks, steps): the step without exposed communication, which on a rank that is not the last is waiting for that one."""
    step: NDArray[np.int64]
    """The number of each in the run, ascending; there is a gap where the records of an attempt are lost."""


def over_ranks(ranks: Iterable[Columns], count: int, steady_from_step: int = 0) -> RunSteps:
    """Reduces the step tables of so many ranks, one at a time. ValueError where ranks stepped differently.

    Steady: no flag says otherwise, from the given step on, and measured on every rank.
    """
    tables = iter(ranks)
    rank_0 = next(tables, None)
    if rank_0 is None:
        raise ValueError("no rank has step rows")
    first, step_ns = {name: rank_0[name].copy() for name in ("step", "flags")}, rank_0["total_ns"].copy()
    sums: dict[str, Any] = {part: np.zeros(step_ns.size, np.int64) for part in RECORDED}
    counts: dict[str, Any] = dict.fromkeys(RECORDED, 0)
    own = np.empty((count, step_ns.size))
    for rank, columns in enumerate(chain([rank_0], tables)):
        if not all(np.array_equal(values, columns[name]) for name, values in first.items()):
            raise ValueError(f"rank {rank} did not step like rank 0 ({columns['step'].size} and {first['step'].size} rows)")
        step_ns = _joined_by(np.maximum, step_ns, columns["total_ns"])
        for part in RECORDED:
            value = columns[f"{part}_ns"]
            if value.dtype == np.int64 or np.isfinite(value).any():
                sums[part] = _joined_by(np.add, sums[part], or_zero(value))
                counts[part] = counts[part] + (1 if value.dtype == np.int64 else np.isfinite(value))
        own[rank] = columns["total_ns"] - or_zero(columns["comm_exposed_ns"])
    parts = {part: mean_over_ranks(sums[part], counts[part]) for part in RECORDED}
    steady = steady_rows(first, steady_from_step) & np.isfinite(step_ns)
    return RunSteps(steady, step_ns.astype(np.float64), parts, own, first["step"])


def _joined_by(operation: np.ufunc, so_far: Any, column: Any) -> Any:
    """In the memory of what there is so far, if that can hold it."""
    return operation(so_far, column, out=so_far if so_far.dtype == np.result_type(so_far, column) else None)


def before(steps: RunSteps, end: int) -> RunSteps:
    """Those whose number is less than `end`."""
    count = int(np.searchsorted(steps.step, end))
    parts = {part: values[:count] for part, values in steps.part_ns.items()}
    return RunSteps(steps.steady[:count], steps.step_ns[:count], parts, steps.own_ns[:, :count], steps.step[:count])


def joined(stretches: Sequence[RunSteps]) -> RunSteps:
    """The steps of a run that several attempts made, at least one, in the order of their numbers; of as many ranks each."""
    if len(stretches) == 1:
        return stretches[0]
    return RunSteps(
        np.concatenate([each.steady for each in stretches]),
        np.concatenate([each.step_ns for each in stretches]),
        {part: np.concatenate([each.part_ns[part] for each in stretches]) for part in stretches[0].part_ns},
        np.concatenate([each.own_ns for each in stretches], axis=1),
        np.concatenate([each.step for each in stretches]),
    )


def or_zero(column: Any) -> Any:
    """0 where nothing was measured."""
    return column if column.dtype == np.int64 else np.where(np.isfinite(column), column, 0.0)


def steady_rows(columns: Columns, from_step: int) -> NDArray[np.bool_]:
    """Which rows of a rank's steps count."""
    steady: NDArray[np.bool_] = (columns["flags"] == 0) & (columns["step"] >= from_step)
    return steady


def mean_over_ranks(sums: Floats, counts: Floats | int) -> Floats:
    """Sum over ranks / ranks that measured, per step (the same in all: one number); nan where none measured."""
    means: Floats = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=np.greater(counts, 0))
    return means


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
