"""What verdicts need to know of a run besides its medians: failed gates, processors and who shares them, the rhythm of steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpcddp.analysis.records.steps import Floats, RunSteps
from hpcddp.analysis.runs.step_times import FEWEST, threshold
from hpcddp.analysis.util.files import read_object
from hpcddp.core.attempt_records import GateResult, NodeTelemetry, Telemetry
from hpcddp.core.errors import HpcddpError
from hpcddp.core.launch_record import LaunchRecord, NodeRecord, RankBinding
from hpcddp.core.point import Point
from hpcddp.core.schema import decode_record
from hpcddp.core.written_lists import parse_cpu_list


@dataclass(frozen=True, kw_only=True)
class NodeBindings:
    """The ranks of one node, the first of them `first_rank` of the run."""

    host: str
    first_rank: int
    ranks: tuple[RankBinding, ...]


@dataclass(frozen=True, kw_only=True)
class SharedCores:
    """Ranks of one node whose cores overlap, and all the cores that these have."""

    host: str
    ranks: tuple[int, ...]
    """Their numbers in the run."""
    cores: int
    node_cores: int | None
    """Of the node."""
    by_threads: bool
    """Whether no logical CPU is shared: the ranks are on threads of the same cores."""


def node_bindings(launch: LaunchRecord) -> tuple[NodeBindings, ...]:
    """By node; nothing where launch.json does not say, or its parts do not agree."""
    per_node = launch.ranks_per_node
    if not launch.bindings or len(launch.bindings) != launch.ranks or len(launch.hosts) * per_node != launch.ranks:
        return ()
    return tuple(
        NodeBindings(host=host, first_rank=first, ranks=launch.bindings[first : first + per_node])
        for host, first in zip(launch.hosts, range(0, launch.ranks, per_node), strict=True)
    )


FarRank = tuple[str, int, RankBinding]
"""Its host, its number in the run, and how it is bound."""


def far_ranks(nodes: Sequence[NodeBindings]) -> Iterator[FarRank]:
    """Each rank that is on another socket than its GPU, or takes its memory from another."""
    for node in nodes:
        for rank, binding in enumerate(node.ranks, node.first_rank):
            if runs_far(binding) or _is_far(binding, binding.memory_sockets):
                yield node.host, rank, binding


def runs_far(binding: RankBinding) -> bool:
    """Whether none of its cores is on the GPU's socket."""
    return _is_far(binding, binding.sockets)


def _is_far(binding: RankBinding, sockets: Sequence[int]) -> bool:
    return binding.gpu_socket is not None and bool(sockets) and binding.gpu_socket not in sockets


def shared_cores(nodes: Sequence[NodeBindings], cores_per_rank: int) -> Iterator[SharedCores]:
    """Groups of ranks whose cores overlap and are fewer than these ranks were to have, on nodes that have more.

    Ranks that are bound to nothing share all cores of the node, or of the job: where these are as many as were requested, each
    finds its own, and this is none of the groups.
    """
    for node in nodes:
        cores = [_numbers(each.cores) for each in node.ranks]
        for group in _overlapping(cores):
            union = frozenset[int]().union(*(cores[index] for index in group))
            known = max((node.ranks[index].node_cores or 0 for index in group), default=0)
            wanted = cores_per_rank * len(group)
            if len(union) < (min(wanted, known) if known else wanted):
                cpus = [_numbers(node.ranks[index].cpus) for index in group]
                yield SharedCores(
                    host=node.host,
                    ranks=tuple(node.first_rank + index for index in group),
                    cores=len(union),
                    node_cores=known or None,
                    by_threads=sum(map(len, cpus)) == len(frozenset[int]().union(*cpus)),
                )


