"""Operations, memory and energy of a run, from its records to runs.csv."""

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
from hpcddp.analysis.runs.resources import MIXED, Readings, figures, flops_per_s_per_gpu, gpu_arithmetic, share_of_peak
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.readings import misleading
from hpcddp.core.attempt_records import NodeTelemetry
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import Point
from hpcddp.core.records import GPU_COLUMNS, NODE_COLUMNS, RowWriter, gpus_file, node_file, write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.worker.telemetry.gpu import GpuReader
from hpcddp.worker.telemetry.node import TICK_NS, NodeReader, node_energy
from hpcddp.worker.telemetry.reader_process import TimedSpan, node_summary, run_summary
from tests.analysis.synthetic import MS, START_NS, Recorded, point, write_run, write_study
from tests.worker.test_node import Nvml, cray, interfaces, write

pytestmark = pytest.mark.usefixtures("undrawn")

A100, V100 = "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB"


def launched(tf32: Mapping[str, bool] | None, **env: str) -> LaunchRecord:
    return LaunchRecord(schema=1, point="0123456789ab", ranks=1, gpus=(), env_id="env-1", tf32=tf32, environment=env)


def allowed(convolutions: bool, products: bool, **env: str) -> LaunchRecord:
    return launched({"convolutions": convolutions, "products": products}, **env)


def test_precision_asked_for_is_what_runs() -> None:
    assert gpu_arithmetic("bf16", A100, allowed(True, True)) == "bf16"
    assert gpu_arithmetic("fp64", A100, allowed(True, True)) == "fp64"
    assert gpu_arithmetic("fp32", A100, allowed(True, True)) == "tf32"
    assert gpu_arithmetic("fp32", A100, allowed(True, False)) == MIXED
    assert gpu_arithmetic("fp32", A100, allowed(False, False)) == "fp32"
    assert gpu_arithmetic("fp32", A100, allowed(True, True, NVIDIA_TF32_OVERRIDE="0")) == "fp32"
    assert gpu_arithmetic("fp32", V100, allowed(True, True)) == "fp32"
    assert gpu_arithmetic("fp32", None, launched(None)) == "fp32"  # a CPU


def test_arithmetic_nobody_tells_is_unknown() -> None:
    """A GPU that is not known may have TF32 or not; torch may not say; and products alone are not most of it."""
    assert gpu_arithmetic("fp32", "Some GPU", allowed(True, True)) is None
    for tf32 in ({}, {"products": False}, {"convolutions": True}):
        assert gpu_arithmetic("fp32", A100, launched(tf32)) is None
    assert gpu_arithmetic("fp32", A100, launched(None)) is None
    assert gpu_arithmetic("fp32", A100, allowed(False, True)) is None


def test_share_of_peak_by_hand() -> None:
    """24.3 GFLOP x 5,000 samples/s on 4 GPUs are 30.4 TFLOP/s each: of TF32's 156 on an A100 19.5 %, of the V100's 15.7 193 %."""
    achieved = flops_per_s_per_gpu(24_300_000_000, 5000, 4)
    assert achieved == pytest.approx(30.375e12)
    assert share_of_peak(achieved, A100, "tf32") == share_of_peak(achieved, A100, MIXED) == pytest.approx(0.19471, rel=1e-4)
    assert share_of_peak(achieved, V100, "fp32") == pytest.approx(1.9347, rel=1e-4)
    assert share_of_peak(achieved, "Some GPU", "fp32") is None


FP32 = {"tf32": {"convolutions": True, "products": False}, "environment": {}}
"""Of launch.json: in fp32, on a GPU without TF32."""

FOUR = point(1, 4)


def of_run(root: Path, what: Point = FOUR, **recorded: Any) -> Any:
    """Its row of runs.csv; steps take 100 ms."""
    write_run(write_study(root / "study", [what]), what, Recorded(step_ns=100 * MS, **recorded))
    return runs_frame(load_study(Study(root / "study"))).iloc[0]


