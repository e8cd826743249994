"""Which steps of a script count, and what of them, on a clock that is set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hpcddp.core.records import AFTER_PAUSE, STEP_COLUMNS, WARMUP
from hpcddp.probe.step_sequence import StepSequence
from hpcddp.worker.timing.clock import EventClock
from hpcddp.worker.timing.steptimer import StepTimer
from tests.worker.test_steptimer import Stream, cell, rows


def script_run(steps: int, warmup: int) -> Any:
    """A run of so many steps in one stretch, behind the first step that counts nowhere."""
    return SimpleNamespace(
        steps=0,
        window=SimpleNamespace(timed_from=warmup, interrupted=False),
        profiled=None,
        log=SimpleNamespace(write_finished=lambda: None),
        pause=lambda: None,
        stretches=lambda: iter([range(steps)]),
    )


def test_the_first_step_counts_nowhere_and_the_warm_up_is_flagged() -> None:
    """All are made when the planned ones are."""
    timer = StepTimer(EventClock(Stream().event))
    sequence = StepSequence(timer, lambda: script_run(3, warmup=2))
    assert [sequence.close(8) for _ in range(4)] == [False, False, False, True]
    flags, samples = (STEP_COLUMNS.index(name) for name in ("flags", "samples"))
    assert [(row[flags], row[samples]) for row in rows(timer.drain())] == [(WARMUP | AFTER_PAUSE, 8), (WARMUP, 8), (0, 8)]


def test_an_evaluation_among_accumulated_batches_is_of_no_step() -> None:
    """The parts before and behind it are of one step."""
    stream = Stream()
    timer = StepTimer(EventClock(stream.event))
    sequence = StepSequence(timer, lambda: script_run(2, warmup=0))
    sequence.close(8)
    stream.enqueue(1.0)
    timer.mark("backward")
    stream.enqueue(40.0)
    sequence.pause()
    stream.enqueue(2.0)
    timer.mark("backward")
    sequence.close(8)
    (row,) = rows(timer.drain())
    assert (cell(row, "backward_ns"), cell(row, "other_ns"), cell(row, "total_ns")) == (3_000_000, 0, 3_000_000)
