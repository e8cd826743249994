"""The tables of readings: what GPUs did beside what the step waited for, and what their nodes did."""

from __future__ import annotations

import pandas as pd

from hpcddp.analysis.report.cells import Spec, giga, key_columns, number_of, size_columns, table_of, unit_of, words_of
from hpcddp.analysis.report.table import Column, Table
from hpcddp.analysis.study.series import Apart
from hpcddp.analysis.util.wording import duration, percent, quantity

BUSY, FLOPS, WATTS, MEMORY = "utilisation, %", "TFLOP/s", "power, W", "GPU memory, GB"
NODE_WATTS, NODE_ENERGY = "power of a node, W", "energy of all nodes"
CLOCK, ENERGY = "clocks, MHz", "energy of all GPUs"
CPU, HOST_MEMORY, NETWORK, SPAN = "CPUs busy with", "memory, GB", "network of a node, GB/s", "read"


def gpu_readings(readings: pd.DataFrame, apart: Apart) -> Table:
    """Of points on GPUs; no rows without any."""
    specs = [
        *size_columns("GPU"),
        *key_columns(apart),
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
        "time in which any kernel ran, those included that wait for other ranks; throttled, the share of readings with a reason. "
        "TFLOP/s are what the model needs for the samples. Read: the span between the first and the last reading, and how many."
    )
    on_gpus = readings[readings["device"] != "cpu"]
    return table_of("readings", "What the GPUs did", note + _why(on_gpus, "gpus_not_read"), specs, on_gpus)


def node_readings(readings: pd.DataFrame, apart: Apart) -> Table:
    """Of all points."""
    specs = [
        *size_columns(unit_of(readings)),
        *key_columns(apart),
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
        "could not give at once. The network's rates are the kernel's or InfiniBand's counters, files read over it included; "
        "of the fabric: the busiest node's busier direction against the rate that the cluster's profile has. "
        "Power and energy of nodes include their GPUs."
    )
    return table_of("nodes", "What the nodes did", note + _why(readings, "nodes_not_read"), specs, readings)


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
        (Column("span", SPAN, terminal=None), number_of("readings_span_s", duration)),
        (Column("of", SPAN, terminal=None), number_of("readings_window_s", duration)),
        (Column("readings", SPAN, terminal=None), number_of("readings", _integer)),
        (Column("not read", numeric=False, terminal=None), words_of(not_read)),
    ]


def _network(rate: float) -> str:
    """GB/s, to the MB/s where it is less: a network that is idle still carries the job's own messages."""
    return giga(rate) if rate >= 1e6 else f"{rate * 1e-9:.3f}"


def _integer(value: float) -> str:
    return f"{value:.0f}"
