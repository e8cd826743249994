"""Readings from a made NVML and a made /proc, through the worker's readers and its summary, to the tables of the report."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis import How, analyze
from hpcddp.analysis.runs.readings import Readings, figures
from hpcddp.analysis.study.readings import misleading
from hpcddp.core.attempt_records import NodeTelemetry
from hpcddp.core.point import Point
from hpcddp.core.records import GPU_COLUMNS, NODE_COLUMNS, RowWriter, gpus_file, node_file, write_json
from hpcddp.core.schema import encode
from hpcddp.worker.telemetry.gpu import GpuReader
from hpcddp.worker.telemetry.node import TICK_NS, NodeReader, node_energy
from hpcddp.worker.telemetry.reader_process import TimedSpan, node_summary, run_summary
from tests.analysis.synthetic import MS, START_NS, Recorded, point, write_run, write_study
from tests.worker.test_node import Nvml, cray, interfaces, write

pytestmark = pytest.mark.usefixtures("undrawn")

S, STEPS = 10**9, 40
WINDOW = TimedSpan(START_NS, START_NS + 4 * S, STEPS)
SECONDS = (0, 1, 2, 3)
"""Of the readings, since the window began."""


class MadeNvml(Nvml):
    """Two GPUs that say at second `at` of the window what these lists have there, and count their energy."""

    util = {0: (90, 92, 94, 96), 1: (70, 72, 74, 76)}  # noqa: RUF012  never changed
    watts, gib, mhz, reasons = (200, 210, 220, 250), (4, 5, 6, 9), (1380, 1380, 1290, 1380), (0, 0x4, 0x4, 0x1)

    def __init__(self) -> None:
        super().__init__("V100", "V100")
        self.at = 0

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        return type("Rates", (), {"gpu": self.util[gpu][self.at]})

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return type("Memory", (), {"used": self.gib[self.at] * 2**30})

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return (self.watts[self.at] + 10 * gpu) * 1000

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        return 10**6 + self.at * 230_000

    def nvmlDeviceGetClockInfo(self, gpu: int, clock: int) -> int:
        return self.mhz[self.at] if clock == self.NVML_CLOCK_SM else 877

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: int) -> int:
        return self.reasons[self.at]


def made_proc(folder: Path, second: int) -> None:
    """700 J and 40 of 100 ticks a second; 3 MB/s come in by Ethernet and 50 MB/s by InfiniBand, half as much goes out."""
    write(folder / "proc" / "stat", f"cpu  {40 * second} 0 0 {60 * second} 0 0 0 0 0 0\n")
    used_kb = (30, 34, 32, 40)[second] * 10**6
    write(folder / "proc" / "meminfo", f"MemTotal: {64 * 10**6} kB\nMemFree: 5 kB\nMemAvailable: {64 * 10**6 - used_kb} kB\n")
    interfaces(folder, eth0=(3_000_000 * second, 1_500_000 * second))
    cray(folder / "sys", f"{5000 + 700 * second} J 1 us", f"{(690, 700, 710, 720)[second]} W 1 us")
    counters = folder / "sys" / "class" / "infiniband" / "mlx5_0" / "ports" / "1" / "counters"
    write(counters / "port_rcv_data", f"{50_000_000 * second // 4}\n")
    write(counters / "port_xmit_data", f"{25_000_000 * second // 4}\n")


def read_node(attempt: Path, host: str, made: Path, seconds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> NodeTelemetry:
    """What the worker's readers write of the made node, and its summary makes of that."""
    nvml, job_ns = MadeNvml(), iter(range(0, 10**12, 30 * TICK_NS))
    made_proc(made, 0)
    energy = node_energy(made / "sys")
    node = NodeReader(lambda: next(job_ns), energy, proc=made / "proc", sys=made / "sys")
    gpus = GpuReader(nvml, 2, {})
    with RowWriter(node_file(attempt, host), NODE_COLUMNS) as nodes, RowWriter(gpus_file(attempt, host), GPU_COLUMNS) as of_gpus:
        for second in seconds:
            monkeypatch.setattr("time.time_ns", lambda second=second: START_NS + second * S + 7)
            made_proc(made, second)
            nvml.at = second
            nodes.row(node.row())
            for row in gpus.rows():
                of_gpus.row(row)
    monkeypatch.undo()
    return node_summary(attempt, host, WINDOW, samples=64 * WINDOW.steps, energy_source=energy.source if energy else None)


@dataclass(frozen=True)
class Reported:
    """Of a study: report.json, and what it wrote for people."""

    plain: dict[str, Any]
    text: str
    folder: Path

    @property
    def row(self) -> dict[str, Any]:
        (row,) = self.plain["readings"]
        return dict(row)


