"""Which limit of the loaders holds where the step waits for data, and the single change that is expected to help."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from hpcddp.analysis.records.attempts import merged_loader
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import percent, quantity
from hpcddp.analysis.verdicts.binding import cores_of, most_cores, most_workers
from hpcddp.analysis.verdicts.context import (
    CORES,
    INPUT_SHARE,
    WORKERS,
    Advice,
    Case,
    PointRow,
    Set,
    larger_batch,
    phrase,
    step_s,
)
from hpcddp.analysis.verdicts.measured import loading_row
from hpcddp.core.attempt_records import LoaderTimes
from hpcddp.core.point_rules import IN_MEMORY
from hpcddp.core.text import count

LoaderLimit = Literal["storage", "decoder", "cores", "loader processes", "hand-over", "other waits"]

CORES_WAITED = 0.2
"""Share of the loaders' time from which on they lack processors: on as many processors as processes, what else a node does takes
a few per cent of it."""

MOSTLY = 0.5
"""Share of the loaders' time that is most of it."""

BUSY = 0.8
"""Share of what the loaders could give that is trained, from which on they are what is waited for: their batches come unevenly,
so that a queue of two batches a process is empty now and then before they are busy all the time."""

PASSING_S = 0.0005
"""What passing a batch from a loader process to its rank takes of processors, at least: 0.7 to 1.5 ms on a virtual machine."""

PICTURES = "imagenet"
"""The data set that is decoded."""

FASTEST = "simplejpeg"


@dataclass(frozen=True, kw_only=True)
class FoundLimit:
    """Of one point."""

    limit: LoaderLimit
    because: str
    """What was measured, in words."""
    advice: Advice
    """The single change, with its setting where there is one; empty where nothing is known to help."""


def loader_limit(case: Case, row: PointRow) -> FoundLimit | None:
    """By the run with `measure.input: io` at the point's layout where there is one, otherwise by the point's own; None where
    nothing says it, or the loaders could give more than is trained."""
    loading = io_row(case, row)
    runs = case.runs_of(row if loading is None else loading)
    times = merged_loader(run.loader for run in runs)
    if times is None:
        return None
    if not times.workers:
        return _without_processes(case, row, runs[0], times)
    if loading is None:
        return _of_times(runs[0], times) if row["samples_per_s"] >= BUSY * times.samples_per_s else None
    if not _passing_limits(times) and row["samples_per_s"] < BUSY * loading["samples_per_s"]:
        return _beside_training(case.runs_of(row)[0], row, loading)
    return _of_times(runs[0], times)


def _without_processes(case: Case, row: PointRow, run: Run, times: LoaderTimes) -> FoundLimit:
    """Between two steps of the rank: a process helps where reading takes longer than passing on."""
    batch_s = times.read_s / times.batches
    if batch_s >= PASSING_S:
        return FoundLimit(limit="loader processes", because="a rank has none, and loads between its steps", advice="")
    resident = _passing_nothing_on(run) if run.point and run.point.workload.data.name in IN_MEMORY else ""
    return FoundLimit(
        limit="hand-over",
        because=f"a rank reads a batch in {quantity(1e6 * batch_s)} µs, and a process would need longer to pass it on",
        advice=resident or phrase("larger batches cost less for each sample: ", larger_batch(case, row)),
    )


def io_row(case: Case, row: PointRow) -> PointRow | None:
    """The row of the same series and layout that only loads; None where there is none with the loaders' times."""
    found = loading_row(case, row)
    return None if found is None or merged_loader(run.loader for run in case.runs_of(found)) is None else found


def _beside_training(run: Run, row: PointRow, loading: PointRow) -> FoundLimit:
    """Loaders by themselves would do: what they lack is what training takes."""
    rates = (quantity(each["samples_per_s"]) for each in (loading, row))
    return FoundLimit(
        limit="cores",
        because="loaders give {} samples/s by themselves, beside training {}".format(*rates),
        advice=_more_cores(run),
    )


def _of_times(run: Run, times: LoaderTimes) -> FoundLimit | None:
    total_s = times.read_s + times.hand_over_s
    lacks, waits = (times.processor_wait_s or 0.0) / total_s, (times.storage_wait_s or 0.0) / total_s
    if _passing_limits(times):
        return _hand_over(run, times)
    if lacks >= CORES_WAITED:
        return FoundLimit(
            limit="cores",
            because=f"loaders wait for a free processor {percent(lacks)} of their time",
            advice=_more_cores(run),
        )
    without_files = run.point is not None and run.point.workload.data.name.startswith((*IN_MEMORY, "synthetic"))
    if waits >= MOSTLY and (without_files or not times.waits_for_files):
        return FoundLimit(
            limit="other waits",
            because=f"loaders wait {percent(waits)} of their time for neither a processor nor files, which they hardly read",
            advice=phrase(
                "find what reading a sample waits for (a lock, the network, a sleep in the data set's code); waits overlap with ",
                Set({WORKERS: 2 * max(1, times.workers)}),
            ),
        )
    if waits >= MOSTLY:
        return FoundLimit(
            limit="storage",
            because=f"loaders wait for files {percent(waits)} of their time",
            advice=_faster_storage(run),
        )
    if times.compute_s < MOSTLY * total_s:
        return None  # on a kernel that does not say for what they wait
    return _computing(run, times, percent(times.compute_s / total_s))


def _passing_limits(times: LoaderTimes) -> bool:
    """Whether it is most of what processes do, or ranks take longer to receive batches than their processes to read them."""
    total_s = times.read_s + times.hand_over_s
    return times.hand_over_s >= MOSTLY * total_s or times.receive_s * max(1, times.workers) > total_s