def _overlapping(sets: Sequence[frozenset[int]]) -> list[list[int]]:
    """Indices of sets that overlap, directly or by others between them; of those that do with none, nothing."""
    groups: list[tuple[list[int], frozenset[int]]] = []
    for index, numbers in enumerate(sets):
        touched = [group for group in groups if group[1] & numbers]
        groups = [group for group in groups if not group[1] & numbers]
        members = sorted([index, *(member for group in touched for member in group[0])])
        groups.append((members, numbers.union(*(group[1] for group in touched))))
    return [members for members, _ in groups if len(members) > 1]


def _numbers(text: str) -> frozenset[int]:
    """None of a list that is damaged."""
    with contextlib.suppress(ValueError):
        return parse_cpu_list(text)
    return frozenset()


BATCH, FEWEST_BATCHES = 5, 4
"""Steps of a batch, whose means show where a warm-up ends; and batches of the later half, to know how they vary."""

BEGINS, BEGINS_SHARE = 4.0, 0.10
"""Standard deviations, and share, by which the first batch of a warm-up is longer than a typical later one."""

ENDS, ENDS_SHARE = 2.0, 0.01
"""The same of its last one."""

OF_STEP = ("data_wait", "comm_exposed")
"""Parts whose own reasons to vary are asked for when steps are of two kinds."""


@dataclass(frozen=True, kw_only=True)
class Processors:
    """Of one node; None is unknown."""

    physical: int | None
    """Cores of the node."""
    threads: int
    """Logical CPUs per core."""
    gpus: int | None
    of_rank: float | None
    """Physical cores that each rank may run on, shared ones counted once."""
    busy: float | None
    """Share of their time in which the job's CPUs computed, on its busiest node; the job's own where it has a part of it."""


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """Steady steps parted into fast and slow ones so that these differ most from each other."""

    fast_ns: float
    slow_ns: float
    slow_share: float
    apart: float
    """Share of the steps' variance between the two kinds (Otsu 1979): 0.64 of a normal distribution, 1 of two values."""
    slow_later: float
    """How often a slow step comes after a fast one, of all pairs: 0.5 if they alternate, 0 if all slow ones come first."""
    of_part: Mapping[str, float]
    """Share of the difference that a part of the step makes up."""


@dataclass(frozen=True, kw_only=True)
class RunSignals:
    """Of one run."""

    failed: Mapping[str, str]
    """Gate -> its evidence, of those that failed."""
    slurm: bool
    """Whether Slurm placed the job."""
    foreign: Mapping[str, float | None]
    """Host -> others' share of its CPU time in the timed steps."""
    processors: Processors
    hosts: tuple[str, ...] = ()
    began_unix_ns: int | None = None
    """When its ranks had met."""
    bindings: tuple[NodeBindings, ...] = ()
    """Where each rank was bound, by node; nothing where that was not recorded."""


@dataclass(frozen=True, kw_only=True)
class Early:
    """The timed steps at the start that belong to the warm-up: by the run itself, or long ones that all lie there."""

    steps: int
    slower: float
    """By which share their median is above that of the later ones."""
    moved: float
    """By which share they raise the mean of all."""


def read_signals(
    attempt: Path, point: Point | None, launch: LaunchRecord, gates: Sequence[GateResult], telemetry: Telemetry | None = None
) -> RunSignals:
    """From launch.json, end.json and the first node's record."""
    nodes = telemetry.nodes if telemetry else ()
    return RunSignals(
        failed={gate.name: gate.evidence for gate in gates if not gate.passed},
        slurm=launch.backend == "slurm",
        foreign={str(node.host): node.cpu_foreign_share for node in nodes},
        processors=_processors(attempt, point.layout.node_type if point else None, launch, nodes),
        hosts=launch.hosts,
        began_unix_ns=launch.started_unix_ns,
        bindings=node_bindings(launch),
    )


