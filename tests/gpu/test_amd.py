"""A run on AMD's GPUs: what torch for ROCm calls otherwise, and what AMD SMI reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.gpu import ranks, standin
from tests.gpu.device import gpu_count, is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures

POWER_PERCENT = 10.0
"""Power is what is drawn now or a mean over some time, the counter counts all of it."""


@touches(
    "hpcddp/worker/telemetry/amd_gpu.py",
    "hpcddp/worker/telemetry/reader.py",
    "hpcddp/worker/launch_record.py",
    "hpcddp/worker/gpus.py",
    stand_in="torch says that it is built for ROCm, and AMD SMI is a program; no test has run on AMD's GPUs yet",
)
def test_a_run_on_amds_gpus(tmp_path: Path, figures: Figures) -> None:
    """Versions of ROCm, RCCL and MIOpen, architectures, and readings of every GPU, whose counter counts the power shown."""
    if is_real() and torch.version.hip is None:
        pytest.skip("needs a GPU of AMD's")
    measure = {"stop": "seconds", "seconds": float(ranks.steps(8, 1)), "telemetry_hz": 10.0}
    attempt = ranks.run_point(tmp_path, ranks.gpu_point(precision="bf16", measure=measure), before=on_rocm)
    attempt.check_done()
    versions = attempt.launch["versions"]
    assert all(versions[name] for name in ("rocm", "rccl", "miopen"))
    assert "cuda" not in versions
    assert all(gpu["capability"].startswith("gfx") for gpu in attempt.node["gpus"])
    telemetry = attempt.node["telemetry"]
    assert telemetry["no_gpus"] is None
    read = attempt.end["telemetry"]["nodes"][0]["gpus"]
    assert len(read) == len(telemetry["gpus"]) == gpu_count()
    powered = [gpu for gpu in read if gpu["power_w_mean"]]  # of two dies of one module the second reads 0 W
    assert powered
    for gpu in powered:
        drawn_j = gpu["power_w_mean"] * attempt.end["telemetry"]["nodes"][0]["window_s"]
        off_percent = 100 * (gpu["energy_j"] / drawn_j - 1)
        figures.add(f"gpu_{gpu['gpu']}_energy_off_percent", off_percent, least=-POWER_PERCENT, most=POWER_PERCENT)
    assert all(gpu["sm_mhz_median"] > 0 and gpu["temperature_c_peak"] > 0 for gpu in read)


def on_rocm() -> None:
    if not is_real():
        standin.install_rocm(gpu_count())
