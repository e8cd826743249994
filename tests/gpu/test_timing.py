"""Steps timed by events in the compute stream."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from hpcddp.point import Point
from hpcddp.records import PARTS, STEP_COLUMNS
from hpcddp.worker.ranks import this_rank
from hpcddp.worker.rendezvous import join
from hpcddp.worker.timing.clock import EventClock, clock_for
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import first_batch
from hpcddp.worker.training.learner import make_learner
from tests.gpu import ranks
from tests.gpu.marks import touches
from tests.gpu.results import Figures
from tests.worker import given

CLOSURE_PERCENT = 1.0
"""What a step's parts may leave of its total, and the steps of the wall clock."""

DRIFT_PPM = 500.0
"""Between a GPU's clock and the host's; a crystal is within 100."""


@touches(
    "hpcddp/worker/timing/clock.py",
    "hpcddp/worker/training/train.py",
    stand_in="events are the host's clock, so that the closure is exact",
)
def test_parts_fill_the_step(tmp_path: Path, figures: Figures) -> None:
    """On every rank no part is negative, and what all parts leave of a step is below 1 % of it."""
    attempt = ranks.run_point(tmp_path, ranks.gpu_point())
    attempt.check_done()
    assert attempt.launch["clock"] == "compute stream events"
    left_percent = []
    for rank in range(len(attempt.outcomes)):
        for row in attempt.timed_steps(rank):
            parts = [row[f"{part}_ns"] for part in PARTS]
            assert min(part for part in parts if part is not None) >= 0
            total_ns = row["total_ns"] or 0
            left_percent.append(100 * abs(total_ns - sum(part or 0 for part in parts)) / total_ns)
    figures.add("closure_worst_percent", max(left_percent), most=CLOSURE_PERCENT)


def timed_window(point: Point) -> dict[str, float]:
    """Steps of one rank: their totals summed, against the host's clock around them with the GPU idle before and after."""
    import torch

    meeting = join(this_rank("local"), "cuda")
    source = given.cifar(512) if point.workload.model == "resnet18" else given.mnist(512)
    learner, batch = make_learner(point.workload, source, meeting.device, meeting.rank.rank), first_batch(point, source, meeting)
    clock = clock_for("cuda")
    assert isinstance(clock, EventClock)
    timer: StepTimer[Any] = StepTimer(clock)
    for warm_up in (True, False):
        timer.restart()
        torch.cuda.synchronize(meeting.device)
        begin_s = time.perf_counter()
        for _ in range(point.measure.warmup_steps if warm_up else point.measure.steps):
            learner.step(batch, timer.mark)
            timer.close_step(0)
        rows = [dict(zip(STEP_COLUMNS, step.row, strict=True)) for step in timer.drain()]
        torch.cuda.synchronize(meeting.device)
        wall_s = time.perf_counter() - begin_s
    behind_s = (timer.unix_now()() - time.time_ns()) / 1e9
    steps_s = sum(row["total_ns"] or 0 for row in rows) / 1e9
    meeting.leave()
    return {"wall_s": wall_s, "steps_s": steps_s, "behind_s": behind_s}


@touches(
    "hpcddp/worker/timing/clock.py",
    "hpcddp/worker/training/learner.py",
    "hpcddp/worker/rendezvous.py",
    stand_in="events are the host's clock, so that it keeps pace with itself",
)
def test_steps_add_up_to_the_wall_clock(tmp_path: Path, figures: Figures) -> None:
    """The totals of a window's steps are the time that passed from its idle beginning to its idle end, within 1 %."""
    point = ranks.gpu_point(steps=ranks.steps(200, 10))
    for found in ranks.values(tmp_path, point.ranks, timed_window, point):
        figures.add("window_off_percent", 100 * (found["steps_s"] / found["wall_s"] - 1), least=-1.0, most=CLOSURE_PERCENT)
        figures.add("window_s", found["wall_s"])
        figures.add("clock_behind_ms", 1e3 * found["behind_s"], least=-1e3, most=1e3)


@touches("hpcddp/worker/timing/clock.py", stand_in="events are the host's clock, so that there is no drift")
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
