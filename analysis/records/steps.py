"""Formulas within one run; times are integer nanoseconds as recorded.

A run's rate is the samples of its steady steps / the time they took. On each rank steps follow each other without a gap, so the
window from the start of its first to the end of its last steady step, pauses left out, is the sum of its steps: the first one
after a pause included, which waits for the batch of an epoch that begins. Ranks wait for
each other in every step: their windows differ by less than a step, whatever the jitter of where each step ends, and the mean over
ranks needs no boundaries that they share. A maximum over ranks step by step would count that jitter as time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.rows import Columns
from hpcddp.core.records import AFTER_PAUSE, PARTS

Floats = NDArray[np.float64]
"""Nanoseconds in doubles: exact up to 2^53 ns, 104 days; nan was not measured."""


LONGEST_NS = 2**62
"""Over all ranks and steps, so that sums fit into 64 bits: 1,000 ranks for 50 days."""

ROUNDING = 0.001
"""Of a step: CUDA tells times as floats of milliseconds, so that parts and total of short steps differ by some tenths of a us."""

RECORDED = (*PARTS, "h2d_hidden")
"""The parts of a step, and the copies that go on beside them, outside their sum."""


@dataclass(frozen=True)
class StepSpan:
    """Steps of a run from `first` on and before `stop` (None: to the last); no step outside counts."""

    first: int = 0
    stop: int | None = None


ALL_STEPS = StepSpan()


@dataclass(frozen=True)
class RunSteps:
    """The steps of one run, reduced over its ranks; every array has one entry per step, and one row per rank where it says so."""

    steady: NDArray[np.bool_]
    """False outside of the span, for the warm-up, and for steps of which a rank does not know how long they took."""
    sum_ns: NDArray[Any]
    """Sum over ranks of what the step took each of them."""
    step_ns: Floats
    """What one step took: the mean over ranks, or the time between boundaries that all ranks share (exchange_windows.py)."""
    part_ns: Mapping[str, Floats]
    """Part -> mean over the ranks that measured it; nan where none did."""
    own_ns: Floats
    """(ranks, steps): the step without exposed communication, which on a rank that is not the last is waiting for that one."""
    step: NDArray[np.int64]
    """The number of each in the run, ascending; there is a gap where the records of an attempt are lost."""
    window_ns: Floats
    """(ranks,): what all steady steps took each rank; nan where a step of it was not measured."""
    fed_ns: Floats
    """The longest of own_ns over ranks, if none had waited for data."""
    rank_part_ns: Mapping[str, Floats]
    """Part -> (ranks,): sum over steady steps; nan where the rank did not measure it."""
    loss_e9: Floats | None = None
    """The mean over ranks x 10^9; nan where a rank's is not known. None where no rows have it."""
    samples: Floats | None = None
    """Of all ranks; nan where a rank's are not known. None where no rows have them."""
    paused: NDArray[np.bool_] | None = None
    """Whether a pause came before the step; None: nowhere."""


def over_ranks(ranks: Iterable[Columns], count: int, span: StepSpan = ALL_STEPS) -> RunSteps:
    """Reduces the step tables of so many ranks, one at a time. ValueError where ranks stepped differently, or for ever.

    Steady: within `span`, without a flag that leaves the step out, and measured on every rank.
    """
    tables = iter(ranks)
    rank_0 = next(tables, None)
    if rank_0 is None:
        raise ValueError("no rank has step rows")
    first = {name: rank_0[name].copy() for name in ("step", "flags")}
    steady = steady_rows(first, span)
    sums: dict[str, Any] = {part: np.zeros(steady.size, np.int64) for part in ("total", *RECORDED)}
    counts: dict[str, Any] = dict.fromkeys(RECORDED, 0)
    own, fed, window_ns = np.empty((count, steady.size)), np.zeros(steady.size), np.empty(count)
    of_ranks = {part: np.full(count, np.nan) for part in RECORDED}
    losses, samples = (np.zeros(steady.size) if name in rank_0 else None for name in ("loss_e9", "samples"))
    for rank, columns in enumerate(chain([rank_0], tables)):
        if not all(np.array_equal(values, columns[name]) for name, values in first.items()):
            raise ValueError(f"rank {rank} did not step like rank 0 ({columns['step'].size} and {first['step'].size} rows)")
        sums["total"] = _added(sums["total"], columns["total_ns"])
        for part in RECORDED:
            value = columns[f"{part}_ns"]
            if value.dtype == np.int64 or np.isfinite(value).any():
                sums[part] = _added(sums[part], or_zero(value))
                counts[part] = counts[part] + (1 if value.dtype == np.int64 else np.isfinite(value))
                of_ranks[part][rank] = or_zero(value).sum(where=steady)
        own[rank] = columns["total_ns"] - or_zero(columns["comm_exposed_ns"])
        np.maximum(fed, own[rank] - or_zero(columns["data_wait_ns"]), out=fed)
        window_ns[rank] = columns["total_ns"].sum(where=steady, dtype=np.float64)
        if losses is not None:
            losses += columns["loss_e9"]
        if samples is not None:
            samples += columns["samples"]
    if np.nansum(window_ns) > LONGEST_NS:
        raise ValueError(f"the steps of all ranks last {np.nansum(window_ns) / 1e9:.3g} s, longer than can be true")
    parts = {part: mean_over_ranks(sums[part], counts[part]) for part in RECORDED}
    return RunSteps(
        steady=steady & np.isfinite(sums["total"]),
        sum_ns=sums["total"],
        step_ns=sums["total"] / count,
        part_ns=parts,
        own_ns=own,
        fed_ns=fed,
        rank_part_ns=of_ranks,
        step=first["step"],
        window_ns=window_ns,
        loss_e9=None if losses is None else losses / count,
        samples=samples,
        paused=(first["flags"] & AFTER_PAUSE) > 0,
    )


