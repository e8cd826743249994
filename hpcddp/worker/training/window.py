"""The steps of a run, in stretches between pauses, until the stop rule ends them; and the garbage collector meanwhile."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator, Iterator, Sequence
from typing import Literal, Protocol

from hpcddp.core.attempt_records import MeasuringProtocol
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.training.preemption import Action, PolledSteps
from hpcddp.worker.training.stop_rule import More, more_for_interval, more_for_seconds, steady_state


@contextlib.contextmanager
def collecting(policy: Literal["python", "frozen", "off"]) -> Iterator[None]:
    """`python`: as Python does; `frozen`: without the objects there are now; `off`: not at all. Restored afterwards."""
    if policy == "python":
        yield
        return
    was_enabled = gc.isenabled()
    gc.collect()
    if policy == "frozen":
        gc.freeze()
    else:
        gc.disable()
    try:
        yield
    finally:
        if policy == "frozen":
            gc.unfreeze()
        elif was_enabled:
            gc.enable()


class WritesCheckpoints(Protocol):
    """What the window needs of whoever writes a run's checkpoints."""

    @property
    def first_step(self) -> int:
        """The run's step with which the attempt begins."""
        ...

    def poll(self, steps: int) -> Action: ...

    def write(self, steps: int, *, last: bool) -> None: ...