def test_runs_tell_what_they_made_of_their_gpus(tmp_path: Path) -> None:
    """4 GPUs x 32 samples in 100 ms at 10 GFLOP a sample: 3.2 TFLOP/s each, of 15.7; the fullest GPU's memory; energy as told."""
    end = {"flops_per_sample": 10_000_000_000, "telemetry": {"energy_j_per_1000_samples": 812.5}}
    of_rank = {"peak_memory_bytes": {"allocated": 7 * 2**30, "reserved": 9 * 2**30}}
    row = of_run(tmp_path, gpu=V100, launch=FP32, end=end, of_rank=of_rank)
    assert row["flops_per_s_per_gpu"] == pytest.approx(3.2e12)
    assert row["share_of_peak"] == pytest.approx(3.2 / 15.7)
    assert (row["arithmetic"], row["peak_memory_bytes"], row["energy_j_per_1000_samples"]) == ("fp32", 7 * 2**30, 812.5)
    loading = of_run(tmp_path / "io", point(1, 4, input="io"), gpu=V100, launch=FP32, end=end)
    assert pd.isna(loading["flops_per_s_per_gpu"])
    silent = of_run(tmp_path / "silent")
    assert silent["state"] == "counts"
    assert silent[["flops_per_s_per_gpu", "share_of_peak", "arithmetic", "peak_memory_bytes"]].isna().all()


def test_energy_is_of_the_samples_that_passed(tmp_path: Path) -> None:
    """Of 4 ranks x 32 samples that a script declares 24 passed: a third more for each, of the GPUs and of the nodes."""
    node = {"host": "r000", "window_s": 0.5, "samples": 5 * 128, "readings": 5, "energy_j": 480, "energy_from": "pm_counters"}
    row = of_run(tmp_path, samples=24, end={"telemetry": {"hz": 1.0, "energy_j_per_1000_samples": 750.0, "nodes": [node]}})
    assert (row["energy_j_per_1000_samples"], row["node_energy_j_per_1000_samples"]) == (1000.0, 1000.0)


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
def test_readings_agree_with_what_was_made_in_every_form_of_the_report(made: Reported) -> None:
    per_sample = 4 / (STEPS * 64)
    expected = {
        **{"gpu_util_percent": (93 + 73) / 2, "gpu_util_percent_least": 73, "gpu_power_w_mean": 220 + 5, "gpu_power_w_peak": 260},
        **{f"gpu_mem_{name}_bytes": gib * 2**30 for name, gib in (("used_mean", 6), ("used_peak", 9), ("total", 16))},
        **{"gpu_sm_mhz_median": 1380, "gpu_sm_mhz_least": 1290, "gpu_mem_mhz_median": 877, "gpu_temperature_c_peak": 61},
        **{"gpu_throttled": "sw power cap 50 %", "gpu_energy_j": 2 * 230 * 4},
        **{"cpu_busy_share": 0.4, "cpu_job_share": 0.3, "cpu_foreign_share": 0.1},
        **{f"host_mem_{name}_bytes": gb * 1.024e9 for name, gb in (("used_mean", 34), ("used_peak", 40), ("total", 64))},
        **{"net_rx_bytes_per_s": 50e6, "net_tx_bytes_per_s": 25e6, "fabric_share": 50e6 * 8 / 8e9},
        **{"node_power_w_mean": 705, "node_power_w_peak": 720, "node_energy_j_per_1000_samples": 700 * per_sample * 1000},
        **{"node_kwh_per_epoch": 700 * per_sample * 1_281_167 / 3.6e6, "energy_j_per_1000_samples": 460 * per_sample * 1000},
        **{"readings": 4, "readings_span_s": 3, "readings_window_s": 4},
        **{"data_wait_share": 0.25, "flops_per_s_per_gpu": 10**10 * 640 / 2},
    }
    assert {name: made.row[name] for name in expected} == pytest.approx(expected)
    text = "A kernel ran in 83 % of the time. Ranks wait for data during 25 % of the step."
    words = {"gpus_not_read": None, "nodes_not_read": None, "node_energy_from": "pm_counters", "misleads": text}
    assert {name: made.row[name] for name in words} == words
    assert f"GPU utilisation at 1x2 is misleading. {text}" in made.plain["notes"]
    for name in ("index.html", "report.md"):
        text = (made.folder / name).read_text()
        assert all(words in text for words in ("GPU readings", "Node readings", "sw power cap 50"))
    assert r"sw power cap 50\,\%" in (made.folder / "readings.tex").read_text()
    assert r"& 30\,\% & 10\,\% & 40\,\% &" in (made.folder / "nodes.tex").read_text()
    header, row = next(text for text in made.text.split("\n\n") if "GPU readings" in text).splitlines()[-2:]
    assert header.split() == ["nodes", "x", "GPUs", "util", "%", "data", "TFLOP/s", "W", "GPU", "GB", "J/1000", "CPU"]
    assert row.split() == ["1", "x", "2", "83", "25", "%", "3.20", "225", "9.66", "719", "40", "%"]
    for name in ("readings.csv", "runs.csv"):
        assert pd.read_csv(made.folder / name).iloc[0]["gpu_power_w_peak"] == 260