def _added(so_far: Any, column: Any) -> Any:
    """The sum, in the memory of `so_far` if that can hold it."""
    return np.add(so_far, column, out=so_far if so_far.dtype == np.result_type(so_far, column) else None)


def before(steps: RunSteps, end: int) -> RunSteps:
    """The steps whose number is less than `end`; all steady ones are."""
    return some(steps, slice(int(np.searchsorted(steps.step, end))))


def some(steps: RunSteps, which: slice | NDArray[np.bool_]) -> RunSteps:
    """Some of the steps; windows and parts of ranks stay those of all steady ones."""
    return replace(
        steps,
        **{name: getattr(steps, name)[which] for name in OF_STEPS},
        part_ns={part: values[which] for part, values in steps.part_ns.items()},
        own_ns=steps.own_ns[:, which],
        loss_e9=_each(steps, steps.loss_e9)[which],
        samples=_each(steps, steps.samples)[which],
        paused=after_pauses(steps)[which],
    )


def joined(stretches: Sequence[RunSteps]) -> RunSteps:
    """The steps of a run that several attempts made, at least one, in the order of their numbers; of as many ranks each."""
    if len(stretches) == 1:
        return stretches[0]
    return RunSteps(
        **{name: np.concatenate([getattr(each, name) for each in stretches]) for name in OF_STEPS},
        part_ns={part: np.concatenate([each.part_ns[part] for each in stretches]) for part in stretches[0].part_ns},
        own_ns=np.concatenate([each.own_ns for each in stretches], axis=1),
        window_ns=np.sum([each.window_ns for each in stretches], axis=0),
        rank_part_ns={part: np.sum([each.rank_part_ns[part] for each in stretches], axis=0) for part in RECORDED},
        loss_e9=np.concatenate([losses_e9(each) for each in stretches]),
        samples=np.concatenate([_each(each, each.samples) for each in stretches]),
        paused=np.concatenate([after_pauses(each) for each in stretches]),
    )


def losses_e9(steps: RunSteps) -> Floats:
    """The loss of each step, nan where it is not known."""
    return _each(steps, steps.loss_e9)


def samples_of_steps(steps: RunSteps, batches: NDArray[np.int64]) -> NDArray[np.int64]:
    """What each step trains: `batches`, unless its rows say so of every step."""
    known = _each(steps, steps.samples)
    return known.astype(np.int64) if np.isfinite(known).all() else batches


def _each(steps: RunSteps, values: Floats | None) -> Floats:
    return np.full(steps.step.size, np.nan) if values is None else values


def after_pauses(steps: RunSteps) -> NDArray[np.bool_]:
    """Of each step, whether a pause came before it."""
    return np.zeros(steps.step.size, np.bool_) if steps.paused is None else steps.paused


OF_STEPS = ("steady", "sum_ns", "step_ns", "fed_ns", "step")
"""Arrays of RunSteps with one entry per step."""


def or_zero(column: Any) -> Any:
    """0 where nothing was measured."""
    return column if column.dtype == np.int64 else np.where(np.isfinite(column), column, 0.0)


def steady_rows(columns: Columns, span: StepSpan) -> NDArray[np.bool_]:
    """Which rows of a rank's steps count: those within `span` without a flag that leaves them out."""
    steady: NDArray[np.bool_] = (columns["flags"] & ~AFTER_PAUSE == 0) & (columns["step"] >= span.first)
    return steady if span.stop is None else steady & (columns["step"] < span.stop)


def mean_over_ranks(sums: Floats, counts: Floats | int) -> Floats:
    """Sum over ranks / ranks that measured, per step (the same in all: one number); nan where none measured."""
    means: Floats = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=np.greater(counts, 0))
    return means


def mean_step_ns(steps: RunSteps) -> Fraction | None:
    """The mean over ranks of their windows / steady steps, exactly; None without a measured steady step."""
    count = int(steps.steady.sum()) * len(steps.window_ns)
    return Fraction(int(steps.sum_ns[steps.steady].sum()), count) if count else None


def median_step_ns(steps: RunSteps) -> float | None:
    """Of the steady steps, a typical one; None without a measured one."""
    return median_or_none(steps.step_ns[steps.steady])


def part_mean_ns(steps: RunSteps, part: str) -> float | None:
    """Mean over steady steps of the part's mean over ranks; None where it was not measured.

    Where every rank measures every part of every step, parts add up to mean_step_ns.
    """
    values = steps.part_ns[part][steps.steady]
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else None


def median_or_none(values: Floats) -> float | None:
    """The median of what is finite; None of nothing."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else None


def throughput_per_s(samples: int, time_ns: Fraction | float) -> Fraction:
    """Samples / the time they took. An exact fraction, so that equal times give ratios of exactly 1."""
    return Fraction(samples) * 10**9 / Fraction(time_ns)


def unaccounted(step: float, parts: Iterable[float | None]) -> float | None:
    """What the measured parts leave of the step, in their unit; None for what rounding leaves.

    Parts add up to their step. Something is left where a rank's records lack a part.
    """
    left = step - sum(part for part in parts if part is not None)
    return left if abs(left) > ROUNDING * step else None
