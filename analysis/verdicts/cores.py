"""CPU starvation: more processes than physical cores. Slurm counts the threads of a core as CPUs; they are no cores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import percent
from hpcddp.analysis.verdicts.context import INPUT_SHARE, LIMITED, Case, PointRow, Verdict, found_points, run_numbers
from hpcddp.analysis.verdicts.measured import WAITING, measured_advice, unless_slower
from hpcddp.analysis.verdicts.settings import CORES, WORKERS, Advice, Set, phrase

BUSY = 0.9
"""Share of the CPU time the job could use, from which on its CPUs are busy: loaders that wait for disks or for the trainer use
less."""


def cores_of(run: Run) -> float | None:
    """Physical cores of each rank: those it may run on, or, where these are not known, those that were requested."""
    assert run.point is not None
    found = run.signals.processors.of_rank if run.signals else None
    requested = run.point.layout.physical_cores_per_rank
    return found if found is not None else requested


def most_cores(run: Run) -> int | None:
    """Physical cores that the node has for each of its GPUs; on CPUs for each rank."""
    if run.point is None or run.signals is None or run.signals.processors.physical is None:
        return None
    per_node = run.point.layout.gpus_per_node
    found = run.signals.processors
    return (found.physical or 0) // (max(found.gpus or per_node, per_node) if run.point.device == "cuda" else per_node)


def needed_cores(run: Run) -> int:
    """Cores that a rank needs: one for each loader worker, and one for the rank, or on CPUs those that it computes with."""
    assert run.point is not None
    computes = run.point.layout.physical_cores_per_rank if run.point.device == "cpu" else None
    return run.point.workload.loader_workers + (computes or 1)


def most_workers(run: Run, cores: float) -> int:
    """How many loader workers that many cores of a rank can serve; not below 0."""
    assert run.point is not None
    return max(math.floor(cores) - (needed_cores(run) - run.point.workload.loader_workers), 0)


def starved(run: Run) -> float | None:
    """The share of the needed cores that a rank lacks; None where it has enough, or its processors are not known to be busy."""
    cores, needed = cores_of(run), needed_cores(run)
    if cores is None or cores >= needed:
        return None
    busy = run.signals.processors.busy if run.signals else None
    waits = (run.part_ns or {}).get("data_wait")
    waiting = waits is not None and run.step_ns is not None and waits >= INPUT_SHARE * run.step_ns
    return 1 - cores / needed if (waiting if busy is None else busy >= BUSY) else None


def cpu_starvation(case: Case) -> Iterator[Verdict]:
    """More processes than physical cores, and the CPUs have no time left."""
    for found in found_points(case, starved_share):
        runs = starved_runs(case, found.rows)
        worst = max(runs, key=lambda run: (starved(run) or 0.0, run.name))
        cores, processors = cores_of(worst) or 0.0, worst.signals.processors if worst.signals else None
        busy = processors.busy if processors else None
        threads = processors.threads if processors else 1
        yield found.verdict(
            evidence=f"a rank has {cores:.3g} physical core{'s' * (cores != 1)}{_threads_words(cores, threads)} and needs "
            f"{needed_cores(worst)}{'' if busy is None else f'; its CPUs are busy {percent(min(busy, 1))} of the time'} "
            f"({run_numbers(runs)})",
            todo=measured_advice(case, found.rows, WAITING) or unless_slower(case, found.rows, cpu_advice(runs)),
            numbers={"cores": cores, "needed": needed_cores(worst), **({} if busy is None else {"busy_share": busy})},
            runs=runs,
            weight=LIMITED + min(0.99, starved(worst) or 0.0),
        )


def starved_runs(case: Case, rows: Sequence[PointRow]) -> list[Run]:
    """Of the points that lack cores, the runs that do."""
    starved_rows = [row for row in rows if starved_share(case, row) is not None]
    return [run for row in starved_rows for run in case.runs_of(row) if starved(run) is not None]


def starved_share(case: Case, row: PointRow) -> float | None:
    """The largest share of needed cores that a run of the point lacks, where at least half of its runs lack some; otherwise
    None."""
    runs = case.runs_of(row)
    shares = [share for run in runs if (share := starved(run)) is not None]
    return max(shares) if shares and 2 * len(shares) >= len(runs) else None


def _threads_words(cores: float, threads: int) -> str:
    return f" ({cores * threads:.3g} CPUs as Slurm counts: {threads} per core)" if threads > 1 else ""


def cpu_advice(runs: Sequence[Run]) -> Advice:
    """What to do about missing cores: more cores where the node has them, otherwise fewer processes."""
    run = max(runs, key=lambda run: (starved(run) or 0.0, run.name))
    assert run.point is not None
    cores, most, needed = cores_of(run) or 0.0, most_cores(run), needed_cores(run)
    if most is not None and most > cores:
        more = min(most, needed)
        return phrase(f"ask for {more} physical cores per rank, not {cores:.3g}: ", Set({CORES: more}))
    workers = run.point.workload.loader_workers
    if workers:
        fewer = Set({WORKERS: min(max(most_workers(run, cores), 1), workers - 1)})
        return phrase("the node has no more cores, and more processes than cores take turns: ", fewer)
    physical = run.signals.processors.physical if run.signals and run.signals.processors.physical else 1
    each = run.point.layout.physical_cores_per_rank or 1
    return (
        f"more ranks than cores take turns, and this is no scaling: leave such points out, "
        f"`--where 'layout.gpus_per_node <= {max(physical // each, 1)}'`"
    )
