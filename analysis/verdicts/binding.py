"""Binding: ranks that share cores, and ranks on another socket than their GPU, by what launch.json says of each rank.

Either is certain where it is found. What it costs is not measured, so that it stands behind verdicts
that have measured a cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hpcddp.analysis.runs.bindings import FarRank, SharedCores, far_ranks, runs_far, shared_cores
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.verdicts.context import LIMITED, Case, PointRow, Verdict, found_points, listed, run_numbers
from hpcddp.analysis.verdicts.cores import starved
from hpcddp.analysis.verdicts.settings import Advice, Set, phrase
from hpcddp.core.text import count

T = TypeVar("T")

SRUN = "slurm.srun_options"

NO_THREADS = Set({"slurm.options": ["--hint=nomultithread"]})

IN_PROFILE = ", or, for every sweep, `srun_options` of the profile"

UNBIND = "start hpcddp without the binding that it has there (taskset, numactl, a cpuset), which its ranks inherit"


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
    for found in found_points(case, _judged(shared)):
        runs, worst = _affected(found.runs, shared)
        group, wanted = shared(worst)[0], _cores_wanted(worst)
        on = f"{'threads of ' if group.by_threads else ''}the same {count(group.cores, 'core')}"
        node = "" if group.node_cores is None else f"; the node has {group.node_cores}"
        yield found.verdict(
            evidence=f"ranks {_numbers(group.ranks)} of {group.host} run on {on}, and each was to have {wanted}{node} "
            f"({run_numbers(runs)})",
            todo=_shared_advice(worst, group),
            numbers={"ranks": len(group.ranks), "cores": group.cores, "cores_per_rank": wanted},
            runs=runs,
            weight=LIMITED,
        )


def far_socket(case: Case) -> Iterator[Verdict]:
    """What a rank copies to its GPU, and what its network adapter sends, crosses the link between the sockets."""
    for found in found_points(case, _judged(far)):
        runs, worst = _affected(found.runs, far)
        placed = far(worst)
        host, rank, binding = placed[0]
        is_far = runs_far(binding)
        does, sockets = ("runs", binding.sockets) if is_far else ("takes its memory", binding.memory_sockets)
        yield found.verdict(
            evidence=f"rank {rank} on {host} {does} on socket {_numbers(sockets)}, and its GPU ({binding.gpu}) is on socket "
            f"{binding.gpu_socket}; so {'is' if len(placed) == 1 else 'are'} {len(placed)} of {count(_ranks(worst), 'rank')} "
            f"({run_numbers(runs)})",
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
    if not _by_slurm(run):
        return UNBIND
    if group.by_threads:
        return phrase("ask for one thread of each core: ", NO_THREADS, ", or `one_thread_per_core` of the profile")
    if _by_torchrun(run):
        return phrase("let the ranks of a node have all of their job's cores: ", Set({SRUN: ["--cpu-bind=none"]}), IN_PROFILE)
    return phrase("have srun bind each rank to cores of its own: ", Set({SRUN: ["--cpu-bind=cores"]}), IN_PROFILE)


def _far_advice(run: Run, host: str) -> Advice:
    """With srun's option for this very node where its NUMA nodes are known. Ranks that torchrun starts are not srun's to bind."""
    if not _by_slurm(run):
        return UNBIND
    if _by_torchrun(run):
        return phrase(
            "srun binds ranks that it starts itself: ",
            Set({"layout.launcher": "direct"}),
            "; then bind each to its GPU's socket, `cpu_masks` of the profile's node type",
        )
    of_gpus = _gpu_nodes(run, host)
    if of_gpus is None or (run.point is not None and not run.point.layout.exclusive):
        return "bind each rank to cores of its GPU's socket: `cpu_masks` of the profile's node type, for jobs with whole nodes"
    option = f"--cpu-bind=map_ldom:{','.join(map(str, of_gpus))}"
    return phrase("bind each rank to its GPU's NUMA node: ", Set({SRUN: [option]}), IN_PROFILE)


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


def _by_slurm(run: Run) -> bool:
    return run.signals is not None and run.signals.slurm


def _by_torchrun(run: Run) -> bool:
    return run.point is not None and run.point.layout.launcher == "torchrun"


def _numbers(numbers: Sequence[int]) -> str:
    return listed([str(number) for number in numbers])
