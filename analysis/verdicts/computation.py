"""Slower computation: forward, backward and optimizer take longer with more ranks, at the same batch per rank."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.effects import ratio
from hpcddp.analysis.util.wording import percent, quantity
from hpcddp.analysis.verdicts.binding import cores_of, shared, starved_share
from hpcddp.analysis.verdicts.context import (
    CORES,
    LIMITED,
    Advice,
    Case,
    PointRow,
    Set,
    Verdict,
    found_points,
    layout,
    phrase,
    run_numbers,
)
from hpcddp.analysis.verdicts.gates import CLOCKS, disturbed_by_others
from hpcddp.analysis.verdicts.steps import begins_slowly, stalled_share

COMPUTES = ("forward", "backward", "optimizer")

SLOWER = 0.05
"""Share of the step: runs of one size differ by less, and DDP's copies into buckets take less."""

EXPLAINS = 0.5
"""Share of what the step is longer: with less, something else holds the point back more."""

CLOCKS_FALL = 0.03
"""Share by which clocks or power of GPUs must be lower than at the baseline to be named."""


class Slower(NamedTuple):
    """Of one point against its baseline; times in ns a step of the median rank."""

    base: PointRow
    base_ns: float
    here_ns: float
    share: float
    """Of the step that computation is longer."""
    explains: float
    """Share of what the step is longer."""


def slower_computation(case: Case) -> Iterator[Verdict]:
    """A larger point computes more slowly than the smallest of its series."""
    for found in found_points(case, _slower):
        row, worst = found.rows[-1], found.values[-1]
        pairs = ((worst.here_ns, row), (worst.base_ns, worst.base))
        times = " and ".join(f"{quantity(ns / 1e6)} ms a step at {layout(each)}" for ns, each in pairs)
        yield found.verdict(
            evidence=f"forward, backward and optimizer take {times}, at the same batch: that explains "
            f"{percent(worst.explains)} of the lost efficiency ({run_numbers(case.runs_of(row))})",
            todo=_advice(case, worst.base, row),
            numbers={"slower": worst.here_ns / worst.base_ns - 1, "share": worst.share, "explains": worst.explains},
            weight=LIMITED + min(0.99, max(each.share for each in found.values)),
        )


def slower_share(case: Case, row: PointRow) -> float | None:
    """The share of a point's step by which its computation is longer than the baseline's; None where it is no cause."""
    found = _slower(case, row)
    return found.share if found else None


def _slower(case: Case, row: PointRow) -> Slower | None:
    """None where it is no major part of what is lost, by chance, or where another verdict says why."""
    base = next((each for _, each in case.points[case.points["series"] == row["series"]].iterrows()), row)
    runs, base_runs = case.runs_of(row), case.runs_of(base)
    if base["gpus"] >= row["gpus"] or base["batch_per_gpu"] != row["batch_per_gpu"] or _is_explained(case, row, runs):
        return None
    here, there = ([ns for run in each if (ns := _computes_ns(run)) is not None] for each in (runs, base_runs))
    if not here or not there:
        return None
    apart, here_ns, base_ns = ratio(here, there), statistics.median(here), statistics.median(there)
    steps_ns = [statistics.median(run.step_ns or 0.0 for run in each) for each in (runs, base_runs)]
    longer, share = steps_ns[0] - steps_ns[1], (here_ns - base_ns) / steps_ns[0]
    sure = apart.low is None or apart.low > 1
    if not sure or share < SLOWER or longer <= 0 or share * steps_ns[0] < EXPLAINS * longer:
        return None
    return Slower(base, base_ns, here_ns, share, min(1.0, share * steps_ns[0] / longer))


def _computes_ns(run: Run) -> float | None:
    """Of the median rank: one that is slow by itself is a straggler. None where waits for shards are in it."""
    found, sharded = run.part_ns or {}, run.point is not None and run.point.sharded
    known = [ns for part in COMPUTES if (ns := found.get(part)) is not None]
    if len(known) < len(COMPUTES) or (sharded and found.get("comm_exposed") is None):
        return None
    over = run.unevenness.part_over_ns if run.unevenness else {}
    return sum(known) - sum(statistics.fmean(over[part]) for part in COMPUTES if part in over)


def _is_explained(case: Case, row: PointRow, runs: list[Run]) -> bool:
    """By cores that lack or are shared, others on the node, warm-up, stalls, or clocks for which runs were rejected."""
    labels = {run.label for run in runs}
    hot = any(run.label in labels and run.signals and CLOCKS in run.signals.failed for run in case.records.runs)
    crowded = starved_share(case, row) is not None or stalled_share(case, row) is not None
    odd = [run for run in runs if disturbed_by_others(run) or begins_slowly(run) or shared(run)]
    return hot or crowded or 2 * len(odd) >= len(runs)


def _advice(case: Case, base: PointRow, row: PointRow) -> Advice:
    cores, more = (cores_of(case.runs_of(each)[0]) for each in (row, base))
    if row["device"] == "cuda":
        return _gpu_advice(case.runs_of(row), case.runs_of(base))
    if cores and more and cores < more:
        has = f"a rank has {cores:.3g} physical cores there, and {more:.3g} at {layout(base)}: compare equal ones, "
        return phrase(has, Set({CORES: int(cores)}))
    return (
        "ranks of a node share its memory bandwidth, caches and turbo clocks: see that each has cores of its own (table of "
        "bindings); `hpcddp submit SWEEP.yaml --preflight` measures memory bandwidth"
    )


def _gpu_advice(runs: Sequence[Run], base_runs: Sequence[Run]) -> Advice:
    """With what telemetry says of clocks and power."""
    fell = []
    for name, unit in (("sm_mhz_median", "MHz"), ("power_w_mean", "W")):
        known = [[getattr(gpu, name) or 0 for run in each for gpu in run.readings.gpus] for each in (runs, base_runs)]
        here, there = (statistics.median(values or [0]) for values in known)
        if 0 < here < (1 - CLOCKS_FALL) * there:
            fell.append(f"{quantity(here)} {unit} instead of {quantity(there)}")
    if fell:
        return f"GPUs have {' and '.join(fell)}: ask the site for their power cap and cooling"
    if any(run.readings.gpus for run in runs):
        kernels = Set({"measure.profile_steps": 5})
        return phrase("clocks and power of GPUs do not say why: ", kernels, " shows which kernels are longer beside the exchange")
    return phrase("read clocks and power of GPUs, of which many on a node may share a cap: ", Set({"measure.telemetry_hz": 1}))
