"""Tables of nodes and of what they read: where ranks were bound, preflight, GPUs, loaders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd

from hpcddp.analysis.report.table import (
    Cell,
    Column,
    Spec,
    Table,
    giga,
    number_cell,
    number_of,
    point_columns,
    table_of,
    text_cell,
    words_of,
)
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.series import Apart
from hpcddp.analysis.util.wording import percent, quantity, time_words
from hpcddp.analysis.verdicts.context import listed
from hpcddp.core.launch_record import RankBinding
from hpcddp.core.preflight import READINGS, PreflightRecord, Reading, node_values, preflight_words, slow_hosts

KINDS_AT_MOST = 4
"""Nodes that are bound alike are one kind; of a job on which every node differs, the first ones show what is wrong."""

OF_RANKS: list[Spec] = [
    (Column("nodes", numeric=False), lambda row: text_cell(listed(row[0]))),
    (Column("local rank"), lambda row: number_cell(row[1], str)),
    (Column("cores", numeric=False), lambda row: text_cell(row[2].cores or row[2].cpus)),
    (Column("socket", numeric=False), lambda row: text_cell(", ".join(map(str, row[2].sockets)))),
    (Column("NUMA node", numeric=False), lambda row: text_cell(row[2].numa_nodes)),
    (Column("memory of NUMA node", numeric=False), lambda row: text_cell(row[2].memory_nodes)),
    (Column("address", "GPU", numeric=False), lambda row: text_cell(row[2].gpu)),
    (Column("socket", "GPU"), lambda row: number_cell(row[2].gpu_socket, str)),
    (Column("NUMA node", "GPU"), lambda row: number_cell(row[2].gpu_numa_node, str)),
]
"""Of hosts that are bound alike, a local rank, and its RankBinding."""


def bindings(runs: Sequence[Run]) -> Table:
    """Of the widest run that counts, nodes that are bound alike together; no rows where nothing is recorded."""
    known = [(run, run.signals.bindings) for run in runs if run.state == "counts" and run.signals and run.signals.bindings]
    widest, nodes = max(known, key=lambda pair: sum(len(node.ranks) for node in pair[1]), default=(None, ()))
    alike: dict[tuple[RankBinding, ...], list[str]] = {}
    for node in nodes:
        alike.setdefault(node.ranks, []).append(node.host)
    kinds = [(hosts, ranks) for ranks, hosts in alike.items()]
    rows = [(hosts, rank, binding) for hosts, ranks in kinds[:KINDS_AT_MOST] for rank, binding in enumerate(ranks)]
    of = f" Of {widest.name}, the widest run." if widest else ""
    left = f" {len(kinds) - KINDS_AT_MOST} more kinds of nodes are in its launch.json." if len(kinds) > KINDS_AT_MOST else ""
    note = "Cores by their first logical CPU. What a rank may use, as the kernel had it when the ranks had met." + of + left
    return table_of("bindings", "CPU binding of ranks", note, OF_RANKS, rows)


NODES_AT_MOST = 16
"""The slow ones first: of more nodes the rest is like these."""

SCALED = (
    (Column("matrix product", "TFLOP/s"), 1e12),
    (Column("memory", "GB/s"), 1e9),
    (Column("host to GPU", "GB/s"), 1e9),
    (Column("all-reduce in the node", "GB/s"), 1e9),
    (Column("all-reduce with a neighbour", "GB/s"), 1e9),
)
"""Of READINGS, in their order."""


def preflight(records: Sequence[PreflightRecord]) -> Table:
    """Of the newest; no rows where there was none."""
    if not records:
        return Table("preflight", "Preflight", "", [], [])
    record = records[-1]
    slow = slow_hosts(record.slow)
    hosts = [*slow, *(host for host in record.hosts if host not in slow)]
    left = f" {len(hosts) - NODES_AT_MOST} more nodes are in its record." if len(hosts) > NODES_AT_MOST else ""
    note = (
        f"Job {record.job}: {preflight_words(record)}. Of each node its slowest rank, medians of calls; all-reduces as bus "
        f"bandwidth, with the faster of two neighbours.{left}"
    )

    def measured(reading: Reading, scale: float, host: str) -> Cell:
        value, *_ = node_values(reading, record.ranks).get(host) or (None,)
        return number_cell(value, lambda value: quantity(value / scale))

    def slow_in(host: str) -> Cell:
        return text_cell(", ".join(READINGS[slow.reading] for slow in record.slow if slow.host == host))

    specs: list[Spec] = [
        (Column("node", numeric=False), text_cell),
        *((column, partial(measured, of, scale)) for of, (column, scale) in zip(READINGS, SCALED, strict=True)),
        (Column("slow in", numeric=False), slow_in),
        (Column("excluded", numeric=False), lambda host: text_cell("yes" if host in record.excluded else "")),
    ]
    return table_of("preflight", "Preflight", note, specs, hosts[:NODES_AT_MOST])


BUSY, FLOPS, WATTS, MEMORY = "utilisation, %", "TFLOP/s", "power, W", "GPU memory, GB"
NODE_WATTS, NODE_ENERGY = "power of a node, W", "energy of all nodes"
CLOCK, ENERGY = "clocks, MHz", "energy of all GPUs"
CPU, HOST_MEMORY, NETWORK, SPAN = "CPUs busy with", "memory, GB", "network of a node, GB/s", "read"


def gpu_readings(readings: pd.DataFrame, apart: Apart) -> Table:
    """Of points on GPUs; no rows without any."""
    on_gpus = readings[readings["device"] != "cpu"]
    specs = [
        *point_columns(on_gpus, apart),
        (Column("mean", BUSY, terminal="util %"), number_of("gpu_util_percent", _integer)),
        (Column("least", BUSY, terminal=None), number_of("gpu_util_percent_least", _integer)),
        (Column("data wait", terminal="data"), number_of("data_wait_share", percent)),
        (Column("per GPU", FLOPS, terminal="TFLOP/s"), number_of("flops_per_s_per_gpu", lambda rate: quantity(rate / 1e12))),
        (Column("of peak", FLOPS, terminal="of peak"), number_of("share_of_peak", percent)),
        (Column("mean", WATTS, terminal="W"), number_of("gpu_power_w_mean", quantity)),
        (Column("peak", WATTS, terminal=None), number_of("gpu_power_w_peak", quantity)),
        (Column("mean", MEMORY, terminal=None), number_of("gpu_mem_used_mean_bytes", giga)),
        (Column("peak", MEMORY, terminal="GPU GB"), number_of("gpu_mem_used_peak_bytes", giga)),
        (Column("of", MEMORY, terminal=None), number_of("gpu_mem_total_bytes", giga)),
        (Column("SM", CLOCK, terminal=None), number_of("gpu_sm_mhz_median", _integer)),
        (Column("least SM", CLOCK, terminal=None), number_of("gpu_sm_mhz_least", _integer)),
        (Column("memory", CLOCK, terminal=None), number_of("gpu_mem_mhz_median", _integer)),
        (Column("°C", terminal=None), number_of("gpu_temperature_c_peak", _integer)),
        (Column("throttled", numeric=False, terminal=None), words_of("gpu_throttled")),
        (Column("J/1000 samples", ENERGY, terminal="J/1000"), number_of("energy_j_per_1000_samples", quantity)),
        (Column("kWh/epoch", ENERGY, terminal=None), number_of("gpu_kwh_per_epoch", quantity)),
        (Column("g CO2/epoch", ENERGY, terminal=None), number_of("gpu_co2_g_per_epoch", quantity)),
        (Column("CPUs", terminal="CPU", documents=False), number_of("cpu_busy_share", percent)),
        *_span("gpus_not_read"),
    ]
    note = (
        "Over the timed steps, medians over runs; means over GPUs, peaks and least values of any. Utilisation is the share of "
        "time in which any kernel ran, including kernels that wait for other ranks. Throttled is the share of readings with a "
        "reason. TFLOP/s are what the model needs for the samples. Read: the span from first to last reading, and how many."
    )
    return table_of("readings", "GPU readings", note + _why(on_gpus, "gpus_not_read"), specs, on_gpus)


def node_readings(readings: pd.DataFrame, apart: Apart) -> Table:
    """Of all points."""
    specs = [
        *point_columns(readings, apart),
        (Column("the job", CPU, terminal="CPU: job"), number_of("cpu_job_share", percent)),
        (Column("others", CPU), number_of("cpu_foreign_share", percent)),
        (Column("all", CPU, terminal=None), number_of("cpu_busy_share", percent)),
        (Column("mean", HOST_MEMORY, terminal=None), number_of("host_mem_used_mean_bytes", giga)),
        (Column("peak", HOST_MEMORY, terminal="GB"), number_of("host_mem_used_peak_bytes", giga)),
        (Column("of", HOST_MEMORY, terminal=None), number_of("host_mem_total_bytes", giga)),
        (Column("in", NETWORK, terminal="GB/s in"), number_of("net_rx_bytes_per_s", _network)),
        (Column("out", NETWORK), number_of("net_tx_bytes_per_s", _network)),
        (Column("of the fabric", NETWORK, terminal="of fabric"), number_of("fabric_share", percent)),
        (Column("mean", NODE_WATTS, terminal="W"), number_of("node_power_w_mean", quantity)),
        (Column("peak", NODE_WATTS, terminal=None), number_of("node_power_w_peak", quantity)),
        (Column("J/1000 samples", NODE_ENERGY, terminal=None), number_of("node_energy_j_per_1000_samples", quantity)),
        (Column("kWh/epoch", NODE_ENERGY, terminal=None), number_of("node_kwh_per_epoch", quantity)),
        (Column("g CO2/epoch", NODE_ENERGY, terminal=None), number_of("node_co2_g_per_epoch", quantity)),
        (Column("source", NODE_ENERGY, numeric=False, terminal=None), words_of("node_energy_from")),
        *_span("nodes_not_read"),
    ]
    note = (
        "Over the timed steps, medians over runs; means over nodes, of others the most on any node. Memory is all that the node "
        "could not give at once. Network rates are from the kernel's or InfiniBand's counters and include files read over the "
        "network. Of the fabric: the busiest node's busier direction, as a share of the profile's rate. "
        "Power and energy of nodes include their GPUs."
    )
    return table_of("nodes", "Node readings", note + _why(readings, "nodes_not_read"), specs, readings)


def _why(readings: pd.DataFrame, not_read: str) -> str:
    """Which points were not read and why, points of one reason together: the column with it may lie beyond the page's edge."""
    texts = []
    for reason, rows in readings.groupby(not_read, sort=False):
        sizes = dict.fromkeys(f"{row['nodes']} × {row['gpus_per_node']}" for _, row in rows.iterrows())
        where = "anywhere" if len(rows) == len(readings) else f"at {', '.join(sizes)}"
        texts.append(f" Not read {where}: {reason}.")
    return "".join(texts)