@pytest.mark.dear
def test_co2_is_told_by_the_users_factor_alone(made: Reported) -> None:
    assert (made.row["gpu_co2_g_per_epoch"], made.row["node_co2_g_per_epoch"]) == (None, None)
    assert "CO2" not in (made.folder / "report.md").read_text()
    (result,) = analyze(made.folder.parent, how=How(co2_g_per_kwh=400))
    (row,) = result.plain["readings"]
    assert row["gpu_co2_g_per_epoch"] == pytest.approx(400 * row["gpu_kwh_per_epoch"])
    assert row["node_co2_g_per_epoch"] == pytest.approx(400 * row["node_kwh_per_epoch"])
    assert "energy of all nodes: g CO2/epoch" in (made.folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("util", "waits", "exchange", "peak", "says"),
    [
        (95.0, 0.02, 0.05, 0.3, None),
        (95.0, 0.02, 0.30, 0.3, "Collectives take 30 %"),
        (95.0, 0.02, 0.05, 0.02, "2 % of the GPU's peak"),
        (95.0, 0.02, None, None, None),
        (30.0, 0.02, 0.05, 0.3, "No kernel ran in 70 % of the time"),
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
    """In documents; the terminal has no table of nothing, and ranks on CPUs lack no GPU."""
    found = report(tmp_path, point(1, 2, telemetry_hz=0.0), None)
    assert found.row["gpus_not_read"] == found.row["nodes_not_read"] == "measure.telemetry_hz is 0"
    assert found.row["gpu_util_percent"] is None
    assert (found.folder / "report.md").read_text().count(r"measure.telemetry\_hz is 0") == 4
    assert (found.folder / "index.html").read_text().count("Not read anywhere: measure.telemetry_hz is 0.") == 2
    assert "GPU readings" not in found.text
    found = report(tmp_path / "cpu", point(1, 2, device="cpu"), None, gpu=None)
    assert (found.row["gpus_not_read"], found.row["nodes_not_read"]) == (None, "no telemetry was recorded")
    assert not (found.folder / "readings.tex").exists()


def test_what_is_missing_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVML nodes are read all the same; one reading has no rate: how many there were, in which time."""
    node = read_node(tmp_path / "read", "r000", tmp_path / "made", SECONDS, monkeypatch)
    found = report(tmp_path / "none", point(1, 2), encode(run_summary(1.0, [dataclasses.replace(node, gpus=())])))
    assert (found.row["gpus_not_read"], found.row["nodes_not_read"]) == ("no NVML: not here", None)
    assert (found.row["gpu_util_percent"], found.row["cpu_job_share"]) == (None, 0.3)
    assert r"no NVML: not here \\" in (found.folder / "readings.tex").read_text()
    node = read_node(tmp_path / "once", "r000", tmp_path / "made", (1,), monkeypatch)
    found = report(tmp_path / "few", point(1, 2), encode(run_summary(1.0, [node])))
    assert found.row["nodes_not_read"] == "1 reading in 4.00 s of timed steps at 1 per second, rates need 2"
    assert (found.row["cpu_job_share"], found.row["gpu_util_percent"]) == (None, 82)


def test_of_several_nodes_means_and_the_worst() -> None:
    names = ("readings", "cpu_job_share", "cpu_foreign_share", "mem_used_peak_bytes", "net_rx_bytes_per_s", "net_tx_bytes_per_s")
    read: dict[str, tuple[Any, ...]] = {"a": (9, 0.2, 0.1, 5, 1e9, 2e9), "b": (7, 0.4, 0.3, 9, 3e9, 2e9)}
    nodes = [NodeTelemetry(host=host, **dict(zip(names, values, strict=True))) for host, values in read.items()]
    found = figures(Readings(nodes=tuple(nodes)), fabric_gbps=96)
    expected = {"cpu_job_share": 0.3, "cpu_foreign_share": 0.3, "host_mem_used_peak_bytes": 9, "readings": 7}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert (found["net_rx_bytes_per_s"], found["net_tx_bytes_per_s"], found["fabric_share"]) == (2e9, 2e9, 0.25)
    silent = figures(Readings(nodes=(*nodes, NodeTelemetry(host="c"))), fabric_gbps=None)
    assert (silent["cpu_job_share"], silent["readings"], silent["fabric_share"]) == (None, None, None)
