"""Every way to compute that a workload may ask for trains, passes the gates, and is what really computes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.point import Data, Ddp, Optimizer, Point, Workload
from hpcddp.worker.launch_record import tf32
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.training.feeds import first_batch
from hpcddp.worker.training.trainer import apply_settings, make_trainer
from tests.gpu import ranks
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.worker import given

WAYS: dict[str, dict[str, Any]] = {
    "fp32": {"tf32": False},
    "tf32": {"tf32": True},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "channels_last": {"precision": "bf16", "channels_last": True},
    "accumulate": {"accumulate": 2},
    "sync_batchnorm": {"sync_batchnorm": True},
    "compression": {"ddp": Ddp(compression="fp16")},
    "static_graph": {"ddp": Ddp(static_graph=True)},
    "bare": {"parallel": "none"},
}
TRIED = ("bf16", "fp16", "bare")
"""On the stand-in in `make test`, whose arithmetic is a processor's: tests/worker trains in the other ways."""


@touches(
    "hpcddp/worker/training/trainer.py",
    "hpcddp/worker/training/parallel.py",
    "hpcddp/worker/training/train.py",
    "hpcddp/worker/checksums.py",
    "hpcddp/worker/attempt_records.py",
    stand_in="the arithmetic is a processor's; the scaler does not scale; the model has no BatchNorm, which sync_batchnorm "
    "would change",
)
@pytest.mark.parametrize("way", [pytest.param(way, marks=[] if way in TRIED else pytest.mark.soak) for way in WAYS])
def test_trains(tmp_path: Path, figures: Figures, way: str) -> None:
    """To the end, with finite losses, all gates passed, and memory of the GPU recorded."""
    changes = WAYS[way]
    point = ranks.gpu_point(1 if changes.get("parallel") == "none" else None, evaluate=way == "bf16", **changes)
    attempt = ranks.run_point(tmp_path, point)
    attempt.check_done()
    assert attempt.launch["device"] == "cuda"
    if point.workload.tf32 is not None:
        assert attempt.launch["tf32"] == {"convolutions": point.workload.tf32, "products": point.workload.tf32}
    peak = attempt.end["ranks"][0]["peak_memory_bytes"]
    assert 0 < peak["allocated"] <= peak["reserved"]
    rows = attempt.timed_steps(0)
    samples = point.workload.batch_per_gpu * len(rows)
    figures.add("samples_per_s_and_gpu", samples / sum(row["total_ns"] or 0 for row in rows) * 1e9)
    figures.add("peak_allocated_mib", peak["allocated"] / 2**20)


def what_computes(workloads: list[Workload]) -> list[dict[str, Any]]:
    """Of each: the types and layout that its model's forward has, and torch's switches."""
    group, found = join(this_rank("local"), "cuda"), []
    for workload in workloads:
        apply_settings(workload)
        source = given.mnist(64)
        trainer = make_trainer(workload, source, group.device, group.rank.rank)
        batch = first_batch(Point(cluster="local", workload=workload), source, group)
        with trainer.autocast():
            scores = trainer.module(trainer.normalize(batch[0]))
        loss = trainer.step(batch, lambda part: None)
        found.append(
            {
                "scores": str(scores.dtype),
                "channels_last": list(trainer.module.parameters())[2].is_contiguous(memory_format=torch.channels_last),
                "scaled": trainer.scaler is not None and trainer.scaler.is_enabled(),
                "finite": bool(torch.isfinite(loss)),
                "tf32": tf32(),
            }
        )
    group.leave()
    return found


@touches(
    "hpcddp/worker/training/trainer.py",
    "hpcddp/worker/launch_record.py",
    stand_in="autocast is a processor's, which has the same types",
)
def test_the_model_computes_in_what_was_asked_for(tmp_path: Path) -> None:
    """Autocast gives scores of its type, channels_last is the layout of a convolution's weights, fp16 alone scales its loss."""
    names = ["fp32", "tf32", "bf16", "fp16", "channels_last"]
    (found,) = ranks.values(tmp_path, 1, what_computes, [given.workload(**WAYS[way]) for way in names])
    fp32, with_tf32, bf16, _, channels_last = found
    kinds = ("float32", "float32", "bfloat16", "float16", "bfloat16")
    assert [way["scores"] for way in found] == [f"torch.{kind}" for kind in kinds]
    assert [way["scaled"] for way in found] == [False, False, False, True, False]
    assert (bf16["channels_last"], channels_last["channels_last"]) == (False, True)
    assert (fp32["tf32"]["products"], with_tf32["tf32"]["products"]) == (False, True)
    assert all(way["finite"] for way in found)


@pytest.mark.soak
@touches(
    "hpcddp/worker/training/ddp_warmup.py",
    stand_in="nothing is compiled; tests/worker/test_trainer.py does it on a processor",
)
def test_compiled(tmp_path: Path, figures: Figures) -> None:
    """torch.compile is done before the first step: it has a time of its own, and no step is much longer than the others."""
    point = ranks.gpu_point(compile=True, precision="bf16", channels_last=True)
    attempt = ranks.run_point(tmp_path, point)
    attempt.check_done()
    figures.add("compile_s", attempt.end["compile_s"], least=0.0)
    totals_s = [(row["total_ns"] or 0) / 1e9 for row in attempt.steps(0)]
    figures.add("longest_step_s", max(totals_s), most=2.0)


@pytest.mark.soak
@touches("hpcddp/worker/training/parallel.py", stand_in="DataParallel calls the module as it is")
def test_data_parallel(tmp_path: Path) -> None:
    """One process with all GPUs."""
    point = ranks.gpu_point(parallel="data_parallel", precision="bf16")
    assert point.ranks == 1
    ranks.run_point(tmp_path, point).check_done()


@touches("hpcddp/worker/training/train.py", "hpcddp/worker/timing/steptimer.py", stand_in="the arithmetic is a processor's")
def test_a_loss_that_is_no_number_is_caught(tmp_path: Path) -> None:
    """A rate that no training survives: the run ends, and says which rank's loss of which step is the reason."""
    point = ranks.gpu_point(optimizer=Optimizer(lr=1e30), data=Data(name="synthetic-mnist"), model="mnist-cnn")
    end = ranks.run_point(tmp_path, point).end
    assert (end["state"], end["fault"]["kind"]) == ("failed", "diverged")
    assert re.match(r"rank \d on node0: the loss of step \d+ is ", end["reason"])