class StepWindow:
    """`times_ns` grows as the attempt goes: the total of every step of it that a pause has waited for. Steps count from the run's
    first; where the attempt resumes the run at a later one, the warm-up begins there again."""

    def __init__(
        self,
        point: Point,
        plan: EpochPlan,
        times_ns: Sequence[int],
        group: ProcessGroup,
        checkpointer: WritesCheckpoints | None = None,
    ) -> None:
        self._measure = point.measure
        self._rule: str = point.work if point.work in ("epoch", "train") else point.measure.stop
        self._plan = plan
        self._planned = point.measure.warmup_steps + timed_steps(point, plan)
        self._times_ns = times_ns
        self._group = group
        self._checkpointer = checkpointer
        self._pauses: list[int] = []
        self._stopped_by: str = self._rule
        self.first_step = checkpointer.first_step if checkpointer else 0
        self.timed_from = min(self.first_step + point.measure.warmup_steps, self._planned)
        self.steps = self.timed_from
        """Planned so far, warm-up included."""
        self.interrupted = False
        """Told to stop: a later attempt makes the steps that are left."""
        self._ended = False

    def end(self, steps: int, reason: str) -> None:
        """The run ends after so many steps, those of the stretch that was yielded last, before all planned ones are made."""
        self.steps, self._stopped_by, self._ended = steps, reason, True

    def pause(self, steps: int) -> None:
        """The caller pauses after so many steps, within the stretch that was yielded last."""
        if self._pauses[-1:] != [steps]:  # an evaluation, and then a checkpoint
            self._pauses.append(steps)

    def interrupt(self, steps: int) -> None:
        """The attempt ends after so many steps, those of the stretch that was yielded last, with a checkpoint."""
        self.steps, self.interrupted = steps, True
        if self._checkpointer:
            self._checkpointer.write(steps, last=True)

    def stretches(self) -> Generator[range | PolledSteps, None, None]:
        """Steps with no pause among them; what the caller does between two stretches is not timed.

        The pause between warm-up and timed steps comes before the last warm-up step, so that the device's queue is full again
        when timing begins. With `work: train` a stretch ends with each epoch.
        """
        begin = max(self.first_step, self.timed_from - 1)
        if begin > self.first_step:
            yield from self._cut_at_epochs(range(self.first_step, begin))
        with collecting(self._measure.gc):
            while not self.interrupted and (more := self._more(begin)):
                self.steps = begin + more
                if begin > self.first_step:
                    self._pauses.append(begin)
                yield from self._cut(range(begin, self.steps))
                begin = self.steps

    def record(self) -> MeasuringProtocol:
        measure, first = self._measure, self.first_step
        grows_at = self._plan.grows_after(first)  # steps of another batch are another length
        of_one_batch = self._times_ns[: None if grows_at is None else grows_at - first]
        left_out = set() if self._rule == "train" else {step - first for step in self._pauses}
        steady = steady_state(measure, of_one_batch, left_out)
        found = steady.interval
        return MeasuringProtocol(
            input=measure.input,
            gc=measure.gc,
            warmup=measure.warmup,
            warmup_steps=measure.warmup_steps,
            warmup_detected_steps=steady.detected_steps,
            steady_from_step=first + steady.from_step,
            stop=measure.stop,
            stopped_by="interruption" if self.interrupted else self._stopped_by,
            timed_steps=max(0, self.steps - self.timed_from),
            pauses=tuple(self._pauses),
            interval_of="mean",
            interval_percent=found.half_percent if found else None,
            effective_steps=found.effective_steps if found else None,
        )

    def _cut_at_epochs(self, steps: range) -> Iterator[range | PolledSteps]:
        """With `work: train`: more than one stretch where an epoch ends among the steps."""
        while steps and not self.interrupted and not self._ended:
            stretch = range(steps.start, self._epoch_end(steps))
            yield from self._cut(stretch)
            steps = range(stretch.stop, steps.stop)

    def _epoch_end(self, steps: range) -> int:
        if self._rule != "train":
            return steps.stop
        return min(steps.stop, self._plan.first_step(self._plan.epoch_at(steps.start)[0] + 1))

    def _cut(self, steps: range) -> Iterator[range | PolledSteps]:
        """In one piece, or ended where a checkpoint is due, which is written before the rest is yielded."""
        checkpointer = self._checkpointer
        if checkpointer is None:
            yield steps
            return
        while steps and not self.interrupted:
            yield (polled := PolledSteps(steps, checkpointer.poll))
            steps = range(polled.stop, steps.stop)
            if steps:
                if polled.action == "stop":
                    self.interrupt(polled.stop)
                else:
                    checkpointer.write(polled.stop, last=False)
                    self._pauses.append(polled.stop)

    def _more(self, begin: int) -> int:
        """How many steps follow from `begin` on before the next pause; 0: no more."""
        if self._ended:
            return 0
        if self._rule in {"steps", "epoch", "train"}:
            return self._epoch_end(range(begin, self._planned)) - begin
        decided = self._decide() if self._group.rank.rank == 0 else None
        more = More(*self._group.share(f"steps after {self.steps}", decided))
        self._stopped_by = more.stopped_by
        return self.steps - begin + more.steps if more.steps else 0

    def _decide(self) -> More:
        """By rank 0's own steps: their sum is its window, and no rank's differs from it by a step. The maximum over ranks of each
        step would count as time where ranks only end it a little earlier or later."""
        if self._rule == "seconds":
            return more_for_seconds(self._measure, self._times_ns)
        return more_for_interval(self._measure, self._times_ns, set(self._pauses))


def timed_steps(point: Point, plan: EpochPlan) -> int:
    """How many are planned after the warm-up; of whole epochs theirs less it, and of one where accuracy may end the run."""
    warmup, epochs = point.measure.warmup_steps, point.measure.epochs or 1
    if point.work not in ("epoch", "train"):
        return point.measure.steps
    shortest = 1 if point.measure.target_accuracy is not None else epochs
    if plan.first_step(shortest) <= warmup:
        name = "an epoch has" if shortest == 1 else f"{shortest} epochs have"
        raise HpcddpError(
            f"{name} {plan.first_step(shortest)} steps of {point.global_batch} samples, but measure.warmup_steps is {warmup}. "
            f"Lower measure.warmup_steps, or use smaller batches or more data."
        )
    if point.work == "train" and point.measure.resume and plan.steps_of(epochs - 1) == 1:
        raise HpcddpError(
            f"An epoch is a single step of {plan.batch_of(epochs - 1)} samples, but measure.resume needs at least two. "
            f"Set measure.resume to false, or use smaller batches or more data."
        )
    return plan.first_step(epochs) - warmup
