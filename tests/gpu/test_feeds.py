"""Batches that are copied on a stream of their own, and data sets that lie on the GPU."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from hpcddp.core.point import Data
from hpcddp.core.records import STEP_COLUMNS
from hpcddp.data import Batch, TrainLoader
from hpcddp.data.in_memory import CroppedSource
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import CopyAheadFeed
from tests.data.files import write_cifar
from tests.data.test_in_memory import check_batches, check_crops
from tests.gpu import ranks
from tests.gpu.device import Figures, is_real, touches
from tests.worker import given

STEPS = 8


def parameters_at_the_end(attempt: ranks.Attempt) -> str:
    return str(attempt.gate("parameters agree")["evidence"].split()[-1])


@touches("worker/training/feeds.py", "data/loading.py", stand_in="a copy is over when it has been asked for")
def test_trains_as_without(tmp_path: Path) -> None:
    ends = []
    for ahead in (False, True):
        point = ranks.gpu_point(copy_ahead=ahead, loader_workers_per_rank=2, cudnn_benchmark=False)
        attempt = ranks.done(tmp_path / str(ahead), point, before=ranks.same_bits_every_time)
        ends.append(parameters_at_the_end(attempt))
        assert all((row["h2d_hidden_ns"] is not None) == ahead for row in attempt.timed_steps(0))
    assert ends[0] == ends[1]


def is_same(ours: Batch, theirs: Batch) -> bool:
    return all(torch.equal(mine.cpu(), yours) for mine, yours in zip(ours, theirs, strict=True))


def copy_beside_work(samples: int, width: int) -> tuple[bool, list[dict[str, Any]]]:
    """Whether batches came whole while the GPU was busy, and the rows of their steps."""
    group = join(this_rank("local"), "cuda")
    busy = torch.rand(width, width, device=group.device)
    source = given.mnist(STEPS * samples)

    def loader(*, pin_memory: bool) -> TrainLoader:
        return TrainLoader(source, batch_size=samples, rank=0, ranks=1, workers=0, seed=1, pin_memory=pin_memory)

    timer: StepTimer = StepTimer(clock_for("cuda"))
    feed, arrived = CopyAheadFeed(loader(pin_memory=True), group.device), list[Batch]()
    timer.restart()
    for _ in range(STEPS):
        arrived.append(feed.next(timer))
        for _ in range(20):
            torch.mm(busy, busy)
        timer.mark("forward")
        timer.close_step(0)
    rows = [dict(zip(STEP_COLUMNS, step.row, strict=True)) for step in timer.drain()]
    same = list(map(is_same, arrived, loader(pin_memory=False).epoch(0)))
    feed.close()
    group.leave()
    return all(same) and len(same) == STEPS, rows


@touches(
    "worker/training/feeds.py",
    "worker/training/inputs.py",
    stand_in="a copy is over when it has been asked for, so that nothing is hidden",
)
def test_copies_hide_behind_work(tmp_path: Path, figures: Figures) -> None:
    sizes = (64_000, 8192) if is_real() else (64, 16)
    ((complete, rows),) = ranks.values(tmp_path, 1, copy_beside_work, *sizes)
    assert complete
    hidden_ns, exposed_ns = (median(row[name] for row in rows[1:]) for name in ("h2d_hidden_ns", "h2d_exposed_ns"))
    figures.add("h2d_hidden_ms", hidden_ns / 1e6, least=0.05)
    figures.add("h2d_exposed_share_percent", 100 * exposed_ns / max(1, hidden_ns + exposed_ns), most=10.0)


def gathers_the_same() -> None:
    group = join(this_rank("local"), "cuda")
    check_crops(group.device)
    check_batches(CroppedSource(given.cifar(320)), group.device, workers=0)
    group.leave()


@touches("data/in_memory.py", stand_in="everything is on the CPU")
def test_a_gpu_gathers_the_cpus_bytes(tmp_path: Path) -> None:
    ranks.values(tmp_path, 1, gathers_the_same)


@pytest.mark.soak
@touches("worker/training/feeds.py", stand_in="everything is on the CPU")
def test_trains_as_with_a_loader(tmp_path: Path) -> None:
    write_cifar(tmp_path / "data")
    ends = []
    for resident in (False, True):
        data = Data(name="cifar10", root=str(tmp_path / "data"), augment="crop_flip", resident=resident)
        changes = {"model": "resnet18", "batch_per_gpu": 4, "warmup": 2, "steps": 6, "cudnn_benchmark": False}
        point = ranks.gpu_point(1, **changes, data=data, loader_workers_per_rank=int(not resident))
        attempt = ranks.done(tmp_path / str(resident), point, before=ranks.same_bits_every_time)
        ends.append((attempt.end["loss_first"], attempt.end["loss_last"]))
        assert ("resident_bytes" in attempt.launch["data"]) == resident
    assert ends[0] == ends[1]
