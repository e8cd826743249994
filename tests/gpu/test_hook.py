"""The communication hook on NCCL, with as many ranks as there are GPUs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from hpcddp.core.point import Ddp, Point
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import ProcessGroup, join
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.trainer import make_trainer
from tests.gpu import ranks
from tests.gpu.determinism import same_bits_every_time
from tests.gpu.device import is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.worker import given

STEPS = 6


@touches(
    "hpcddp/worker/comm/hook.py",
    "hpcddp/worker/rendezvous.py",
    stand_in="NCCL is gloo: that its callback runs in a stream of its own is not tried",
)
@pytest.mark.parametrize(
    "changes",
    [
        {"copy_ahead": True},
        *(pytest.param(changes, marks=pytest.mark.soak) for changes in ({}, {"ddp": Ddp(static_graph=True)})),
    ],
    ids=["copy_ahead", "", "static graph"],
)
def test_every_bucket_of_every_step_is_recorded(tmp_path: Path, figures: Figures, changes: dict[str, Any]) -> None:
    """With its bytes, ready before it is done, and within the step that it belongs to, also beside copies ahead."""
    attempt = ranks.run_point(tmp_path, ranks.gpu_point(measure={"comm": "on"}, **changes))
    attempt.check_done()
    assert attempt.launch["communication"] == "nccl"
    exposed_percent = []
    for rank in range(len(attempt.outcomes)):
        steps, buckets = {row["step"]: row for row in attempt.steps(rank)}, attempt.buckets(rank)
        of_step = Counter(row["step"] for row in buckets)
        assert set(of_step) == set(steps)
        assert len({of_step[step] for step in list(steps)[2:]}) == 1  # from the third on buckets are what they stay
        for row in buckets:
            step = steps[row["step"]]
            begin_ns, end_ns = step["start_ns"] or 0, (step["start_ns"] or 0) + (step["total_ns"] or 0)
            assert begin_ns <= (row["ready_ns"] or 0) <= (row["done_ns"] or 0) <= end_ns
            assert row["bytes"]
        exposed_percent += [100 * (row["comm_exposed_ns"] or 0) / (row["total_ns"] or 1) for row in attempt.timed_steps(rank)]
    figures.add("comm_exposed_percent", median(exposed_percent), most=100.0)


def train(group: ProcessGroup, point: Point, *, hooked: bool) -> list[torch.Tensor]:
    """The parameters after some steps on samples of the rank's own."""
    source = given.cifar(512) if point.workload.model == "resnet18" else given.mnist(512)
    trainer, samples = make_trainer(point.workload, source, group.device, group.rank.rank), point.workload.batch_per_gpu
    timer: StepTimer = StepTimer(clock_for("cuda"))
    if hooked:
        assert trainer.ddp
        time_buckets(trainer.ddp, timer)
    timer.restart()
    for step in range(STEPS):
        first = samples * (step * group.rank.world + group.rank.rank)
        images, labels = source.batch(torch.tensor([index % len(source) for index in range(first, first + samples)]))
        trainer.step((images.to(group.device), labels.to(group.device)), timer.mark)
        timer.close_step(0)
    assert len([bucket for step in timer.drain() for bucket in step.buckets]) >= (STEPS if hooked else 0)
    return [parameter.detach().cpu() for parameter in trainer.module.parameters()]


def train_both_ways(point: Point) -> bool:
    same_bits_every_time()
    group = join(this_rank("local"), "cuda")
    bare, hooked = (train(group, point, hooked=hooked) for hooked in (False, True))
    group.leave()
    return all(torch.equal(*pair) for pair in zip(bare, hooked, strict=True))


@touches("hpcddp/worker/comm/hook.py", stand_in="NCCL is gloo, which adds up in another order")
@pytest.mark.parametrize(
    "ddp",
    [
        Ddp(gradient_as_bucket_view=True, bucket_cap_mb=1),
        *(pytest.param(ddp, marks=pytest.mark.soak) for ddp in (Ddp(), Ddp(static_graph=True))),
    ],
    ids=["views", "default", "static graph"],
)
def test_the_hook_reduces_as_ddp_does(tmp_path: Path, ddp: Ddp) -> None:
    """Parameters after several steps are those without the hook, bit for bit."""
    point = ranks.gpu_point(ddp=ddp, cudnn_benchmark=False)
    assert all(ranks.values(tmp_path, point.ranks, train_both_ways, point))


@touches(
    "hpcddp/worker/comm/check.py",
    "hpcddp/worker/comm/trace.py",
    stand_in="the profiler sees no kernels, so that the views are not compared",
)
def test_views_of_the_exchange_are_compared(tmp_path: Path, figures: Figures) -> None:
    """By the step clock, by steps without exchange and by the profiler's kernels; with one GPU nothing is exchanged."""
    attempt = ranks.run_point(tmp_path, ranks.gpu_point(measure={"comm": "check"}))
    attempt.check_done()
    found = attempt.end["comm_check"]
    if len(attempt.outcomes) == 1:
        assert found is None
    elif is_real():
        figures.add("exchange_residual_ms", 1e3 * found["residual_s"])
        assert found["closes"], found["sentence"]
    else:
        assert "saw no kernel of the GPU" in found["sentence"]
