"""Input-bound: the step waits for its batch, for which limit of the loaders, and which single change is expected to help."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

import pandas as pd

from hpcddp.analysis.records.attempts import merged_loader
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.frames import typed_frame
from hpcddp.analysis.study.readings import PLACE, whatever_input
from hpcddp.analysis.util.wording import percent, quantity
from hpcddp.analysis.verdicts import context
from hpcddp.analysis.verdicts.binding import cores_of, cpu_advice, most_cores, most_workers, starved_runs
from hpcddp.analysis.verdicts.context import (
    CORES,
    LIMITED,
    WORKERS,
    Advice,
    Case,
    PointRow,
    Set,
    Verdict,
    phrase,
    run_numbers,
    span,
)
from hpcddp.analysis.verdicts.straggler import data_share, faster, slow_ranks
from hpcddp.core.attempt_records import LoaderTimes
from hpcddp.core.point import Point
from hpcddp.core.point_rules import IN_MEMORY
from hpcddp.core.text import count

MOSTLY_FIRST = 0.5
"""Share of the wait for data from which on the first batches of epochs are most of it."""

NO_FASTER = 0.05
"""A trainer that a resident batch makes faster by no more than this share does not wait for data."""


def input_bound(case: Case) -> Iterator[Verdict]:
    """The step waits for its batch; where the limits were measured, a resident batch must make it faster."""
    for found in context.found_points(case, input_share):
        rows, shares = found.rows, found.values
        limit = loader_limit(case, _widest_row(rows))
        saved = [statistics.median(data_share(run) or 0.0 for run in case.runs_of(row)) for row in rows]
        gain = 1 / (1 - min(0.99, max(shares + saved))) - 1  # all ranks wait for the one whose batch comes last
        said = found.verdict(
            evidence=f"Ranks wait for data during {span(shares)} of the step ({run_numbers(found.runs)})."
            f"{_limits_words(case, rows[-1])}{f' The limit is {IN_WORDS[limit.limit]}. {limit.because}' if limit else ''} "
            f"Without this wait, a step would be up to {percent(gain)} faster.",
            todo=context.measured_advice(case, rows, context.WAITING) or input_advice(case, found.series, rows, limit),
            numbers={"wait_share_low": min(shares), "wait_share_high": max(shares), "faster_by": gain}
            | _limits(case, rows[-1])
            | ({"fastest_loader": fastest[1]} if (fastest := context.fastest_loading(case, rows[-1])) else {}),
            weight=LIMITED + max(shares),
        )
        yield replace(said, brief=f"{span(shares)} of the step")


def input_share(case: Case, row: PointRow) -> float | None:
    """The share of a point's step that waits for data, the mean over ranks; None below INPUT_SHARE, and where ranks with late
    batches hold up others that hardly wait: these are stragglers."""
    share, trainer = context.data_wait(row), _limits(case, row).get("trainer")
    if share is None or (trainer and trainer <= (1 + NO_FASTER) * row["samples_per_s"]):
        return None
    return None if _for_few(case, row, share) else share


def _for_few(case: Case, row: PointRow, share: float) -> bool:
    """Whether, in at least half of a point's runs, some ranks always wait for data, and the median rank hardly does: it waits for
    the mean over ranks less what ranks wait beyond it."""
    known = [(run.unevenness, run.step_ns) for run in case.runs_of(row) if run.unevenness and run.step_ns]
    late = [(uneven, ns) for uneven, ns in known if any(each.part == "data_wait" for each in slow_ranks(uneven, ns))]
    few = [ns for uneven, ns in late if share - statistics.fmean(uneven.part_over_ns["data_wait"]) / ns < context.INPUT_SHARE]
    return bool(few) and 2 * len(few) >= len(known)


def _limits(case: Case, row: PointRow) -> dict[str, float]:
    """Samples/s of the trainer and of the loader by themselves, where they were measured at the point's layout."""
    rates = case.limits.get((whatever_input(row["series"]), row["nodes"], row["gpus_per_node"]), {})
    return {name: rates[given] for name, given in (("trainer", "synthetic"), ("loader", "io")) if given in rates}


def _limits_words(case: Case, row: PointRow) -> str:
    limits, reach = _limits(case, row), {"trainer": "Training alone reaches", "loader": "Loaders alone reach"}
    words = [f" {reach[who]} {quantity(rate)} samples/s." for who, rate in limits.items()]
    if (fastest := context.fastest_loading(case, row)) and fastest[1] >= (1 + context.FASTER) * limits.get("loader", 0):
        words.append(f" The fastest loaders ({fastest[0]}) reach {quantity(fastest[1])} samples/s.")
    return "".join(words)


