"""Input-bound: the step waits for its batch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.limits import whatever_input
from hpcddp.analysis.util.wording import percent, quantity
from hpcddp.analysis.verdicts.context import (
    INPUT_SHARE,
    LIMITED,
    Case,
    PointRow,
    Verdict,
    found_points,
    larger_batch,
    run_numbers,
    span,
    step_s,
)
from hpcddp.analysis.verdicts.cores import cores_of, cpu_advice, most_cores, most_workers, starved_runs
from hpcddp.analysis.verdicts.loader_limit import FoundLimit, loader_limit
from hpcddp.analysis.verdicts.measured import FASTER, WAITING, fastest_loading, loading_advice, measured_advice, unless_slower
from hpcddp.analysis.verdicts.settings import CORES, WORKERS, Advice, Set, phrase
from hpcddp.analysis.verdicts.slow_ranks import data_share, slow_ranks
from hpcddp.core.point import Point
from hpcddp.core.text import count

MOSTLY_FIRST = 0.5
"""Share of the wait for data from which on the first batches of epochs are most of it."""

NO_FASTER = 0.05
"""A trainer that a resident batch makes faster by no more than this share does not wait for data."""


def input_bound(case: Case) -> Iterator[Verdict]:
    """The step waits for its batch; where the limits were measured, a resident batch must make it faster."""
    for found in found_points(case, input_share):
        rows, shares = found.rows, found.values
        limit = loader_limit(case, _widest_row(rows))
        gain = 1 / (1 - min(0.99, max(shares + [_saved(case, row) for row in rows]))) - 1
        yield found.verdict(
            evidence=f"{span(shares)} of the step waits for data ({run_numbers(found.runs)}){_limits_words(case, rows[-1])}"
            f"{f'; the limit: {limit.limit} ({limit.because})' if limit else ''}; "
            f"without waiting it would be up to {percent(gain)} faster",
            todo=measured_advice(case, rows, WAITING) or input_advice(case, found.series, rows, limit),
            numbers={"wait_share_low": min(shares), "wait_share_high": max(shares), "faster_by": gain}
            | _limits(case, rows[-1])
            | ({"fastest_loader": fastest[1]} if (fastest := fastest_loading(case, rows[-1])) else {}),
            weight=LIMITED + max(shares),
        )


def input_share(case: Case, row: PointRow) -> float | None:
    """The share of a point's step that waits for data, the mean over ranks; None below INPUT_SHARE, and where ranks with late
    batches hold up others that hardly wait: these are stragglers."""
    if row["input"] != "full" or pd.isna(row["data_wait_s"]):
        return None
    share = float(row["data_wait_s"] / step_s(row))
    limits = _limits(case, row)
    if "trainer" in limits and limits["trainer"] <= (1 + NO_FASTER) * row["samples_per_s"]:
        return None
    return share if share >= INPUT_SHARE and not _for_few(case, row, share) else None


def _saved(case: Case, row: PointRow) -> float:
    """The share of a step that would be saved without waiting for data: all ranks wait for the one whose batch comes last."""
    return statistics.median(data_share(run) or 0.0 for run in case.runs_of(row))


def _for_few(case: Case, row: PointRow, share: float) -> bool:
    """Whether, in at least half of a point's runs, some ranks always wait for data, and the median rank hardly does."""
    runs = [run for run in case.runs_of(row) if run.unevenness and run.step_ns]
    late = [run for run in runs if _waits_little(run, share)]
    return bool(late) and 2 * len(late) >= len(runs)


def _waits_little(run: Run, share: float) -> bool:
    """Whether some ranks wait for data and the median rank hardly: the mean over ranks less what ranks wait beyond the median
    one is what the median rank waits."""
    if run.unevenness is None or not run.step_ns or not any(each.by_data for each in slow_ranks(run.unevenness, run.step_ns)):
        return False
    over_ns = statistics.fmean(run.unevenness.part_over_ns["data_wait"])
    return share - over_ns / run.step_ns < INPUT_SHARE


