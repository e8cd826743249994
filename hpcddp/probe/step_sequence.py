"""The steps of a measurement, whoever makes them: a first one that counts nowhere, warm-up, timed ones, profiled ones."""

from __future__ import annotations

from collections.abc import Callable, Generator

from hpcddp.core.records import AFTER_PAUSE, WARMUP
from hpcddp.probe.profiled_window import ProfiledWindow
from hpcddp.probe.script_run import ScriptRun
from hpcddp.worker.timing.steptimer import StepTimer


class StepSequence:
    """`begin` makes the run's records when the first step has shown what they must say."""

    def __init__(self, timer: StepTimer, begin: Callable[[], ScriptRun]) -> None:
        self._timer = timer
        self._begin = begin
        self._planned: Generator[int, None, None] | None = None
        self._paused = True
        """The open step is the first after a pause."""
        self._profiled: ProfiledWindow | None = None
        """Once all steps that count are made, where some more are profiled."""
        self.run: ScriptRun | None = None

    def close(self, samples: int) -> bool:
        """The open step is over, of so many samples; whether all are made."""
        if self._profiled:
            self._close(0)
            return self._profiled.end_step()
        if self.run is None:
            self._close(0)
            list(self._timer.drain())  # what it was is known now, and it counts nowhere
            self.run = self._begin()
            self._planned = self._steps(self.run)
        else:
            self.run.log.write_finished()
            warmup = WARMUP if self.run.steps < self.run.window.timed_from else 0
            self._close((AFTER_PAUSE if self._paused else 0) | warmup, samples)
            self._paused = False
            self.run.steps += 1
        over = self._planned is None or next(self._planned, None) is None
        return over and not self._begin_profile()

    def _begin_profile(self) -> bool:
        """Whether further steps are to be made."""
        if self.run and self.run.profiled and not self.run.window.interrupted:
            self._profiled = self.run.profiled
            self._profiled.begin()
        return self._profiled is not None

    def _steps(self, run: ScriptRun) -> Generator[int, None, None]:
        """Each as it is opened; in a pause before it the device's queue is drained, as in hpcddp's own loop."""
        for stretch in run.stretches():
            self._paused = True
            yield from stretch

    def pause(self) -> None:
        """What passed since the last mark is of no step: an evaluation, a checkpoint."""
        self.halt()
        self._timer.resume()

    def halt(self) -> None:
        """A pause begins; what is marked of the open step stays in it."""
        if self.run and not self._profiled:
            self.run.pause()
            self._paused = True

    def end(self) -> None:
        """No further step is begun."""
        if self._planned:
            self._planned.close()
        if self._profiled:
            self._profiled.abort()

    def _close(self, flags: int, samples: int | None = None) -> None:
        self._timer.mark("record")
        self._timer.close_step(flags, samples)