def report(root: Path, what: Point, telemetry: Mapping[str, Any] | None, **changes: Any) -> Reported:
    end = {"telemetry": telemetry, "flops_per_sample": 10**10, **changes.pop("end", {})}
    recorded = Recorded(step_ns=100 * MS, steps=STEPS, end=end, **changes)
    study = write_study(root / "study", [what])
    attempt = write_run(study, what, recorded)
    about = {"schema": 1, "host": "r000", "telemetry": {"hz": 1.0, "gpus": [], "no_gpus": "no NVML: not here"}}
    write_json(attempt / "nodes" / "r000.json", {**about, "gpus": [{"name": "V", "memory_bytes": 16 * 2**30, "capability": "7"}]})
    (result,) = analyze(root)
    folder = root / "study" / "report"
    return Reported(json.loads((folder / "report.json").read_text()), result.text, folder)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reported:
    node = read_node(tmp_path / "read", "r000", tmp_path / "made", SECONDS, monkeypatch)
    launch = {"profile": {"fabric": {"gbps_per_node": 8}}}
    return report(
        tmp_path, point(1, 2), encode(run_summary(1.0, [node])), launch=launch, shares={"data_wait": 0.25, "forward": 0.5}
    )


@pytest.mark.dear
def test_readings_agree_with_what_was_made(made: Reported) -> None:
    """Each figure by hand: means over two GPUs, peaks and least of any, shares and rates over the 3 s between readings."""
    expected = {
        "gpu_util_percent": (93 + 73) / 2,
        "gpu_util_percent_least": 73,
        "gpu_power_w_mean": 220 + 5,
        "gpu_power_w_peak": 260,
        "gpu_mem_used_mean_bytes": 6 * 2**30,
        "gpu_mem_used_peak_bytes": 9 * 2**30,
        "gpu_mem_total_bytes": 16 * 2**30,
        "gpu_sm_mhz_median": 1380,
        "gpu_sm_mhz_least": 1290,
        "gpu_mem_mhz_median": 877,
        "gpu_temperature_c_peak": 61,
        "gpu_throttled": "sw power cap 50 %",
        "gpu_energy_j": 2 * 230 * 4,
        "cpu_busy_share": 0.4,
        "cpu_job_share": 0.3,
        "cpu_foreign_share": 0.1,
        "host_mem_used_mean_bytes": 34e9 * 1.024,
        "host_mem_used_peak_bytes": 40e9 * 1.024,
        "host_mem_total_bytes": 64e9 * 1.024,
        "net_rx_bytes_per_s": 50e6,
        "net_tx_bytes_per_s": 25e6,
        "fabric_share": 50e6 * 8 / 8e9,
        "node_power_w_mean": 705,
        "node_power_w_peak": 720,
        "node_energy_j_per_1000_samples": 700 * 4 / (STEPS * 64) * 1000,
        "node_kwh_per_epoch": 700 * 4 / (STEPS * 64) * 1_281_167 / 3.6e6,
        "readings": 4,
        "readings_span_s": 3,
        "readings_window_s": 4,
        "data_wait_share": 0.25,
        "energy_j_per_1000_samples": 2 * 230 * 4 / (STEPS * 64) * 1000,
        "flops_per_s_per_gpu": 10**10 * 640 / 2,
    }
    assert {name: made.row[name] for name in expected} == pytest.approx(expected)
    words = {
        "gpu_throttled": "sw power cap 50 %",
        "gpus_not_read": None,
        "nodes_not_read": None,
        "node_energy_from": "pm_counters",
    }
    assert {name: made.row[name] for name in words} == words


def test_every_form_of_the_report_has_them(made: Reported) -> None:
    """Page, Markdown and LaTeX have the tables, the terminal a few columns; CSV the row and the run."""
    for name in ("index.html", "report.md"):
        text = (made.folder / name).read_text()
        assert "What the GPUs did" in text
        assert "What the nodes did" in text
        assert "sw power cap 50" in text
    assert r"sw power cap 50\,\%" in (made.folder / "readings.tex").read_text()
    assert r"& 30\,\% & 10\,\% & 40\,\% &" in (made.folder / "nodes.tex").read_text()
    header, row = next(text for text in made.text.split("\n\n") if "what the GPUs did" in text).splitlines()[1:]
    assert header.split() == ["nodes", "x", "GPUs", "util", "%", "data", "TFLOP/s", "W", "GPU", "GB", "J/1000", "CPU"]
    assert row.split() == ["1", "x", "2", "83", "25", "%", "3.20", "225", "9.66", "719", "40", "%"]
    for name in ("readings.csv", "runs.csv"):
        assert pd.read_csv(made.folder / name).iloc[0]["gpu_power_w_peak"] == 260


@pytest.mark.dear
def test_co2_is_told_by_the_users_factor_alone(made: Reported) -> None:
    """Grams of the GPUs' energy and of the nodes'; without a factor there is no column."""
    assert (made.row["gpu_co2_g_per_epoch"], made.row["node_co2_g_per_epoch"]) == (None, None)
    assert "CO2" not in (made.folder / "report.md").read_text()
    (result,) = analyze(made.folder.parent, how=How(co2_g_per_kwh=400))
    (row,) = result.plain["readings"]
    assert row["gpu_co2_g_per_epoch"] == pytest.approx(400 * row["gpu_kwh_per_epoch"])
    assert row["node_co2_g_per_epoch"] == pytest.approx(400 * row["node_kwh_per_epoch"])
    assert "energy of all nodes: g CO2/epoch" in (made.folder / "report.md").read_text()


