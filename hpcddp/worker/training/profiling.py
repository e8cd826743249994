"""`measure.profile_steps`: further steps after the timed ones, under torch.profiler, for Perfetto or HTA to show."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.feeds import Feed
from hpcddp.worker.training.train import Work


def profile_steps(steps: int, work: Work, feed: Feed, timer: StepTimer, trace: Path | None) -> None:
    """`steps` whole steps, and one before them in which the profiler warms up; they leave no rows. Every rank runs under the
    profiler, so that it slows all alike; those that are given a `trace` keep what it saw."""
    with step_profiler(steps, partial(export_trace, trace=trace) if trace else None) as profiler:
        for _ in range(1 + steps):
            work(feed.next(timer), timer.mark)
            timer.close_step(0)
            profiler.step()
    for _ in timer.drain():
        pass


def step_profiler(steps: int, on_trace_ready: Callable[[profile], object] | None) -> profile:
    """Of so many steps, and of one before them in which it warms up."""
    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    on = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    return profile(activities=on, schedule=schedule(wait=0, warmup=1, active=steps, repeat=1), on_trace_ready=on_trace_ready)


def export_trace(profiler: profile, trace: Path) -> None:
    """Written aside: nobody sees half of it."""
    aside = trace.with_name(f".{trace.name}")
    profiler.export_chrome_trace(str(aside))
    aside.replace(trace)