def _hand_over(run: Run, times: LoaderTimes) -> FoundLimit:
    each_us = 1e6 * (times.hand_over_s + times.receive_s) / times.batches
    return FoundLimit(
        limit="hand-over",
        because=f"passing a batch from a loader process to its rank takes {quantity(each_us)} µs of processors, reading it "
        f"{quantity(1e6 * times.read_s / times.batches)} µs",
        advice=_passing_nothing_on(run),
    )


def _passing_nothing_on(run: Run) -> Advice:
    if run.point and run.point.workload.data.name in IN_MEMORY:
        return phrase("data on the device need no loaders: ", Set({"workload.data.resident": True, WORKERS: 0}))
    return phrase("a rank that reads for itself passes nothing on: ", Set({WORKERS: 0}))


def _computing(run: Run, times: LoaderTimes, share: str) -> FoundLimit:
    """What loaders compute is most of their time: more of them where cores are left for them."""
    assert run.point is not None
    cores, workers = cores_of(run), times.workers
    because = f"loaders compute {share} of their time"
    more = most_workers(run, cores) if cores else workers
    if more > workers:
        expected = quantity(times.samples_per_s * more / workers)
        return FoundLimit(
            limit="loader processes",
            because=f"{because}, {workers} on {math.floor(cores or 0)} cores a rank",
            advice=phrase(
                f"a rank has {math.floor(cores or 0)} physical cores and {count(workers, 'loader worker')}: ",
                Set({WORKERS: more}),
                f"; {quantity(times.samples_per_s)} samples/s become up to {expected}",
            ),
        )
    if run.point.workload.data.name == PICTURES and run.decoder and not run.decoder.startswith(FASTEST):
        return FoundLimit(
            limit="decoder",
            because=f"{because}, with {run.decoder}",
            advice=f"install {FASTEST} in the compute environment (`pip install {FASTEST}`), which decodes less and faster",
        )
    return FoundLimit(limit="cores", because=f"{because}, and each core has one", advice=_more_cores(run))


def _more_cores(run: Run) -> Advice:
    """Empty where nobody says how many there are."""
    assert run.point is not None
    cores, most = cores_of(run), most_cores(run)
    if not cores or not most:
        return ""
    if most <= cores:
        fewer = " or have fewer ranks on a node," if run.point.layout.gpus_per_node > 1 else ""
        return f"the node has no more cores for a rank: see that nothing else runs there,{fewer} or prepare data that need less"
    workers = max(most_workers(run, most), run.point.workload.loader_workers)
    return phrase(f"ask for {most} physical cores per rank, not {cores:.3g}: ", Set({CORES: most, WORKERS: workers}))


def _faster_storage(run: Run) -> Advice:
    """In the order of what it costs."""
    assert run.point is not None
    data = run.point.workload.data
    packed = "pack single files into tar files (`hpcddp data pack imagenet`), " if data.name == PICTURES else ""
    stage = Set({"workload.data.stage": "tmpdir"})
    staged = phrase("copy the data to each node's own disk (", stage, "), ") if data.stage == "none" else ""
    return phrase(packed, staged, f"{'or ' if packed or staged else ''}move the data to a faster file system")


LOADER_COLUMNS = {
    "label": "string",
    "series": "string",
    "nodes": "Int64",
    "gpus_per_node": "Int64",
    "gpus": "Int64",
    "device": "string",
    "input": "string",
    "n": "Int64",
    "workers": "Int64",
    "samples_per_s": "Float64",
    "data_wait_share": "Float64",
    "loader_samples_per_s": "Float64",
    "compute_share": "Float64",
    "processor_wait_share": "Float64",
    "storage_wait_share": "Float64",
    "hand_over_share": "Float64",
    "limit": "string",
}
"""`workers` of a rank; `samples_per_s` trained, or loaded alone with `input: io`; `data_wait_share` of the step; `loader_...` as
LoaderTimes has it; shares are of the time that loaders spend on batches. `limit`: where the step waits."""

OF_ROW = ("label", "series", "nodes", "gpus_per_node", "gpus", "device", "input", "n", "samples_per_s")


def loaders_frame(case: Case, scaling: pd.DataFrame) -> pd.DataFrame:
    """A row per row of the scaling table whose runs have loaders."""
    known = ((row, merged_loader(run.loader for run in case.runs_of(row))) for _, row in scaling.iterrows())
    rows = [_row(case, row, times) for row, times in known if times is not None]
    return pd.DataFrame(rows, columns=list(LOADER_COLUMNS)).astype(LOADER_COLUMNS)


def _row(case: Case, row: PointRow, times: LoaderTimes) -> dict[str, Any]:
    total_s = times.read_s + times.hand_over_s
    waits = (times.processor_wait_s, times.storage_wait_s)
    shares = [None if part_s is None else part_s / total_s for part_s in (times.compute_s, *waits, times.hand_over_s)]
    wait = None if pd.isna(row["data_wait_s"]) else float(row["data_wait_s"] / step_s(row))
    limit = loader_limit(case, row) if row["input"] == "full" and wait is not None and wait >= INPUT_SHARE else None
    return {
        **{name: row[name] for name in OF_ROW},
        "workers": times.workers,
        "data_wait_share": wait,
        "loader_samples_per_s": times.samples_per_s,
        **dict(zip(("compute_share", "processor_wait_share", "storage_wait_share", "hand_over_share"), shares, strict=True)),
        "limit": limit.limit if limit else None,
    }