def _span(not_read: str) -> list[Spec]:
    return [
        (Column("span", SPAN, terminal=None), number_of("readings_span_s", time_words)),
        (Column("of", SPAN, terminal=None), number_of("readings_window_s", time_words)),
        (Column("readings", SPAN, terminal=None), number_of("readings", _integer)),
        (Column("not read", numeric=False, terminal=None), words_of(not_read)),
    ]


def _network(rate: float) -> str:
    """GB/s, to the MB/s where it is less: a network that is idle still carries the job's own messages."""
    return giga(rate) if rate >= 1e6 else f"{rate * 1e-9:.3f}"


def _integer(value: float) -> str:
    return f"{value:.0f}"


RATE, TIME = "samples/s", "of the loaders' time"


def loaders(rows: pd.DataFrame, apart: Apart) -> Table:
    """A row per point; no rows where nothing was loaded, or runs are of before loaders were timed."""
    specs = [
        *point_columns(rows, apart),
        *([] if "workers" in next(iter(apart.values()), {}) else [(Column("workers"), number_of("workers", str))]),
        (Column("data wait", terminal="data"), number_of("data_wait_share", percent)),
        (Column("limit", numeric=False, terminal=None), words_of("limit")),
        (Column("trained", RATE, terminal="trained"), number_of("samples_per_s", quantity)),
        (Column("loaders", RATE, terminal="loaders"), number_of("loader_samples_per_s", quantity)),
        (Column("computing", TIME, terminal=None), number_of("compute_share", percent)),
        (Column("CPU wait", TIME, terminal="CPU wait"), number_of("processor_wait_share", percent)),
        (Column("I/O wait", TIME, terminal="I/O wait"), number_of("storage_wait_share", percent)),
        (Column("batch transfer", TIME, terminal="transfer"), number_of("hand_over_share", percent)),
    ]
    note = (
        "Values cover the timed steps of all runs of a point. Loader throughput is the rate of loader processes without pauses, "
        "at their speed during training; with `measure.input: io` it is what is trained. CPU wait is time in the run queue. "
        "The table names a limit where data wait is 10 % of the step or more."
    )
    return table_of("loaders", "Loader throughput", note, specs, rows)
