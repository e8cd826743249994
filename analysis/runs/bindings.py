"""Where a run's ranks were bound: which of them run far from their GPU, which share cores with another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcddp.core.launch_record import LaunchRecord, RankBinding
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
            if runs_far(binding) or remembers_far(binding):
                yield node.host, rank, binding


def runs_far(binding: RankBinding) -> bool:
    """Whether none of its cores is on the GPU's socket."""
    return binding.gpu_socket is not None and bool(binding.sockets) and binding.gpu_socket not in binding.sockets


def remembers_far(binding: RankBinding) -> bool:
    """Whether it may take no memory of the GPU's socket."""
    near = binding.gpu_socket
    return near is not None and bool(binding.memory_sockets) and near not in binding.memory_sockets


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
