"""Binding: ranks that share cores, and ranks on another socket than their GPU, by what launch.json says of each rank.

Either is certain, but what it costs is not measured: it stands behind verdicts that have measured a cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.signals import FarRank, SharedCores, far_ranks, runs_far, shared_cores
from hpcddp.analysis.util.wording import percent
from hpcddp.analysis.verdicts import context
from hpcddp.analysis.verdicts.context import CORES, LIMITED, WORKERS, Advice, Case, PointRow, Set, Verdict, phrase, run_numbers
from hpcddp.core.text import count

BUSY = 0.9
"""Share of the job's CPU time from which on its CPUs are busy: loaders that wait for disks or the trainer use less."""


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
    waiting = waits is not None and run.step_ns is not None and waits >= context.INPUT_SHARE * run.step_ns
    return 1 - cores / needed if (waiting if busy is None else busy >= BUSY) else None


def cpu_starvation(case: Case) -> Iterator[Verdict]:
    """More processes than physical cores, and the CPUs have no time left."""
    for found in context.found_points(case, starved_share):
        runs = starved_runs(case, found.rows)
        worst = max(runs, key=lambda run: (starved(run) or 0.0, run.name))
        cores, processors = cores_of(worst) or 0.0, worst.signals.processors if worst.signals else None
        busy = processors.busy if processors else None
        threads = processors.threads if processors else 1
        counted = f" ({cores * threads:.3g} Slurm CPUs, {threads} per core)" if threads > 1 else ""
        yield found.verdict(
            evidence=f"A rank has {cores:.3g} physical core{'s' * (cores != 1)}{counted} and needs "
            f"{needed_cores(worst)}{'' if busy is None else f'. Its CPUs are busy {percent(min(busy, 1))} of the time'} "
            f"({run_numbers(runs)}).",
            todo=context.measured_advice(case, found.rows, context.WAITING)
            or context.unless_slower(case, found.rows, cpu_advice(runs)),
            numbers={"cores": cores, "needed": needed_cores(worst), **({} if busy is None else {"busy_share": busy})},
            runs=runs,
            weight=LIMITED + min(0.99, starved(worst) or 0.0),
        )


def starved_runs(case: Case, rows: Sequence[PointRow]) -> list[Run]:
    """Of the points that lack cores, the runs that do."""
    starved_rows = [row for row in rows if starved_share(case, row) is not None]
    return [run for row in starved_rows for run in case.runs_of(row) if starved(run) is not None]


def starved_share(case: Case, row: PointRow) -> float | None:
    """The largest share of needed cores that a run of the point lacks, where at least half of its runs lack some; else None."""
    runs = case.runs_of(row)
    shares = [share for run in runs if (share := starved(run)) is not None]
    return max(shares) if shares and 2 * len(shares) >= len(runs) else None


def cpu_advice(runs: Sequence[Run]) -> Advice:
    """What to do about missing cores: more cores where the node has them, otherwise fewer processes."""
    run = max(runs, key=lambda run: (starved(run) or 0.0, run.name))
    assert run.point is not None
    cores, most, needed = cores_of(run) or 0.0, most_cores(run), needed_cores(run)
    if most is not None and most > cores:
        more = min(most, needed)
        return phrase(f"Request {more} physical cores per rank instead of {cores:.3g} with ", Set({CORES: more}), ".")
    workers = run.point.workload.loader_workers
    if workers:
        fewer = Set({WORKERS: min(max(most_workers(run, cores), 1), workers - 1)})
        return phrase("Use fewer loader workers with ", fewer, ". The node has no more cores, and processes take turns.")
    physical = run.signals.processors.physical if run.signals and run.signals.processors.physical else 1
    each = run.point.layout.physical_cores_per_rank or 1
    return (
        f"Exclude these points with `--where 'layout.gpus_per_node <= {max(physical // each, 1)}'`. "
        f"Their ranks outnumber the cores and take turns, so they do not measure scaling."
    )


T = TypeVar("T")

SRUN = "slurm.srun_options"
NO_THREADS = Set({"slurm.options": ["--hint=nomultithread"]})
IN_PROFILE = ", or for every sweep with `srun_options` of the profile."
UNBIND = "Start hpcddp without a CPU binding (taskset, numactl, cpuset). Its ranks inherit that binding."


def shared(run: Run) -> list[SharedCores]:
    """Groups of ranks that share fewer cores than they were to have; none where CPU starvation says already what is lacking."""
    if run.signals is None or run.point is None or starved(run) is not None:
        return []
    return list(shared_cores(run.signals.bindings, _cores_wanted(run)))


def far(run: Run) -> list[FarRank]:
    """Ranks on another socket than their GPU; none where ranks share cores: they are bound wrongly for that reason."""
    return [] if run.signals is None or shared(run) else list(far_ranks(run.signals.bindings))