def _processors(attempt: Path, node_type: str | None, launch: LaunchRecord, nodes: Sequence[NodeTelemetry]) -> Processors:
    """The node type's as its profile has them, otherwise what the first node said of itself, every CPU taken for a core."""
    kind = launch.profile_facts().node_type(node_type)
    threads, physical = kind.smt or 1, kind.physical_cores
    logical = physical * threads if physical else _logical_cpus(attempt, launch)
    here = launch.cpus_of_ranks[: launch.ranks_per_node]
    own = min(sum(here), logical) if logical and here else None
    return Processors(
        physical=physical or logical,
        threads=threads,
        gpus=kind.gpus,
        of_rank=own / len(here) / threads if own else None,
        busy=max(filter(None, (_busy(node, own, logical) for node in nodes)), default=None),
    )


def _busy(node: NodeTelemetry, own: int | None, logical: int | None) -> float | None:
    if not own or not logical:
        return None
    share = node.cpu_busy_share if own == logical else node.cpu_job_share
    return None if share is None else share * logical / own


def _logical_cpus(attempt: Path, launch: LaunchRecord) -> int | None:
    try:
        return decode_record(NodeRecord, read_object(attempt / "nodes" / f"{(*launch.hosts, '')[0]}.json")).cpus
    except (OSError, HpcddpError, ValueError):
        return None


def slow_start(steps: RunSteps) -> NDArray[np.bool_]:
    """Of each step, whether it is of the warm-up by its length: batches from the first one on that are longer than those of the
    later half ever are. None where steps are too few, or it is the first half that is longer."""
    places, found = np.flatnonzero(steps.steady), np.zeros(steps.steady.size, np.bool_)
    batches = steps.step_ns[places[: places.size // BATCH * BATCH]].reshape(-1, BATCH).mean(axis=1)
    later = batches[batches.size // 2 :]
    if later.size < FEWEST_BATCHES:
        return found
    level, noise = float(np.median(later)), float(later.std())
    short = np.flatnonzero(batches <= max(level + ENDS * noise, (1 + ENDS_SHARE) * level))
    if batches[0] > max(level + BEGINS * noise, (1 + BEGINS_SHARE) * level) and short.size and 0 < short[0] < later.size:
        found[: places[short[0] * BATCH]] = True
    return found


def early(steps: RunSteps, warming: NDArray[np.bool_], stalled: bool = False) -> Early | None:
    """`warming`: of each step, whether its attempt counts it to its warm-up. None where no timed step is, or all are.

    Steps that stall do so from the first on: where later steps are `stalled`, or as many are once as slow, the typical ones are
    compared, and nothing is said of few.
    """
    first, times = warming[steps.steady], steps.step_ns[steps.steady]
    count = int(first.sum())
    if count in (0, first.size):
        return None
    slower = float(np.median(times[first]) / np.median(times[~first])) - 1
    if not stalled and not _as_slow_later(times[first], times[~first]):
        return Early(steps=count, slower=slower, moved=float(times.mean() / times[~first].mean()) - 1)
    return Early(steps=count, slower=slower, moved=slower * count / first.size) if count >= FEWEST else None


def _as_slow_later(first: Floats, later: Floats) -> bool:
    sums = np.concatenate([[0.0], np.cumsum(later)])
    return bool((sums[first.size :] - sums[: -first.size] >= first.sum()).any())


def rhythm(steps: RunSteps) -> Rhythm | None:
    """None for fewer than 20 steady steps, or if all last equally long."""
    times = steps.step_ns[steps.steady]
    if times.size < 20 or times.min() == times.max():
        return None
    limit, apart = threshold(times)
    slow = times > limit
    fast_ns, slow_ns = float(times[~slow].mean()), float(times[slow].mean())
    parts = {part: steps.part_ns[part][steps.steady] for part in OF_STEP}
    return Rhythm(
        fast_ns=fast_ns,
        slow_ns=slow_ns,
        slow_share=float(slow.mean()),
        apart=apart,
        slow_later=float(np.cumsum(~slow)[slow].sum()) / float(slow.sum() * (~slow).sum()),
        of_part={
            name: float(values[slow].mean() - values[~slow].mean()) / (slow_ns - fast_ns)
            for name, values in parts.items()
            if np.isfinite(values).all()
        },
    )
