"""Input-bound: the step waits for its batch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.readings import whatever_input
from hpcddp.analysis.util.wording import percent, quantity
from hpcddp.analysis.verdicts.binding import cores_of, cpu_advice, most_cores, most_workers, starved_runs
from hpcddp.analysis.verdicts.context import (
    CORES,
    INPUT_SHARE,
    LIMITED,
    WORKERS,
    Advice,
    Case,
    PointRow,
    Set,
    Verdict,
    found_points,
    larger_batch,
    phrase,
    run_numbers,
    span,
    step_s,
)
from hpcddp.analysis.verdicts.loader_limit import FoundLimit, loader_limit
from hpcddp.analysis.verdicts.measured import FASTER, WAITING, fastest_loading, loading_advice, measured_advice, unless_slower
from hpcddp.analysis.verdicts.slow_ranks import data_share, faster, slow_ranks
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


MOST_WAITING = 0.10
"""Share of the step that ranks may wait: 512 ranks whose steps jitter by 1.5 % each, a sound run, wait 5 % for the latest of
them."""

OF_NOISE = 0.06
"""Deviation of a rank's steps that is ordinary noise, as a share of the step: of 256 ranks the slowest one is then 17 % late,
which the sentence says, and no verdict."""

BY_DATA = 0.5
"""Share of that waiting: where steps would be shorter by more if no rank ever waited for data, loaders make ranks uneven."""


def uneven_ranks(case: Case) -> Iterator[Verdict]:
    """Ranks wait for each other, now for one and now for another."""
    for found in found_points(case, _beyond_noise):
        runs, shares = found.runs, found.values
        yield found.verdict(
            evidence=f"{span(shares)} of the step a rank waits for the slowest one of that step, which is now this one, now that "
            f"({run_numbers(runs)}); without that it would be {faster(max(shares))}",
            todo=_uneven_advice(_by_data(runs, min(shares))),
            numbers={"waiting_share_low": min(shares), "waiting_share_high": max(shares), "faster_by": 1 / (1 - max(shares)) - 1},
            runs=runs,
            weight=LIMITED + min(0.99, max(shares)),
        )


def _beyond_noise(case: Case, row: PointRow) -> float | None:
    """The slowest of n normal values is about that quantile of them (Blom 1958)."""
    share, n = uneven_share(case, row), int(row["ranks"])
    return share if share and share > OF_NOISE * NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) else None


def uneven_share(case: Case, row: PointRow) -> float | None:
    """The share of a point's step that ranks wait for each other in turn, the median of its runs; None up to MOST_WAITING, where
    one rank is always slow, and where they wait for data and input-bound says so."""
    shares = [
        0.0 if slow_ranks(run.unevenness, run.step_ns) else run.unevenness.often_ns / run.step_ns
        for run in case.runs_of(row)
        if run.unevenness and run.step_ns
    ]
    share = statistics.median(shares) if shares else 0.0
    if share <= MOST_WAITING:
        return None
    is_input_bound = _by_data(case.runs_of(row), share) and input_share(case, row) is not None
    return None if is_input_bound else share


def _by_data(runs: Sequence[Run], share: float) -> bool:
    return statistics.median(data_share(run) or 0.0 for run in runs) > BY_DATA * share


def _uneven_advice(by_data: bool) -> Advice:
    if by_data:
        io = Set({"measure.input": "io"})
        return phrase("batches are late on one rank after the other: ", io, " times the loaders alone, and says what limits them")
    return phrase(
        "look for what disturbs ranks in turn: batches of unlike cost, garbage collection (",
        Set({"measure.gc": "frozen"}),
        "), cores that ranks share, other processes on the nodes; the figure of ranks shows who was slow when",
    )
