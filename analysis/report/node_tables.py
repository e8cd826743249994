"""Tables of nodes: where ranks were bound, and how fast preflight found each node before the runs."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.analysis.report.cells import number_cell, text_cell
from hpcddp.analysis.report.table import Cell, Column, Table
from hpcddp.analysis.runs.bindings import NodeBindings
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import quantity
from hpcddp.analysis.verdicts.context import listed
from hpcddp.core.binding_record import RankBinding
from hpcddp.core.preflight_judgement import node_values, preflight_words, slow_hosts
from hpcddp.core.preflight_record import READINGS, PreflightRecord, Reading

KINDS_AT_MOST = 4
"""Nodes that are bound alike are one kind; of a job on which every node differs, the first ones show what is wrong."""

OF_RANKS = (
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
    return Table("bindings", "Where the ranks were bound", note, OF_RANKS, rows)


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


NODES_AT_MOST = 16
"""The slow ones first: of more nodes the rest is like these."""

OF_NODES = (
    Column("node", numeric=False),
    Column("matrix product", "TFLOP/s"),
    Column("memory", "GB/s"),
    Column("host to GPU", "GB/s"),
    Column("all-reduce in the node", "GB/s"),
    Column("all-reduce with a neighbour", "GB/s"),
    Column("slow in", numeric=False),
    Column("left out", numeric=False),
)

SCALES = (1e12, 1e9, 1e9, 1e9, 1e9)
"""Of READINGS, in their order."""


def preflight(records: Sequence[PreflightRecord]) -> Table:
    """Of the newest; no rows where there was none."""
    if not records:
        return Table("preflight", "What preflight measured", "", OF_NODES, [])
    record = records[-1]
    slow = slow_hosts(record.slow)
    hosts = [*slow, *(host for host in record.hosts if host not in slow)]
    left = f" {len(hosts) - NODES_AT_MOST} more nodes are in its record." if len(hosts) > NODES_AT_MOST else ""
    note = (
        f"Job {record.job}: {preflight_words(record)}. Of each node its slowest rank, medians of calls; all-reduces as bus "
        f"bandwidth, with the faster of two neighbours.{left}"
    )
    return Table(
        "preflight", "What preflight measured", note, OF_NODES, [_node_row(record, host) for host in hosts[:NODES_AT_MOST]]
    )


def _node_row(record: PreflightRecord, host: str) -> list[Cell]:
    readings = [
        number_cell(_of_host(record, reading, host), lambda value, scale=scale: quantity(value / scale))  # type: ignore[misc]
        for reading, scale in zip(READINGS, SCALES, strict=True)
    ]
    slow_in = ", ".join(READINGS[slow.reading] for slow in record.slow if slow.host == host)
    return [text_cell(host), *readings, text_cell(slow_in), text_cell("yes" if host in record.excluded else "")]


def _of_host(record: PreflightRecord, reading: Reading, host: str) -> float | None:
    found = node_values(reading, record.ranks).get(host)
    return None if found is None else found[0]