def test_where_utilisation_misleads_it_is_said(made: Reported) -> None:
    """83 % beside a quarter of the step without data."""
    text = "a kernel ran in 83 % of the time, but 25 % of the step waits for data"
    assert made.row["misleads"] == text
    assert f"GPU utilisation at 1x2 misleads: {text}" in made.plain["notes"]


@pytest.mark.parametrize(
    ("util", "waits", "exchange", "peak", "says"),
    [
        (95.0, 0.02, 0.05, 0.3, None),
        (95.0, 0.02, 0.30, 0.3, "30 % is exchange"),
        (95.0, 0.02, 0.05, 0.02, "2 % of the GPU's peak"),
        (95.0, 0.02, None, None, None),
        (30.0, 0.02, 0.05, 0.3, "not the loader"),
        (30.0, 0.40, 0.05, 0.3, None),
        (65.0, 0.02, 0.30, 0.02, None),
        (None, 0.40, 0.30, 0.02, None),
    ],
)
def test_misleading(util: float | None, waits: float, exchange: float | None, peak: float | None, says: str | None) -> None:
    """Busy with waiting, or idle although nothing is waited for; where both fit, or utilisation is not known, nothing."""
    row = {"gpu_util_percent": util, "data_wait_share": waits, "comm_exposed_share": exchange, "share_of_peak": peak}
    found = misleading(row)
    assert (found is None) if says is None else (says in str(found))


def test_nothing_read_says_why(tmp_path: Path) -> None:
    """With telemetry_hz 0, in documents; the terminal has no table of nothing."""
    found = report(tmp_path, point(1, 2, telemetry_hz=0.0), None)
    assert found.row["gpus_not_read"] == found.row["nodes_not_read"] == "measure.telemetry_hz is 0"
    assert found.row["gpu_util_percent"] is None
    assert (found.folder / "report.md").read_text().count(r"measure.telemetry\_hz is 0") == 4
    assert (found.folder / "index.html").read_text().count("Not read anywhere: measure.telemetry_hz is 0.") == 2
    assert "what the GPUs did" not in found.text


def test_no_nvml_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the reader said when it began; nodes are read all the same."""
    node = read_node(tmp_path / "read", "r000", tmp_path / "made", SECONDS, monkeypatch)
    found = report(tmp_path, point(1, 2), encode(run_summary(1.0, [dataclasses.replace(node, gpus=())])))
    assert (found.row["gpus_not_read"], found.row["nodes_not_read"]) == ("no NVML: not here", None)
    assert (found.row["gpu_util_percent"], found.row["cpu_job_share"]) == (None, 0.3)
    assert r"no NVML: not here \\" in (found.folder / "readings.tex").read_text()


def test_too_few_readings_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reading has no rate: how many there were, in which time."""
    node = read_node(tmp_path / "read", "r000", tmp_path / "made", (1,), monkeypatch)
    found = report(tmp_path, point(1, 2), encode(run_summary(1.0, [node])))
    assert found.row["nodes_not_read"] == "1 reading in 4.00 s of timed steps at 1 per second, rates need 2"
    assert (found.row["cpu_job_share"], found.row["gpu_util_percent"]) == (None, 82)


def test_ranks_on_cpus_lack_no_gpu(tmp_path: Path) -> None:
    """Their table is that of nodes alone; no reading is no reason to name GPUs."""
    found = report(tmp_path, point(1, 2, device="cpu"), None, gpu=None)
    assert (found.row["gpus_not_read"], found.row["nodes_not_read"]) == (None, "no telemetry was recorded")
    assert not (found.folder / "readings.tex").exists()


def test_of_several_nodes_means_and_the_worst() -> None:
    """Means of the job's share and of traffic, the most of others' share and of memory, the busiest direction for the fabric."""
    nodes = (
        NodeTelemetry(
            host="a",
            readings=9,
            cpu_job_share=0.2,
            cpu_foreign_share=0.1,
            mem_used_peak_bytes=5,
            net_rx_bytes_per_s=1e9,
            net_tx_bytes_per_s=2e9,
        ),
        NodeTelemetry(
            host="b",
            readings=7,
            cpu_job_share=0.4,
            cpu_foreign_share=0.3,
            mem_used_peak_bytes=9,
            net_rx_bytes_per_s=3e9,
            net_tx_bytes_per_s=2e9,
        ),
    )
    found = figures(Readings(nodes=nodes), fabric_gbps=96)
    expected = {"cpu_job_share": 0.3, "cpu_foreign_share": 0.3, "host_mem_used_peak_bytes": 9, "readings": 7}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert (found["net_rx_bytes_per_s"], found["net_tx_bytes_per_s"], found["fabric_share"]) == (2e9, 2e9, 0.25)
    silent = figures(Readings(nodes=(*nodes, NodeTelemetry(host="c"))), fabric_gbps=None)
    assert (silent["cpu_job_share"], silent["readings"], silent["fabric_share"]) == (None, None, None)
