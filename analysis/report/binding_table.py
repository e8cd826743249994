"""The table of bindings: on which cores each rank of a node ran, where it may take memory, and where its GPU is."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.analysis.report.cells import number_cell, text_cell
from hpcddp.analysis.report.table import Cell, Column, Table
from hpcddp.analysis.runs.bindings import NodeBindings
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.verdicts.context import listed
from hpcddp.core.binding_record import RankBinding

KINDS_AT_MOST = 4
"""Nodes that are bound alike are one kind; of a job on which every node differs, the first ones show what is wrong."""

COLUMNS = (
    Column("nodes", numeric=False),
    Column("local rank"),
    Column("cores", numeric=False),
    Column("socket", numeric=False),
    Column("NUMA node", numeric=False),
    Column("memory of NUMA node", numeric=False),
    Column("address", "GPU", numeric=False),
    Column("socket", "GPU"),
    Column("NUMA node", "GPU"),
)


def bindings(runs: Sequence[Run]) -> Table:
    """Of the widest run that counts, nodes that are bound alike together; no rows where nothing is recorded."""
    known = [run for run in runs if run.state == "counts" and run.signals and run.signals.bindings]
    widest = max(known, key=lambda run: sum(len(node.ranks) for node in _nodes(run)), default=None)
    kinds = _kinds(_nodes(widest)) if widest else []
    rows = [_row(hosts, rank, binding) for hosts, ranks in kinds[:KINDS_AT_MOST] for rank, binding in enumerate(ranks)]
    of = f" Of {widest.name}, the widest run." if widest else ""
    left = f" {len(kinds) - KINDS_AT_MOST} more kinds of nodes are in its launch.json." if len(kinds) > KINDS_AT_MOST else ""
    note = "Cores by their first logical CPU. What a rank may use, as the kernel had it when the ranks had met." + of + left
    return Table("bindings", "Where the ranks were bound", note, COLUMNS, rows)


def _nodes(run: Run) -> tuple[NodeBindings, ...]:
    return run.signals.bindings if run.signals else ()


def _kinds(nodes: Sequence[NodeBindings]) -> list[tuple[list[str], tuple[RankBinding, ...]]]:
    """Hosts whose ranks are bound alike, with these bindings."""
    found: dict[tuple[RankBinding, ...], list[str]] = {}
    for node in nodes:
        found.setdefault(node.ranks, []).append(node.host)
    return [(hosts, ranks) for ranks, hosts in found.items()]


def _row(hosts: Sequence[str], rank: int, binding: RankBinding) -> list[Cell]:
    sockets = ", ".join(map(str, binding.sockets))
    texts = (binding.cores or binding.cpus, sockets, binding.numa_nodes, binding.memory_nodes, binding.gpu)
    return [
        text_cell(listed(hosts)),
        number_cell(rank, str),
        *(text_cell(text) for text in texts),
        number_cell(binding.gpu_socket, str),
        number_cell(binding.gpu_numa_node, str),
    ]
