"""Operations, memory and energy of a run, from its records to runs.csv."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis import analyze
from hpcddp.analysis.runs.resources import MIXED, arithmetic, flops_per_s_per_gpu, share_of_peak
from hpcddp.core.launch_record import LaunchRecord
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

A100, V100 = "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB"


def allowed(convolutions: bool, products: bool, **env: str) -> LaunchRecord:
    return launched({"convolutions": convolutions, "products": products}, env)


def launched(tf32: Mapping[str, bool] | None, env: Mapping[str, str] | None = None) -> LaunchRecord:
    return LaunchRecord(schema=1, point="0123456789ab", ranks=1, gpus=(), env_id="env-1", tf32=tf32, environment=env or {})


def test_precision_asked_for_is_what_runs() -> None:
    """All but fp32, which is TF32 where the GPU has it and torch may use it: in convolutions unless told otherwise."""
    assert arithmetic("bf16", A100, allowed(True, True)) == "bf16"
    assert arithmetic("fp64", A100, allowed(True, True)) == "fp64"
    assert arithmetic("fp32", A100, allowed(True, True)) == "tf32"
    assert arithmetic("fp32", A100, allowed(True, False)) == MIXED
    assert arithmetic("fp32", A100, allowed(False, False)) == "fp32"
    assert arithmetic("fp32", A100, allowed(True, True, NVIDIA_TF32_OVERRIDE="0")) == "fp32"
    assert arithmetic("fp32", V100, allowed(True, True)) == "fp32"
    assert arithmetic("fp32", None, launched(None)) == "fp32"  # a CPU


def test_arithmetic_nobody_tells_is_unknown() -> None:
    """A GPU that is not known may have TF32 or not; torch may not say; and products alone are not most of it."""
    assert arithmetic("fp32", "Some GPU", allowed(True, True)) is None
    for tf32 in ({}, {"products": False}, {"convolutions": True}):
        assert arithmetic("fp32", A100, launched(tf32)) is None
    assert arithmetic("fp32", A100, launched(None)) is None
    assert arithmetic("fp32", A100, allowed(False, True)) is None


def test_share_of_peak_by_hand() -> None:
    """24.3 GFLOP x 5,000 samples/s on 4 GPUs are 30.4 TFLOP/s each: of TF32's 156 on an A100 19.5 %, of the V100's 15.7 193 %."""
    achieved = flops_per_s_per_gpu(24_300_000_000, 5000, 4)
    assert achieved == pytest.approx(30.375e12)
    assert share_of_peak(achieved, A100, "tf32") == share_of_peak(achieved, A100, MIXED) == pytest.approx(0.19471, rel=1e-4)
    assert share_of_peak(achieved, V100, "fp32") == pytest.approx(1.9347, rel=1e-4)
    assert share_of_peak(achieved, "Some GPU", "fp32") is None


FP32 = {"tf32": {"convolutions": True, "products": False}, "environment": {}}
"""Of launch.json: in fp32, on a GPU without TF32."""


def runs(root: Path) -> Any:
    (_,) = analyze(root)
    return pd.read_csv(root / "study" / "report" / "runs.csv").iloc[0]


@pytest.mark.dear
def test_runs_tell_what_they_made_of_their_gpus(tmp_path: Path) -> None:
    """4 GPUs x 32 samples in 100 ms at 10 GFLOP a sample: 3.2 TFLOP/s each, of 15.7; the fullest GPU's memory; energy as told."""
    what = point(1, 4)
    end = {"flops_per_sample": 10_000_000_000, "telemetry": {"energy_j_per_1000_samples": 812.5}}
    of_rank = {"peak_memory_bytes": {"allocated": 7 * 2**30, "reserved": 9 * 2**30}}
    recorded = Recorded(step_ns=100 * MS, gpu=V100, launch=FP32, end=end, of_rank=of_rank)
    write_run(write_study(tmp_path / "study", [what]), what, recorded)
    row = runs(tmp_path)
    assert row["flops_per_s_per_gpu"] == pytest.approx(3.2e12)
    assert row["share_of_peak"] == pytest.approx(3.2 / 15.7)
    assert (row["arithmetic"], row["peak_memory_bytes"], row["energy_j_per_1000_samples"]) == ("fp32", 7 * 2**30, 812.5)


def test_energy_is_of_the_samples_that_passed(tmp_path: Path) -> None:
    """Of 4 ranks x 32 samples that a script declares 24 passed: a third more for each, of the GPUs and of the nodes."""
    what = point(1, 4)
    node = {"host": "r000", "window_s": 0.5, "samples": 5 * 128, "readings": 5, "energy_j": 480, "energy_from": "pm_counters"}
    end = {"telemetry": {"hz": 1.0, "energy_j_per_1000_samples": 750.0, "nodes": [node]}}
    write_run(write_study(tmp_path / "study", [what]), what, Recorded(step_ns=100 * MS, samples=24, end=end))
    row = runs(tmp_path)
    assert (row["energy_j_per_1000_samples"], row["node_energy_j_per_1000_samples"]) == (1000.0, 1000.0)


@pytest.mark.dear
def test_records_without_these_figures_are_read(tmp_path: Path) -> None:
    """What a run did not tell stays empty, and nothing is rejected for it."""
    what = point(1, 4)
    write_run(write_study(tmp_path / "study", [what]), what, Recorded(step_ns=100 * MS))
    row = runs(tmp_path)
    assert row["state"] == "counts"
    assert row[["flops_per_s_per_gpu", "share_of_peak", "arithmetic", "peak_memory_bytes"]].isna().all()


@pytest.mark.dear
def test_loading_alone_takes_no_operations(tmp_path: Path) -> None:
    """`input: io` trains nothing: no operations are claimed for it."""
    what = point(1, 4, input="io")
    recorded = Recorded(step_ns=100 * MS, gpu=V100, launch=FP32, end={"flops_per_sample": 10_000_000_000})
    write_run(write_study(tmp_path / "study", [what]), what, recorded)
    assert pd.isna(runs(tmp_path)["flops_per_s_per_gpu"])
