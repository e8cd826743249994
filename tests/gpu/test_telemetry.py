"""What is recorded of GPUs and their node: telemetry against nvidia-smi, clocks as the gate has them; survey, preflight."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.preflight import PreflightRecord, slow_readings
from hpcddp.core.records import trace_file
from hpcddp.core.schema import decode_record, encode
from hpcddp.worker import preflight
from hpcddp.worker.comm.trace import has_kernels
from hpcddp.worker.gates import CLOCK_FALL, HARMFUL, THROTTLED_SHARE
from hpcddp.worker.gpus import require_gpu
from hpcddp.worker.host_probe import host_facts
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.survey import survey_node
from hpcddp.worker.telemetry.reader_process import THROTTLE
from tests.gpu import ranks, standin
from tests.gpu.device import Figures, gpu_count, is_real, touches
from tests.worker import given

QUERY = ("--query-gpu=utilization.gpu,memory.used,power.draw", "--format=csv,noheader,nounits", "--id=0")

PAUSE_S = 0.25
POINTS = 15.0
"""Utilisation is of the last sixth of a second to second, at moments of each reader's own (nvml.h): means differ by that much."""

POWER_PERCENT = 10.0
"""Power is a mean over the last second on newer GPUs, and within 5 W or 5 % of what is drawn (nvml.h, nvidia-smi's manual)."""

MEMORY_PERCENT = 2.0
"""Of the GPU's memory: newer nvidia-smi leave out what the driver keeps for itself."""

GATE = "GPU clocks held"

BITS = {word: bit for bit, word in THROTTLE.items()}


class Reading(NamedTuple):
    unix_ns: int
    util_percent: float
    mem_mib: float
    power_w: float


class Watched(NamedTuple):
    """A run on one GPU, and what nvidia-smi said meanwhile: nothing where it is not installed."""

    attempt: ranks.Attempt
    readings: list[Reading]

    def window_ns(self) -> tuple[int, int]:
        first, *_, last = self.attempt.timed_steps(0)
        return first["start_ns"] or 0, (last["start_ns"] or 0) + (last["total_ns"] or 0)

    def rows(self) -> list[ranks.Row]:
        """Telemetry's readings within the timed steps."""
        begin_ns, end_ns = self.window_ns()
        return [row for row in self.attempt.readings() if begin_ns <= (row["unix_ns"] or 0) <= end_ns]


