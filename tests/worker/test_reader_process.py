"""From readings to what end.json tells: told files for the arithmetic, a real run for the whole way."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from hpcddp.core.attempt_records import GpuTelemetry, NodeTelemetry
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.records import GPU_COLUMNS, NODE_COLUMNS, STEP_COLUMNS, RowWriter, gpus_file, node_file, steps_file
from hpcddp.worker.main import run
from hpcddp.worker.telemetry.reader_process import (
    TimedSpan,
    energy_j_per_1000_samples,
    gpu_summary,
    increase,
    node_summary,
    throttle_shares,
    timed_window,
)
from tests.worker import forked, given

S = 10**9

WINDOW = TimedSpan(100 * S, 104 * S, steps=8)


def write(file: Path, columns: tuple[str, ...], rows: list[dict[str, int]]) -> None:
    with RowWriter(file, columns) as out:
        for row in rows:
            out.row([row.get(name) for name in columns])


def gpu_row(second: float, **values: int) -> dict[str, int | None]:
    return {**dict.fromkeys(GPU_COLUMNS), "gpu": 0, "unix_ns": round(second * S), **values}


def test_the_window_is_the_timed_steps(tmp_path: Path) -> None:
    """From the first steady step, as the protocol has it, to the end of the last, whatever lies between."""
    steps = [{"step": n, "flags": 2 if n == 5 else 0, "start_ns": 10 * n, "total_ns": 10} for n in range(8)]
    write(steps_file(tmp_path, 0), STEP_COLUMNS, steps)
    assert timed_window(tmp_path, 0, steady_from_step=2) == TimedSpan(20, 80, 6)
    assert timed_window(tmp_path, 0, steady_from_step=4) == TimedSpan(40, 80, 4)
    assert timed_window(tmp_path, 0, steady_from_step=9) is None


def test_a_long_run_is_not_held_in_memory(tmp_path: Path) -> None:
    """Ten rows a second for a week are six million."""
    write(steps_file(tmp_path, 0), STEP_COLUMNS, [dict.fromkeys(STEP_COLUMNS, 10**9 + n) for n in range(5000)])
    tracemalloc.start()
    try:
        assert timed_window(tmp_path, 0, steady_from_step=2) == TimedSpan(10**9, 2 * 10**9 + 2 * 4999, 5000)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_shares_and_rates_of_a_node(tmp_path: Path) -> None:
    """4 of 10 CPU seconds busy, 3 of them the job's; 2 s between the readings inside the window, others left out."""
    rows = [
        {"unix_ns": 90 * S, "cpu_busy_ns": 0, "cpu_total_ns": 0, "job_cpu_ns": 0, "mem_used_bytes": 99},
        {"unix_ns": 101 * S, "cpu_busy_ns": 50 * S, "cpu_total_ns": 90 * S, "job_cpu_ns": 7 * S, "mem_used_bytes": 5},
        {"unix_ns": 102 * S, "cpu_busy_ns": 51 * S, "cpu_total_ns": 95 * S, "job_cpu_ns": 8 * S, "mem_used_bytes": 8},
        {"unix_ns": 103 * S, "cpu_busy_ns": 54 * S, "cpu_total_ns": 100 * S, "job_cpu_ns": 10 * S, "mem_used_bytes": 6},
        {"unix_ns": 105 * S, "cpu_busy_ns": 99 * S, "cpu_total_ns": 999 * S, "job_cpu_ns": 11 * S, "mem_used_bytes": 99},
    ]
    for row, received in zip(rows, (0, 1000, 1500, 4000, 9999), strict=True):
        row["net_rx_bytes"] = received
    write(node_file(tmp_path, "n1"), NODE_COLUMNS, rows)
    found = node_summary(tmp_path, "n1", WINDOW, samples=4 * WINDOW.steps)
    assert (found.host, found.window_s, found.samples, found.readings, found.gpus) == ("n1", 4, 32, 3, ())
    assert (found.cpu_busy_share, found.cpu_job_share) == (0.4, 0.3)
    assert found.cpu_foreign_share == pytest.approx(0.1)
    assert (found.net_rx_bytes_per_s, found.ib_rx_bytes_per_s) == (1500, None)
    assert (found.mem_used_peak_bytes, found.mem_total_bytes) == (8, None)


def test_a_window_without_readings_is_unknown(tmp_path: Path) -> None:
    """Shorter than the time between two readings: nothing is claimed."""
    write(node_file(tmp_path, "n1"), NODE_COLUMNS, [{"unix_ns": 101 * S, "cpu_busy_ns": 1, "cpu_total_ns": 2}])
    found = node_summary(tmp_path, "n1", WINDOW, samples=4 * WINDOW.steps)
    assert (found.readings, found.cpu_busy_share, found.net_rx_bytes_per_s) == (1, None, None)


def test_gpus_are_apart(tmp_path: Path) -> None:
    """Each by its number in the job, from the readings in the window; a torn last line is left out."""
    rows: list[dict[str, Any]] = [gpu_row(101, gpu=gpu, power_mw=1000 * (gpu + 1)) for gpu in (1, 0)]
    write(gpus_file(tmp_path, "n1"), GPU_COLUMNS, rows)
    with gpus_file(tmp_path, "n1").open("a") as out:
        out.write("101500000000,0,9")
    found = node_summary(tmp_path, "n1", WINDOW, samples=4 * WINDOW.steps).gpus
    assert [(gpu.gpu, gpu.readings, gpu.power_w_peak) for gpu in found] == [(0, 1, 1.0), (1, 1, 2.0)]


