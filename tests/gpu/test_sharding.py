"""Sharded parameters on NCCL, with as many ranks as there are GPUs."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.gpu import ranks
from tests.gpu.device import is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures

FILES = ("hpcddp/worker/training/sharding.py", "hpcddp/worker/training/shard_marks.py", "hpcddp/worker/shard_gate.py")


@touches(*FILES, stand_in="gloo gathers and scatters while the rank waits: what hides behind the computation is not tried")
@pytest.mark.parametrize(
    ("parallel", "precision"),
    [
        *(("fsdp", "fp32"), ("hsdp", "bf16")),
        *(pytest.param("fsdp", precision, marks=pytest.mark.soak) for precision in ("bf16", "fp16")),
    ],
)
def test_what_a_rank_waits_for_is_marked(tmp_path: Path, figures: Figures, parallel: str, precision: str) -> None:
    """In every step, within it, and adding up to what end.json has; every gate passes, an evaluation too."""
    batch = {} if is_real() else {"batch_per_gpu": 256}  # every batch of the evaluation gathers the parameters
    point = ranks.gpu_point(parallel=parallel, precision=precision, measure={"comm": "on"}, evaluate=True, **batch)
    attempt = ranks.run_point(tmp_path, point)
    attempt.check_done()
    assert attempt.launch["communication"] == "nccl"
    waits = {name: value for name, value in attempt.end["sharded_exchange"].items() if name != "method"}
    rows = [row for rank in range(point.ranks) for row in attempt.steps(rank) if not (row["flags"] or 0) & 1]
    assert all(0 < (row["comm_exposed_ns"] or 0) < (row["total_ns"] or 0) for row in rows)
    exposed_s = sum(row["comm_exposed_ns"] or 0 for row in rows) / len(rows) / 1e9
    assert sum(waits.values()) == pytest.approx(exposed_s, rel=1e-3)
    shares = [100 * (row["comm_exposed_ns"] or 0) / (row["total_ns"] or 1) for row in rows]
    figures.add("comm_exposed_percent", median(shares), most=100.0)


@pytest.mark.soak
@touches(*FILES, stand_in="arithmetic is the host's, and no memory is a GPU's")
def test_losses_and_memory_beside_ddps(tmp_path: Path, figures: Figures) -> None:
    """The last of some steps has DDP's loss but for the order of sums; of several GPUs each holds less."""
    size: dict[str, Any] = {"model": "vit_b_16", "batch_per_gpu": 16} if is_real() else {}
    losses, memory = {}, {}
    for parallel in ("ddp", "fsdp"):
        attempt = ranks.run_point(tmp_path / parallel, ranks.gpu_point(parallel=parallel, tf32=False, **size))
        attempt.check_done()
        losses[parallel] = attempt.end["loss_last"]
        memory[parallel] = max(rank["peak_memory_bytes"]["allocated"] for rank in attempt.end["ranks"])
        figures.add(f"{parallel}_allocated_mb", memory[parallel] / 2**20)
    assert losses["fsdp"] == pytest.approx(losses["ddp"], rel=0.02)
    if is_real() and len(attempt.outcomes) > 1:
        assert memory["fsdp"] < memory["ddp"]