def run(study: Path, count: int | None, before: Callable[[], None] | None = None) -> ranks.Attempt:
    measure = {"stop": "seconds", "seconds": float(ranks.steps(8, 1)), "telemetry_hz": 10.0}
    return ranks.done(study, ranks.gpu_point(count, precision="bf16", measure=measure), before=before)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    if is_real():
        pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    program = shutil.which("nvidia-smi", path=os.environ["PATH"] if is_real() else str(standin.NVML_FOLDER))
    readings, over = list[Reading](), threading.Event()

    def read() -> None:
        while program and not over.wait(PAUSE_S):
            begin_ns = time.time_ns()
            done = subprocess.run([program, *QUERY], capture_output=True, text=True, check=True)
            readings.append(Reading((begin_ns + time.time_ns()) // 2, *map(float, done.stdout.split(","))))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        attempt = run(tmp_path_factory.mktemp("telemetry"), 1)
    finally:
        over.set()
        reader.join()
    return Watched(attempt, readings)


@touches(
    "worker/telemetry/gpu.py",
    "worker/telemetry/reader.py",
    "worker/telemetry/reader_process.py",
    stand_in="NVML and nvidia-smi are programs that agree with each other",
)
def test_readings_are_nvidia_smis(watched: Watched, figures: Figures) -> None:
    if is_real() and not shutil.which("nvidia-smi"):
        pytest.skip("needs nvidia-smi")
    begin_ns, end_ns = watched.window_ns()
    theirs = [reading for reading in watched.readings if begin_ns <= reading.unix_ns <= end_ns]
    assert theirs, "nvidia-smi gave no reading within the timed steps"
    (ours,) = watched.attempt.end["telemetry"]["nodes"][0]["gpus"]
    util, power_w = fmean(reading.util_percent for reading in theirs), fmean(reading.power_w for reading in theirs)
    figures.add("util_off_points", ours["util_percent_mean"] - util, least=-POINTS, most=POINTS)
    figures.add("power_off_percent", 100 * (ours["power_w_mean"] / power_w - 1), least=-POWER_PERCENT, most=POWER_PERCENT)
    off_bytes = ours["mem_used_peak_bytes"] - max(reading.mem_mib for reading in theirs) * 2**20
    off_percent = 100 * off_bytes / watched.attempt.node["gpus"][0]["memory_bytes"]
    figures.add("memory_off_percent", off_percent, least=-MEMORY_PERCENT, most=MEMORY_PERCENT)
    energy_j = power_w * (end_ns - begin_ns) / 1e9
    figures.add("energy_off_percent", 100 * (ours["energy_j"] / energy_j - 1), least=-POWER_PERCENT, most=POWER_PERCENT)
    figures.add("util_percent", ours["util_percent_mean"])
    assert ours["sm_mhz_median"] > 0
    assert ours["throttle"] is not None


@touches("worker/telemetry/gpu.py", "worker/telemetry/reader_process.py", stand_in="the counter counts the power that is shown")
def test_the_energy_counter_is_the_integral_of_power(watched: Watched, figures: Figures) -> None:
    """Between its first and last reading within the timed steps; a GPU without a counter has its energy from its power."""
    (ours,), rows = watched.attempt.end["telemetry"]["nodes"][0]["gpus"], watched.rows()
    if rows[0]["energy_mj"] is None:
        assert ours["energy_from"] == "power"
        return
    assert ours["energy_from"] == "counter"
    counted_j = ((rows[-1]["energy_mj"] or 0) - (rows[0]["energy_mj"] or 0)) / 1e3
    drawn_j = sum(_joules(before, after) for before, after in itertools.pairwise(rows))
    figures.add("counter_off_percent", 100 * (counted_j / drawn_j - 1), least=-POWER_PERCENT, most=POWER_PERCENT)


def _joules(before: ranks.Row, after: ranks.Row) -> float:
    power_w = ((before["power_mw"] or 0) + (after["power_mw"] or 0)) / 2e3
    return power_w * ((after["unix_ns"] or 0) - (before["unix_ns"] or 0)) / 1e9


@touches("worker/telemetry/gpu.py", "worker/telemetry/reader_process.py", stand_in="clocks and reasons are made up")
def test_the_gate_says_what_the_readings_say(watched: Watched, figures: Figures) -> None:
    """Passed unless a harmful reason, or a fall of the clock at the power cap, is in the readings of the timed steps."""
    rows = watched.rows()
    reasons, mhz = [row["throttle_reasons"] or 0 for row in rows], [row["sm_mhz"] or 0 for row in rows]
    harmful, capped = (share(reasons, words) for words in (HARMFUL, ("sw_power_cap",)))
    quarter = -(-len(mhz) // 4)
    fell = 1 - median(mhz[-quarter:]) / median(mhz[:quarter])
    each = max(share(reasons, (word,)) for word in HARMFUL)
    passed = each <= THROTTLED_SHARE and not (capped > THROTTLED_SHARE and fell > CLOCK_FALL)
    assert watched.attempt.gate(GATE)["passed"] == passed
    figures.add("sm_mhz_median", median(mhz), least=1.0)
    figures.add("sm_mhz_fell_percent", 100 * fell)
    figures.add("harmful_percent", 100 * harmful)
    figures.add("power_capped_percent", 100 * capped)


def share(reasons: list[int], words: tuple[str, ...]) -> float:
    return sum(any(reading & BITS[word] for word in words) for reading in reasons) / len(reasons)


@pytest.mark.skipif(is_real(), reason="a test makes no GPU hot")
def test_a_gpu_that_is_held_back_fails_the_gate(tmp_path: Path) -> None:
    """By heat, hardware or power supply: the reason is named, and the run is over all the same."""
    word = "hw_thermal_slowdown"
    attempt = run(tmp_path, 1, lambda: os.environ.update(HPCDDP_TEST_THROTTLE=hex(BITS[word])))
    gate = attempt.gate(GATE)
    assert not gate["passed"]
    assert f"{word} in 100% of the readings" in gate["evidence"]


@touches(
    "worker/telemetry/amd_gpu.py",
    "worker/telemetry/reader.py",
    "worker/launch_record.py",
    "worker/gpus.py",
    stand_in="torch says that it is built for ROCm, and AMD SMI is a program; no test has run on AMD's GPUs yet",
)
def test_a_run_on_amds_gpus(tmp_path: Path, figures: Figures) -> None:
    """Versions of ROCm, RCCL and MIOpen, architectures, and readings of every GPU, whose counter counts the power shown."""
    if is_real() and torch.version.hip is None:
        pytest.skip("needs a GPU of AMD's")
    attempt = run(tmp_path, None, None if is_real() else lambda: standin.install_rocm(gpu_count()))
    versions = attempt.launch["versions"]
    assert all(versions[name] for name in ("rocm", "rccl", "miopen"))
    assert "cuda" not in versions
    assert all(gpu["capability"].startswith("gfx") for gpu in attempt.node["gpus"])
    assert attempt.node["telemetry"]["no_gpus"] is None
    (found,) = attempt.end["telemetry"]["nodes"]
    assert len(found["gpus"]) == len(attempt.node["telemetry"]["gpus"]) == gpu_count()
    powered = [gpu for gpu in found["gpus"] if gpu["power_w_mean"]]  # of two dies of one module the second reads 0 W
    assert powered
    for gpu in powered:  # power is what is drawn now or a mean over some time, the counter counts all of it
        off_percent = 100 * (gpu["energy_j"] / (gpu["power_w_mean"] * found["window_s"]) - 1)
        figures.add(f"gpu_{gpu['gpu']}_energy_off_percent", off_percent, least=-POWER_PERCENT, most=POWER_PERCENT)
    assert all(gpu["sm_mhz_median"] > 0 and gpu["temperature_c_peak"] > 0 for gpu in found["gpus"])


@touches(
    "worker/launch_record.py",
    "worker/main.py",
    "worker/training/profiling.py",
    stand_in="versions are made up; the profiler sees no kernels",
)
def test_where_it_ran(recorded_run: ranks.Attempt, figures: Figures) -> None:
    attempt = recorded_run
    launch, node = attempt.launch, attempt.node
    assert launch["gpus"]
    libraries = ("cuda", "nccl", "cudnn") if torch.version.hip is None else ("rocm", "rccl", "miopen")
    assert all(launch["versions"][name] for name in ("torch", *libraries))
    assert len(node["gpus"]) >= gpu_count()
    assert all(gpu["memory_bytes"] > 0 and re.fullmatch(r"\d+\.\d|gfx\w+", gpu["capability"]) for gpu in node["gpus"])
    events = json.loads(gzip.decompress(trace_file(attempt.folder, 0).read_bytes()))["traceEvents"]
    assert has_kernels(events) == is_real()
    figures.add("flops_per_sample", attempt.end["flops_per_sample"], least=1.0)


@touches("worker/gpus.py", stand_in="it says of itself that it is a GPU of capability 9.0")
def test_a_rank_without_a_gpu_of_its_own(tmp_path: Path) -> None:
    devices, sentences = zip(*ranks.values(tmp_path, gpu_count(), own_and_missing_gpu), strict=True)
    assert list(devices) == [f"cuda:{rank}" for rank in range(gpu_count())]
    assert all("request them per node" in sentence for sentence in sentences)


def own_and_missing_gpu() -> tuple[str, str]:
    mine = this_rank("local")
    device = require_gpu(mine)
    with pytest.raises(HpcddpError) as refused:
        require_gpu(dataclasses.replace(mine, local_rank=gpu_count()))
    return str(device), str(refused.value)


@touches("worker/binding.py", stand_in="its GPUs have addresses at which the machine has no device")
def test_each_rank_names_its_own_gpu(recorded_run: ranks.Attempt) -> None:
    found = recorded_run.launch["bindings"]
    addresses = [binding["gpu"] for binding in found]
    assert len(set(addresses)) == len(addresses) == len(recorded_run.outcomes)
    for binding in found:
        assert binding["cpus"]
        if is_real():
            assert (Path("/sys/bus/pci/devices") / binding["gpu"] / "local_cpulist").is_file()


@touches("worker/survey.py", stand_in="there is no driver, and so no matrix of links")
def test_a_node_is_surveyed(tmp_path: Path) -> None:
    (found,) = ranks.values(tmp_path, 1, lambda: encode(survey_node("here")))
    assert len(found["node"]["gpus"]) >= gpu_count()
    assert found["arch_list"]
    assert found["versions"].get("nccl") or found["versions"]["rccl"]
    if is_real() and torch.version.hip is None:
        assert len([name for name in found["topology"] if name.startswith("GPU")]) >= gpu_count()


@touches("worker/preflight.py", stand_in="rates are the processor's; messages and buffers are small")
def test_what_preflight_reads(tmp_path: Path, figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_real():
        monkeypatch.setattr(preflight, "PART_S", 0.05)
        monkeypatch.setattr(preflight, "SIDES", (64, 128))
        monkeypatch.setattr(preflight, "COPIED_BYTES", {"cuda": 2**20})
        monkeypatch.setattr(preflight, "MESSAGE_BYTES", {"cuda": 2**16})
    spec = spec_to_dict(given.job(tmp_path, ranks.gpu_point()))
    record = decode_record(PreflightRecord, ranks.values(tmp_path / "output", gpu_count(), preflight.preflight_rank, spec)[0])
    assert (record.device, len(record.ranks)) == ("cuda", gpu_count())
    for each in record.ranks:
        assert all((each.matrix_flops_per_s, each.memory_bytes_per_s, each.copy_bytes_per_s)), each.problems
        assert (each.node_bytes_per_s is not None) == (gpu_count() > 1)
        assert (each.neighbour_bytes_per_s, each.problems) == (None, ())
    assert slow_readings(record.ranks) == ()
    first = record.ranks[0]
    figures.add("preflight_matrix_tflop_per_s", (first.matrix_flops_per_s or 0) / 1e12)
    figures.add("preflight_memory_gb_per_s", (first.memory_bytes_per_s or 0) / 1e9)
    figures.add("preflight_copy_gb_per_s", (first.copy_bytes_per_s or 0) / 1e9)
    figures.add("preflight_took_s", record.took_s)


@touches("worker/host_probe.py", stand_in="no program lists what runs on it")
def test_a_host_says_how_many_gpus_it_has(tmp_path: Path) -> None:
    """Before anything of hpcddp is there: as text for its Python."""
    (found,) = ranks.values(tmp_path, 1, host_facts)
    assert found["gpus"] == gpu_count()
    assert found["torch"] == torch.__version__
    assert found["busy"] >= 0
