"""Batches that are copied on a stream of their own."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import torch

from hpcddp.core.records import STEP_COLUMNS
from hpcddp.data import Batch, TrainLoader
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import CopyAheadFeed
from tests.gpu import ranks
from tests.gpu.determinism import same_bits_every_time
from tests.gpu.device import is_real
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.worker import given

STEPS = 8


def parameters_at_the_end(attempt: ranks.Attempt) -> str:
    return str(attempt.gate("parameters agree")["evidence"].split()[-1])


@touches(
    "hpcddp/worker/training/feeds.py",
    "hpcddp/worker/training/feeds.py",
    "hpcddp/data/batches/loading.py",
    stand_in="a copy is over when it has been asked for",
)
def test_trains_as_without(tmp_path: Path) -> None:
    """From loader processes and pinned memory: the parameters at the end are bit for bit those of copies in the step."""
    ends = []
    for ahead in (False, True):
        point = ranks.gpu_point(copy_ahead=ahead, loader_workers_per_rank=2, cudnn_benchmark=False)
        attempt = ranks.run_point(tmp_path / str(ahead), point, before=same_bits_every_time)
        attempt.check_done()
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
    "hpcddp/worker/training/feeds.py",
    "hpcddp/worker/training/inputs.py",
    stand_in="a copy is over when it has been asked for, so that nothing is hidden",
)
def test_copies_hide_behind_work(tmp_path: Path, figures: Figures) -> None:
    """Batches of 48 MB arrive whole while the GPU is busy, and most of a copy is hidden."""
    sizes = (64_000, 8192) if is_real() else (64, 16)
    ((complete, rows),) = ranks.values(tmp_path, 1, copy_beside_work, *sizes)
    assert complete
    hidden_ns, exposed_ns = (median(row[name] for row in rows[1:]) for name in ("h2d_hidden_ns", "h2d_exposed_ns"))
    figures.add("h2d_hidden_ms", hidden_ns / 1e6, least=0.05)
    figures.add("h2d_exposed_share_percent", 100 * exposed_ns / max(1, hidden_ns + exposed_ns), most=10.0)