def _limits(case: Case, row: PointRow) -> dict[str, float]:
    """Samples/s of the trainer and of the loader by themselves, where they were measured at the point's layout."""
    rates = case.limits.get((whatever_input(row["series"]), row["nodes"], row["gpus_per_node"]), {})
    return {name: rates[given] for name, given in (("trainer", "synthetic"), ("loader", "io")) if given in rates}


def _limits_words(case: Case, row: PointRow) -> str:
    limits = _limits(case, row)
    words = [f"the {who} alone reaches {quantity(rate)} samples/s" for who, rate in limits.items()]
    if (fastest := fastest_loading(case, row)) and fastest[1] >= (1 + FASTER) * limits.get("loader", 0):
        words.append(f"the fastest loader ({fastest[0]}) {quantity(fastest[1])} samples/s")
    return f"; {', '.join(words)}" if words else ""


def input_advice(case: Case, series: pd.DataFrame, rows: Sequence[PointRow], limit: FoundLimit | None = None) -> Advice:
    """What to do about waiting for data, unless the study's own rates contradict it."""
    return unless_slower(case, rows, _input_advice(case, series, rows, limit))


def _input_advice(case: Case, series: pd.DataFrame, rows: Sequence[PointRow], limit: FoundLimit | None) -> Advice:
    """Where any point of the series lacks cores, that comes first, in the words of that verdict: more workers would need more
    cores. Then what points that only load measured to give more, then what the loaders' limit says, where they are known."""
    run = case.runs_of(_widest_row(rows))[0]
    assert run.point is not None
    if run.point.workload.data.resident:
        larger = larger_batch(case, _widest_row(rows))
        return phrase("batches are gathered on the device, some kernels each: ", larger, " needs fewer of them")
    if restarting := _restarting(run):
        return restarting
    starving = starved_runs(case, [row for _, row in series.iterrows()])
    if starving:
        return cpu_advice(starving)
    known = loading_advice(case, _widest_row(rows)) or (limit.advice if limit else ())
    return known or _more_loaders(run, run.point, "loader" in _limits(case, rows[-1]))


def _restarting(run: Run) -> Advice:
    """Where most of the wait is for the first batches of epochs: more loaders would not shorten it."""
    wait_ns = (run.part_ns or {}).get("data_wait")
    if not (run.point and run.epochs and run.first_wait_ns and wait_ns):
        return ()
    first = run.first_wait_ns * len(run.epochs) / run.epochs[-1].step / wait_ns
    if first < MOSTLY_FIRST:
        return ()
    workers, milliseconds = run.point.workload.loader_workers, quantity(run.first_wait_ns / 1e6)
    fewer: Advice = phrase("Fewer loader processes start sooner: ", Set({WORKERS: workers // 2}))
    longer = "Give an epoch more steps: lower `workload.batch_per_gpu`"
    wait = f"The first batch of each epoch is {percent(first)} of that wait: it takes {milliseconds} ms. "
    return phrase(wait, fewer if workers > 1 else longer)


def _more_loaders(run: Run, point: Point, timed: bool) -> Advice:
    """On the cores that a rank has, or could have; else what else to measure of a loader that was `timed` by itself or not."""
    cores, most, workers = cores_of(run), most_cores(run), point.workload.loader_workers
    if cores and workers < (more := most_workers(run, cores)):
        has = f"a rank has {math.floor(cores)} physical cores and {count(workers, 'loader worker')}: "
        return phrase(has, Set({WORKERS: more}))
    if cores and most and most > cores:
        both = Set({CORES: most, WORKERS: max(most_workers(run, most), workers)})
        return phrase(f"ask for {most} physical cores per rank, not {cores:.3g}: ", both)
    if not workers:
        return phrase("batches are loaded between steps: ", Set({WORKERS: 2}), " loads them while the step goes on")
    if timed:
        return "time other settings of the loader by themselves: `hpcddp init loaders` has a sweep of them"
    return phrase(Set({"measure.input": "io"}), " times the loader alone, and says what limits it")


def _widest_row(rows: Sequence[PointRow]) -> PointRow:
    """The point with the most ranks per node: what its runs may have, all may have."""
    return max(rows, key=lambda row: int(row["gpus_per_node"]))
