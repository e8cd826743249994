"""The table of preflight: how fast each node was before the runs."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.analysis.report.cells import number_cell, text_cell
from hpcddp.analysis.report.table import Cell, Column, Table
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.preflight_judgement import node_values, preflight_words, slow_hosts
from hpcddp.core.preflight_record import READINGS, PreflightRecord, Reading

NODES_AT_MOST = 16
"""The slow ones first: of more nodes the rest is like these."""

COLUMNS = (
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
        return Table("preflight", "What preflight measured", "", COLUMNS, [])
    record = records[-1]
    slow = slow_hosts(record.slow)
    hosts = [*slow, *(host for host in record.hosts if host not in slow)]
    left = f" {len(hosts) - NODES_AT_MOST} more nodes are in its record." if len(hosts) > NODES_AT_MOST else ""
    note = (
        f"Job {record.job}: {preflight_words(record)}. Of each node its slowest rank, medians of calls; all-reduces as bus "
        f"bandwidth, with the faster of two neighbours.{left}"
    )
    return Table("preflight", "What preflight measured", note, COLUMNS, [_row(record, host) for host in hosts[:NODES_AT_MOST]])


def _row(record: PreflightRecord, host: str) -> list[Cell]:
    readings = [
        number_cell(_of_host(record, reading, host), lambda value, scale=scale: quantity(value / scale))  # type: ignore[misc]
        for reading, scale in zip(READINGS, SCALES, strict=True)
    ]
    slow_in = ", ".join(READINGS[slow.reading] for slow in record.slow if slow.host == host)
    return [text_cell(host), *readings, text_cell(slow_in), text_cell("yes" if host in record.excluded else "")]


def _of_host(record: PreflightRecord, reading: Reading, host: str) -> float | None:
    found = node_values(reading, record.ranks).get(host)
    return None if found is None else found[0]
