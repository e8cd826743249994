"""What telemetry reads of a GPU, against nvidia-smi; and its energy counter against its power."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest

from tests.gpu import ranks
from tests.gpu.device import is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.gpu.standin import NVML_FOLDER

QUERY = ("--query-gpu=utilization.gpu,memory.used,power.draw", "--format=csv,noheader,nounits", "--id=0")

PAUSE_S = 0.25
POINTS = 15.0
"""Utilisation is of the last sixth of a second to second, at moments of each reader's own (nvml.h): means differ by that much."""

POWER_PERCENT = 10.0
"""Power is a mean over the last second on newer GPUs, and within 5 W or 5 % of what is drawn (nvml.h, nvidia-smi's manual)."""

MEMORY_PERCENT = 2.0
"""Of the GPU's memory: newer nvidia-smi leave out what the driver keeps for itself."""


class Reading(NamedTuple):
    unix_ns: int
    util_percent: float
    mem_mib: float
    power_w: float


class Watch:
    """nvidia-smi, read again and again in a thread until the block ends."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        path = os.environ["PATH"] if is_real() else str(NVML_FOLDER)
        program = shutil.which("nvidia-smi", path=path) or "nvidia-smi"
        while not self._over.wait(PAUSE_S):
            begin_ns = time.time_ns()
            done = subprocess.run([program, *QUERY], capture_output=True, text=True, check=True)
            values = [float(value) for value in done.stdout.split(",")]
            self.readings.append(Reading((begin_ns + time.time_ns()) // 2, *values))


@touches(
    "hpcddp/worker/telemetry/gpu.py",
    "hpcddp/worker/telemetry/reader.py",
    "hpcddp/worker/telemetry/reader_process.py",
    stand_in="NVML and nvidia-smi are programs that agree with each other",
)
def test_readings_are_nvidia_smis(tmp_path: Path, figures: Figures) -> None:
    """Utilisation, memory and power over the timed steps, and the energy that its counter gives."""
    if is_real():
        if not shutil.which("nvidia-smi"):
            pytest.skip("needs nvidia-smi")
        pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    seconds = ranks.steps(8, 1)
    measure = {"stop": "seconds", "seconds": float(seconds), "telemetry_hz": 10.0}
    with Watch() as watch:
        attempt = ranks.run_point(tmp_path, ranks.gpu_point(1, precision="bf16", measure=measure))
    attempt.check_done()
    steps = attempt.timed_steps(0)
    begin_ns, end_ns = steps[0]["start_ns"] or 0, (steps[-1]["start_ns"] or 0) + (steps[-1]["total_ns"] or 0)
    theirs = [reading for reading in watch.readings if begin_ns <= reading.unix_ns <= end_ns]
    assert theirs, "nvidia-smi gave no reading within the timed steps"
    (ours,) = attempt.end["telemetry"]["nodes"][0]["gpus"]
    total_mib = attempt.node["gpus"][0]["memory_bytes"] / 2**20
    util, power_w = fmean(reading.util_percent for reading in theirs), fmean(reading.power_w for reading in theirs)
    mem_mib = max(reading.mem_mib for reading in theirs)
    figures.add("util_off_points", ours["util_percent_mean"] - util, least=-POINTS, most=POINTS)
    figures.add("power_off_percent", 100 * (ours["power_w_mean"] / power_w - 1), least=-POWER_PERCENT, most=POWER_PERCENT)
    off_mib = ours["mem_used_peak_bytes"] / 2**20 - mem_mib
    figures.add("memory_off_percent", 100 * off_mib / total_mib, least=-MEMORY_PERCENT, most=MEMORY_PERCENT)
    energy_j = power_w * (end_ns - begin_ns) / 1e9
    figures.add("energy_off_percent", 100 * (ours["energy_j"] / energy_j - 1), least=-POWER_PERCENT, most=POWER_PERCENT)
    figures.add("util_percent", ours["util_percent_mean"])
    assert ours["sm_mhz_median"] > 0
    assert ours["throttle"] is not None


@touches(
    "hpcddp/worker/telemetry/gpu.py",
    "hpcddp/worker/telemetry/reader_process.py",
    stand_in="the counter counts the power that is shown",
)
def test_the_energy_counter_is_the_integral_of_power(tmp_path: Path, figures: Figures) -> None:
    """Between its first and last reading within the timed steps; a GPU without a counter has its energy from its power."""
    if is_real():
        pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    measure = {"stop": "seconds", "seconds": float(ranks.steps(8, 1)), "telemetry_hz": 10.0}
    attempt = ranks.run_point(tmp_path, ranks.gpu_point(1, precision="bf16", measure=measure))
    attempt.check_done()
    (ours,) = attempt.end["telemetry"]["nodes"][0]["gpus"]
    rows, steps = attempt.readings(), attempt.timed_steps(0)
    rows = [row for row in rows if (steps[0]["start_ns"] or 0) <= (row["unix_ns"] or 0)]
    if rows[0]["energy_mj"] is None:
        assert ours["energy_from"] == "power"
        return
    assert ours["energy_from"] == "counter"
    counted_j = ((rows[-1]["energy_mj"] or 0) - (rows[0]["energy_mj"] or 0)) / 1e3
    pairs = itertools.pairwise(rows)
    drawn_j = sum(_joules(before, after) for before, after in pairs)
    figures.add("counter_off_percent", 100 * (counted_j / drawn_j - 1), least=-POWER_PERCENT, most=POWER_PERCENT)


def _joules(before: ranks.Row, after: ranks.Row) -> float:
    """Under the line between two readings of power."""
    power_w = ((before["power_mw"] or 0) + (after["power_mw"] or 0)) / 2e3
    return power_w * ((after["unix_ns"] or 0) - (before["unix_ns"] or 0)) / 1e9