def cores_shared(case: Case) -> Iterator[Verdict]:
    """Ranks compute by turns on the same cores, while others of their node may be idle."""
    for found in context.found_points(case, _judged(shared)):
        runs, worst = _affected(found.runs, shared)
        group, wanted = shared(worst)[0], _cores_wanted(worst)
        on = f"{'threads of ' if group.by_threads else ''}{count(group.cores, 'core')}"
        node = "" if group.node_cores is None else f" The node has {count(group.node_cores, 'core')}."
        yield found.verdict(
            evidence=f"Ranks {_numbers(group.ranks)} of {group.host} share {on}, and each requested {wanted} "
            f"({run_numbers(runs)}).{node}",
            todo=_shared_advice(worst, group),
            numbers={"ranks": len(group.ranks), "cores": group.cores, "cores_per_rank": wanted},
            runs=runs,
            weight=LIMITED,
        )


def far_socket(case: Case) -> Iterator[Verdict]:
    """What a rank copies to its GPU, and what its network adapter sends, crosses the link between the sockets."""
    for found in context.found_points(case, _judged(far)):
        runs, worst = _affected(found.runs, far)
        placed = far(worst)
        host, rank, binding = placed[0]
        is_far = runs_far(binding)
        does, sockets = ("runs", binding.sockets) if is_far else ("has its memory", binding.memory_sockets)
        yield found.verdict(
            evidence=f"Rank {rank} on {host} {does} on socket {_numbers(sockets)}; its GPU ({binding.gpu}) is on socket "
            f"{binding.gpu_socket}. {len(placed)} of {count(_ranks(worst), 'rank')} {'is' if len(placed) == 1 else 'are'} on "
            f"another socket than their GPU ({run_numbers(runs)}).",
            todo=_far_advice(worst, host),
            numbers={"ranks": len(placed), "of": _ranks(worst)},
            runs=runs,
            weight=LIMITED,
        )


def _judged(find: Callable[[Run], list[T]]) -> Callable[[Case, PointRow], int | None]:
    """How many it finds in the run of a point where it finds most; None where it finds nothing."""
    return lambda case, row: max((len(find(run)) for run in case.runs_of(row)), default=0) or None


def _affected(runs: Sequence[Run], find: Callable[[Run], list[T]]) -> tuple[list[Run], Run]:
    """The runs in which it finds something, and the one in which it finds most."""
    affected = [run for run in runs if find(run)]
    return affected, max(affected, key=lambda run: (len(find(run)), run.name))


def _shared_advice(run: Run, group: SharedCores) -> Advice:
    if not context.by_slurm(run):
        return UNBIND
    if group.by_threads:
        return phrase("Request one thread of each core with ", NO_THREADS, ", or with `one_thread_per_core` of the profile.")
    if _by_torchrun(run):
        return phrase("Let the ranks of a node use all cores of their job with ", Set({SRUN: ["--cpu-bind=none"]}), IN_PROFILE)
    return phrase("Bind each rank to its own cores with ", Set({SRUN: ["--cpu-bind=cores"]}), IN_PROFILE)


def _far_advice(run: Run, host: str) -> Advice:
    """With srun's option for this very node where its NUMA nodes are known. Ranks that torchrun starts are not srun's to bind."""
    if not context.by_slurm(run):
        return UNBIND
    if _by_torchrun(run):
        bind = ". Then bind each rank to its GPU's socket with `cpu_masks` of the profile's node type."
        return phrase("Let srun start the ranks with ", Set({"layout.launcher": "direct"}), bind)
    of_gpus = _gpu_nodes(run, host)
    if of_gpus is None or (run.point is not None and not run.point.layout.exclusive):
        return "Bind each rank to cores of its GPU's socket with `cpu_masks` of the profile's node type. Request whole nodes."
    option = f"--cpu-bind=map_ldom:{','.join(map(str, of_gpus))}"
    return phrase("Bind each rank to its GPU's NUMA node with ", Set({SRUN: [option]}), IN_PROFILE)


def _gpu_nodes(run: Run, host: str) -> list[int] | None:
    """The NUMA node of each local rank's GPU; None where one is not known."""
    assert run.signals is not None
    ranks = next(node.ranks for node in run.signals.bindings if node.host == host)
    known = [rank.gpu_numa_node for rank in ranks if rank.gpu_numa_node is not None]
    return known if len(known) == len(ranks) else None


def _cores_wanted(run: Run) -> int:
    assert run.point is not None
    return run.point.layout.physical_cores_per_rank or 1


def _ranks(run: Run) -> int:
    return sum(len(node.ranks) for node in run.signals.bindings) if run.signals else 0


def _by_torchrun(run: Run) -> bool:
    return run.point is not None and run.point.layout.launcher == "torchrun"


def _numbers(numbers: Sequence[int]) -> str:
    return context.listed([str(number) for number in numbers])