def test_energy_is_the_counters() -> None:
    """300 J in the 2 s between readings are 600 J in a window of 4 s, whatever single readings of power say."""
    rows = [gpu_row(101, energy_mj=5_000_000, power_mw=1), gpu_row(103, energy_mj=5_300_000, power_mw=1)]
    found = gpu_summary(0, rows, WINDOW.s)
    assert (found.energy_j, found.energy_from) == (600, "counter")


def test_energy_falls_back_on_power() -> None:
    """Without a counter, or with one that was reset: mean power x window, and it says so."""
    rows = [gpu_row(101, energy_mj=9, power_mw=200_000), gpu_row(103, energy_mj=3, power_mw=300_000)]
    found = gpu_summary(0, rows, WINDOW.s)
    assert (found.power_w_mean, found.power_w_peak) == (250, 300)
    assert (found.energy_j, found.energy_from) == (1000, "power")
    nothing = gpu_summary(0, [gpu_row(101), gpu_row(103)], WINDOW.s)
    assert (nothing.energy_j, nothing.energy_from) == (None, None)


def test_clocks_and_utilisation() -> None:
    """Median and least of the SM clock, mean utilisation, peaks of memory and temperature; cells that are empty do not count."""
    rows = [gpu_row(101 + n / 10, sm_mhz=mhz, util_percent=mhz // 15) for n, mhz in enumerate((1500, 1500, 900))]
    found = gpu_summary(2, [*rows, gpu_row(102, mem_used_bytes=7, temperature_c=80)], WINDOW.s)
    assert (found.gpu, found.readings, found.sm_mhz_median, found.sm_mhz_min) == (2, 4, 1500, 900)
    assert (found.sm_mhz_begin, found.sm_mhz_end) == (1500, 900)
    assert found.util_percent_mean == pytest.approx((100 + 100 + 60) / 3)
    assert (found.mem_used_peak_bytes, found.temperature_c_peak, found.throttle) == (7, 80, None)


def test_throttle_reasons_are_words() -> None:
    """Bits as in nvml.h, each with its share of the readings; a bit nobody knows yet keeps its number."""
    assert throttle_shares([]) is None
    assert throttle_shares([0, 0]) == {}
    assert throttle_shares([0x4, 0x0, 0x44, 0x1000]) == {"sw_power_cap": 0.5, "hw_thermal_slowdown": 0.25, "0x1000": 0.25}


def test_a_counter_that_falls_is_unknown() -> None:
    """It was reset or wrapped: no growth is better than a wrong one. Readings without it are passed over."""
    rows = [gpu_row(101, energy_mj=1), gpu_row(102), gpu_row(103, energy_mj=5)]
    assert increase(rows, "energy_mj") == (4, 2.0)
    assert increase([*rows, gpu_row(104, energy_mj=4)], "energy_mj") is None
    assert increase(rows[:2], "energy_mj") is None


def node(energy_j: float | None) -> NodeTelemetry:
    return NodeTelemetry(samples=500, gpus=(GpuTelemetry(gpu=0, readings=2, energy_j=energy_j),))


def test_energy_per_1000_samples() -> None:
    """All GPUs of all nodes over the samples all of them trained together: 400 J for 500; unknown if one GPU's is."""
    nodes = [node(100.0), node(300.0)]
    assert energy_j_per_1000_samples(nodes) == 800
    assert energy_j_per_1000_samples([*nodes, node(None)]) is None
    assert energy_j_per_1000_samples([*nodes, NodeTelemetry(samples=500)]) is None


@pytest.mark.dear
def test_a_run_leaves_readings_and_a_summary(tmp_path: Path) -> None:
    """Two ranks on two nodes: readings of each node, and in end.json who used its processors, memory and operations."""
    what = given.point(2, nodes=2, steps=300, measure={"telemetry_hz": 10.0})
    spec = given.job(tmp_path, what)
    outcomes = forked.ranks(tmp_path / "output", 2, run, spec_to_dict(spec), nodes=2)
    assert [outcome.code for outcome in outcomes] == [0, 0], "\n".join(outcome.output for outcome in outcomes)
    attempt = spec.attempt_dir("7", 0)
    end = json.loads((attempt / "end.json").read_text())
    found = end["telemetry"]
    assert (found["hz"], found["energy_j_per_1000_samples"]) == (10, None)
    assert [node["host"] for node in found["nodes"]] == ["node0", "node1"]
    for node in found["nodes"]:
        assert node_file(attempt, node["host"]).stat().st_size > 200
        assert (node["samples"], node["gpus"]) == (300 * 8, [])
        assert node["readings"] >= 2
        assert 0 < node["cpu_job_share"] <= 1.1
        assert 0 < node["cpu_busy_share"] <= 1
        about = json.loads((attempt / "nodes" / f"{node['host']}.json").read_text())["telemetry"]
        assert about == {"hz": 10.0, "gpus": [], "no_gpus": "the run uses no GPU"}
    assert all(entry["peak_memory_bytes"]["resident"] > 2**20 for entry in end["ranks"])
    assert end["flops_per_sample"] == 24_995_328