def input_advice(case: Case, series: pd.DataFrame, rows: Sequence[PointRow], limit: FoundLimit | None = None) -> Advice:
    """What to do about waiting for data, unless the study's own rates contradict it."""
    return context.unless_slower(case, rows, _input_advice(case, series, rows, limit))


def _input_advice(case: Case, series: pd.DataFrame, rows: Sequence[PointRow], limit: FoundLimit | None) -> Advice:
    """Where any point of the series lacks cores, that comes first, in the words of that verdict: more workers would need more
    cores. Then what points that only load measured to give more, then what the loaders' limit says, where they are known."""
    run = case.runs_of(_widest_row(rows))[0]
    assert run.point is not None
    if run.point.workload.data.resident:
        larger = context.larger_batch(case, _widest_row(rows))
        return phrase("Use larger batches with ", larger, ". The device gathers each batch with several kernels.")
    if restarting := _restarting(run):
        return restarting
    starving = starved_runs(case, [row for _, row in series.iterrows()])
    if starving:
        return cpu_advice(starving)
    known = context.loading_advice(case, _widest_row(rows)) or (limit.advice if limit else ())
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
    fewer: Advice = phrase("Use fewer loader processes, which start sooner, with ", Set({WORKERS: workers // 2}), ".")
    longer = "Lower `workload.batch_per_gpu`, so that an epoch has more steps."
    wait = f" The first batch of each epoch takes {milliseconds} ms, which is {percent(first)} of the wait for data."
    return phrase(fewer if workers > 1 else longer, wait)


def _more_loaders(run: Run, point: Point, timed: bool) -> Advice:
    """On the cores that a rank has, or could have; else what else to measure of a loader that was `timed` by itself or not."""
    cores, most, workers = cores_of(run), most_cores(run), point.workload.loader_workers
    if cores and workers < (more := most_workers(run, cores)):
        has = f". A rank has {math.floor(cores)} physical cores and {count(workers, 'loader worker')}."
        return phrase("Use more loader workers with ", Set({WORKERS: more}), has)
    if cores and most and most > cores:
        return _more_cores(run)
    if not workers:
        return phrase("Load batches during the steps, not between them, with ", Set({WORKERS: 2}), ".")
    if timed:
        return "Time other loader settings alone. `hpcddp init loaders` writes a sweep of them."
    return phrase("Time the loader alone with ", Set({"measure.input": "io"}), ". The analysis then names its limit.")


def _widest_row(rows: Sequence[PointRow]) -> PointRow:
    """The point with the most ranks per node: what its runs may have, all may have."""
    return max(rows, key=lambda row: int(row["gpus_per_node"]))


MOST_WAITING = 0.10
"""Share of the step that ranks may wait: 512 ranks whose steps jitter by 1.5 %, a sound run, wait 5 % for the latest."""

OF_NOISE = 0.06
"""Deviation of a rank's steps, as a share, that is ordinary noise: the slowest of 256 ranks is then 17 % late, no verdict."""

BY_DATA = 0.5
"""Share of that waiting: where steps would be shorter by more if no rank ever waited for data, loaders make ranks uneven."""


def uneven_ranks(case: Case) -> Iterator[Verdict]:
    """Ranks wait for each other, now for one and now for another."""
    for found in context.found_points(case, _beyond_noise):
        runs, shares = found.runs, found.values
        said = found.verdict(
            evidence=f"Ranks wait for the slowest rank during {span(shares)} of the step ({run_numbers(runs)}). "
            f"The slowest rank changes from step to step. Without this wait, a step would be {faster(max(shares))}.",
            todo=_uneven_advice(_by_data(runs, min(shares))),
            numbers={"waiting_share_low": min(shares), "waiting_share_high": max(shares), "faster_by": 1 / (1 - max(shares)) - 1},
            runs=runs,
            weight=LIMITED + min(0.99, max(shares)),
        )
        yield replace(said, brief=f"{span(shares)} of the step")


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
        return phrase("Time the loaders alone with ", io, ". Batches are late on one rank after the other.")
    find = "Find what disturbs ranks in turn: batches of unequal cost, garbage collection ("
    others = "), shared cores, or other processes. The figure of ranks shows which rank was slow when."
    return phrase(find, Set({"measure.gc": "frozen"}), others)


LoaderLimit = Literal["storage", "decoder", "cores", "loader processes", "hand-over", "other waits"]

CORES_WAITED = 0.2
"""Share of the loaders' time from which on they lack processors: what else a node does takes a few per cent of it."""

MOSTLY = 0.5
"""Share of the loaders' time that is most of it."""

BUSY = 0.8
"""Share of what the loaders could give that is trained, from which on they are what is waited for: their batches come unevenly,
so that a queue of two batches a process is empty now and then before they are busy all the time."""

PASSING_S = 0.0005
"""What passing a batch from a loader process to its rank takes of processors, at least: 0.7 to 1.5 ms on a virtual machine."""

IN_WORDS: Mapping[LoaderLimit, str] = {
    "storage": "storage",
    "decoder": "the decoder",
    "cores": "the number of cores",
    "loader processes": "the number of loader processes",
    "hand-over": "batch transfer",
    "other waits": "another wait",
}

PICTURES = "imagenet"
"""The data set that is decoded."""

FASTEST = "simplejpeg"


@dataclass(frozen=True)
class FoundLimit:
    """Of one point."""

    limit: LoaderLimit
    because: str
    """What was measured, in sentences."""
    advice: Advice
    """The single change, with its setting where there is one; empty where nothing is known to help."""


def loader_limit(case: Case, row: PointRow) -> FoundLimit | None:
    """By the run with `measure.input: io` at the point's layout where there is one, otherwise by the point's own; None where
    nothing says it, or the loaders could give more than is trained."""
    loading = context.loading_row(case, row)
    if loading is not None and merged_loader(run.loader for run in case.runs_of(loading)) is None:
        loading = None
    runs = case.runs_of(row if loading is None else loading)
    times = merged_loader(run.loader for run in runs)
    if times is None:
        return None
    if not times.workers:
        return _without_processes(case, row, runs[0], times)
    if loading is None:
        return _of_times(runs[0], times) if row["samples_per_s"] >= BUSY * times.samples_per_s else None
    if not _passing_limits(times) and row["samples_per_s"] < BUSY * loading["samples_per_s"]:
        by_itself, beside = (quantity(each["samples_per_s"]) for each in (loading, row))  # what they lack is what training takes
        because = f"Loaders reach {by_itself} samples/s alone and {beside} samples/s while the model trains."
        return FoundLimit("cores", because, _more_cores(case.runs_of(row)[0]))
    return _of_times(runs[0], times)


def _without_processes(case: Case, row: PointRow, run: Run, times: LoaderTimes) -> FoundLimit:
    """Between two steps of the rank: a process helps where reading takes longer than passing on."""
    batch_s = times.read_s / times.batches
    if batch_s >= PASSING_S:
        return FoundLimit("loader processes", "A rank has none and loads between its steps.", "")
    larger = phrase("Use larger batches, which cost less per sample, with ", context.larger_batch(case, row), ".")
    resident = _passing_nothing_on(run) if run.point and run.point.workload.data.name in IN_MEMORY else ""
    because = f"A rank reads a batch in {quantity(1e6 * batch_s)} µs, and a loader process would take longer to transfer it."
    return FoundLimit("hand-over", because, resident or larger)


def _of_times(run: Run, times: LoaderTimes) -> FoundLimit | None:
    total_s = times.read_s + times.hand_over_s
    lacks, waits = (times.processor_wait_s or 0.0) / total_s, (times.storage_wait_s or 0.0) / total_s
    if _passing_limits(times):
        each_us, read_us = (1e6 * s / times.batches for s in (times.hand_over_s + times.receive_s, times.read_s))
        passing = f"Sending a batch from a loader process to its rank takes {quantity(each_us)} µs of CPU time."
        return FoundLimit("hand-over", f"{passing} Reading the batch takes {quantity(read_us)} µs.", _passing_nothing_on(run))
    if lacks >= CORES_WAITED:
        because = f"Loader processes spend {percent(lacks)} of their time waiting for a free CPU (run-queue wait)."
        return FoundLimit("cores", because, _more_cores(run))
    without_files = run.point is not None and run.point.workload.data.name.startswith((*IN_MEMORY, "synthetic"))
    if waits >= MOSTLY and (without_files or not times.waits_for_files):
        because = f"Loader processes wait during {percent(waits)} of their time, but hardly for a CPU or for files."
        search = "Find what reading a sample waits for (a lock, the network, a sleep in the data set's code). Overlap waits with "
        return FoundLimit("other waits", because, phrase(search, Set({WORKERS: 2 * max(1, times.workers)}), "."))
    if waits >= MOSTLY:
        because = f"Loader processes spend {percent(waits)} of their time waiting for files (I/O wait)."
        return FoundLimit("storage", because, _faster_storage(run))
    if times.compute_s < MOSTLY * total_s:
        return None  # on a kernel that does not say for what they wait
    return _computing(run, times, percent(times.compute_s / total_s))


def _passing_limits(times: LoaderTimes) -> bool:
    """Whether it is most of what processes do, or ranks take longer to receive batches than their processes to read them."""
    total_s = times.read_s + times.hand_over_s
    return times.hand_over_s >= MOSTLY * total_s or times.receive_s * max(1, times.workers) > total_s


def _passing_nothing_on(run: Run) -> Advice:
    if run.point and run.point.workload.data.name in IN_MEMORY:
        return phrase("Keep the data on the device, without loaders (", Set({"workload.data.resident": True, WORKERS: 0}), ").")
    return phrase("Load in the rank itself, without inter-process transfer, with ", Set({WORKERS: 0}), ".")


def _computing(run: Run, times: LoaderTimes, share: str) -> FoundLimit:
    """What loaders compute is most of their time: more of them where cores are left for them."""
    assert run.point is not None
    cores, workers = cores_of(run), times.workers
    because = f"Loader processes compute during {share} of their time"
    more = most_workers(run, cores) if cores else workers
    if more > workers:
        full = math.floor(cores or 0)
        rates = quantity(times.samples_per_s), quantity(times.samples_per_s * more / workers)
        gain = f". The loaders' rate would rise from {rates[0]} to up to {rates[1]} samples/s."
        advice = phrase("Use more loader workers with ", Set({WORKERS: more}), gain)
        has = f"A rank has {full} physical cores and {count(workers, 'loader worker')}."
        return FoundLimit("loader processes", f"{because}. {has}", advice)
    if run.point.workload.data.name == PICTURES and run.decoder and not run.decoder.startswith(FASTEST):
        install = f"Install {FASTEST}, which decodes faster, in the compute environment: `pip install {FASTEST}`."
        return FoundLimit("decoder", f"{because}, with {run.decoder}.", install)
    return FoundLimit("cores", f"{because}, and each core has one.", _more_cores(run))


def _more_cores(run: Run) -> Advice:
    """Empty where nobody says how many there are."""
    assert run.point is not None
    cores, most = cores_of(run), most_cores(run)
    if not cores or not most:
        return ""
    if most <= cores:
        fewer = " use fewer ranks per node," if run.point.layout.gpus_per_node > 1 else ""
        return f"Stop other work on the node,{fewer} or prepare data that need less computing. The node has no more cores."
    workers = max(most_workers(run, most), run.point.workload.loader_workers)
    wider = Set({CORES: most, WORKERS: workers})
    return phrase(f"Request {most} physical cores per rank instead of {cores:.3g} with ", wider, ".")


def _faster_storage(run: Run) -> Advice:
    """In the order of what it costs."""
    assert run.point is not None
    data = run.point.workload.data
    packed = "Pack single files into tar files (`hpcddp data pack imagenet`). " if data.name == PICTURES else ""
    stage = Set({"workload.data.stage": "tmpdir"})
    staged = phrase("Copy the data to each node's own disk (", stage, "). ") if data.stage == "none" else ""
    return phrase(packed, staged, f"{'Otherwise move' if packed or staged else 'Move'} the data to a faster file system.")


OF_LOADERS_TIME = ("compute_share", "processor_wait_share", "storage_wait_share", "hand_over_share")

LOADER_COLUMNS = PLACE | {
    "input": "string",
    "n": "Int64",
    "workers": "Int64",
    **dict.fromkeys(("samples_per_s", "data_wait_share", "loader_samples_per_s", *OF_LOADERS_TIME), "Float64"),
    "limit": "string",
}
"""`workers` of a rank; `samples_per_s` trained, or loaded alone with `input: io`; `data_wait_share` of the step; `loader_...` as
LoaderTimes has it; shares are of the time that loaders spend on batches. `limit`: where the step waits."""

OF_ROW = (*PLACE, "input", "n", "samples_per_s")


def loaders_frame(case: Case, scaling: pd.DataFrame) -> pd.DataFrame:
    """A row per row of the scaling table whose runs have loaders."""
    known = ((row, merged_loader(run.loader for run in case.runs_of(row))) for _, row in scaling.iterrows())
    return typed_frame((_row(case, row, times) for row, times in known if times is not None), LOADER_COLUMNS)


def _row(case: Case, row: PointRow, times: LoaderTimes) -> dict[str, Any]:
    total_s = times.read_s + times.hand_over_s
    waits = (times.processor_wait_s, times.storage_wait_s)
    shares = [None if part_s is None else part_s / total_s for part_s in (times.compute_s, *waits, times.hand_over_s)]
    wait = None if pd.isna(row["data_wait_s"]) else float(row["data_wait_s"] / context.step_s(row))
    limit = loader_limit(case, row) if row["input"] == "full" and wait is not None and wait >= context.INPUT_SHARE else None
    return {
        **{name: row[name] for name in OF_ROW},
        "workers": times.workers,
        "data_wait_share": wait,
        "loader_samples_per_s": times.samples_per_s,
        **dict(zip(OF_LOADERS_TIME, shares, strict=True)),
        "limit": limit.limit if limit else None,
    }
