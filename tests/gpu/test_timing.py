"""Steps timed by events in the compute stream; batches copied on a stream of their own, and data sets that lie on the GPU."""

from __future__ import annotations

import csv
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcddp.core.point import Data, Point
from hpcddp.core.records import PARTS, STEP_COLUMNS, steps_file
from hpcddp.data import Batch, TrainLoader
from hpcddp.data.in_memory import CroppedSource
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import StepTimer, loss_reader_for
from hpcddp.worker.training.feeds import CopyAheadFeed, first_batch
from hpcddp.worker.training.trainer import make_trainer
from tests.data.files import write_cifar
from tests.data.test_in_memory import check_batches, check_crops
from tests.gpu import ranks
from tests.gpu.device import Figures, is_real, touches
from tests.worker import given

CLOSURE_PERCENT = 1.0
"""What a step's parts may leave of its total, and the steps of the wall clock."""

DRIFT_PPM = 500.0
"""Between a GPU's clock and the host's; a crystal is within 100."""


@touches(
    "worker/timing/clock.py", "worker/training/train.py", stand_in="events are the host's clock, so that the closure is exact"
)
def test_parts_fill_the_step(recorded_run: ranks.Attempt, figures: Figures) -> None:
    attempt = recorded_run
    assert attempt.launch["clock"] == "compute stream events"
    left_percent = []
    for rank in range(len(attempt.outcomes)):
        for row in attempt.timed_steps(rank):
            parts = [row[f"{part}_ns"] for part in PARTS]
            assert min(part for part in parts if part is not None) >= 0
            total_ns = row["total_ns"] or 0
            left_percent.append(100 * abs(total_ns - sum(part or 0 for part in parts)) / total_ns)
    figures.add("closure_worst_percent", max(left_percent), most=CLOSURE_PERCENT)


def timed_window(point: Point, folder: Path) -> dict[str, Any]:
    """Steps of one rank: their totals summed, against the host's clock around them with the GPU idle before and after.

    torch raises where anything in a step makes the host wait for the GPU.
    """
    group = join(this_rank("local"), "cuda")
    source = given.cifar(512) if point.workload.model == "resnet18" else given.mnist(512)
    trainer, batch = make_trainer(point.workload, source, group.device, group.rank.rank), first_batch(point, source, group)
    timer: StepTimer = StepTimer(clock_for("cuda"), losses=loss_reader_for("cuda"))
    with StepLog(timer, folder, group.rank.rank, buckets=False) as log:
        for count in (point.measure.warmup_steps, point.measure.steps):
            losses, written = list[torch.Tensor](), len(log.times_ns)
            timer.restart()
            torch.cuda.synchronize(group.device)
            begin_s = time.perf_counter()
            torch.cuda.set_sync_debug_mode("error")
            for _ in range(count):
                losses.append(trainer.step(batch, timer.mark))
                log.write_finished()
                timer.mark("record")
                timer.loss(losses[-1])
                timer.close_step(0)
            torch.cuda.set_sync_debug_mode("default")
            log.pause()
            torch.cuda.synchronize(group.device)
            wall_s = time.perf_counter() - begin_s
        behind_s = (timer.unix_now()() - time.time_ns()) / 1e9
    group.leave()
    return {
        "wall_s": wall_s,
        "steps_s": sum(log.times_ns[written:]) / 1e9,
        "behind_s": behind_s,
        "losses_e9": [round(loss.item() * 1e9) for loss in losses],
    }


@touches(
    "worker/timing/clock.py",
    "worker/training/trainer.py",
    "worker/timing/steptimer.py",
    "worker/timing/steplog.py",
    "worker/rendezvous.py",
    stand_in="events are the host's clock, which keeps pace with itself; nothing is there to be waited for",
)
def test_steps_add_up_to_the_wall_clock(tmp_path: Path, figures: Figures) -> None:
    """The totals of a window's steps are the time that passed from its idle beginning to its idle end, within 1 %.

    No step waits for the GPU, and yet each row has its own step's loss.
    """
    point = ranks.gpu_point(steps=ranks.steps(200, 10))
    for rank, found in enumerate(ranks.values(tmp_path, point.ranks, timed_window, point, tmp_path)):
        with steps_file(tmp_path, rank).open(newline="") as lines:
            recorded = [int(row["loss_e9"]) for row in csv.DictReader(lines)]
        assert recorded[-point.measure.steps :] == found["losses_e9"]
        figures.add("window_off_percent", 100 * (found["steps_s"] / found["wall_s"] - 1), least=-1.0, most=CLOSURE_PERCENT)
        figures.add("window_s", found["wall_s"])
        figures.add("clock_behind_ms", 1e3 * found["behind_s"], least=-1e3, most=1e3)


@touches("worker/timing/clock.py", stand_in="events are the host's clock, so that there is no drift")
def test_events_keep_pace_with_unix_time(tmp_path: Path, figures: Figures) -> None:
    """Between two anchors some seconds apart, events and Unix time differ by no more than crystals do."""
    drifts_ppm = ranks.values(tmp_path, 1, drift_ppm, ranks.steps(5, 1))
    figures.add("drift_ppm", statistics.median(drifts_ppm), least=-DRIFT_PPM, most=DRIFT_PPM)


def drift_ppm(seconds: float) -> float:
    clock = clock_for("cuda")
    earlier, earlier_ns = clock.anchor()
    time.sleep(seconds)
    later, later_ns = clock.anchor()
    passed_ns = clock.between_ns(earlier, later)
    return 1e6 * (passed_ns / (later_ns - earlier_ns) - 1)


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
    hidden_ns, exposed_ns = (statistics.median(row[name] for row in rows[1:]) for name in ("h2d_hidden_ns", "h2d_exposed_ns"))
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
