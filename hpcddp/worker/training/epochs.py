"""What is done as an epoch of `work: train` ends, outside all timings: losses summed up, evaluation, rank 0's row, the target."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from hpcddp.core.attempt_records import EvaluationResult
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.point import Point
from hpcddp.core.records import EPOCH_COLUMNS, RowWriter, epochs_file
from hpcddp.core.stop_signal import stop_requested
from hpcddp.data import Source
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.timing.steplog import StepLog
from hpcddp.worker.timing.steptimer import loss_cell
from hpcddp.worker.training.evaluate import Evaluation, EvaluationCut, evaluate
from hpcddp.worker.training.trainer import Trainer

Row = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class EpochEnd:
    """An epoch that has ended, in the units of people; `steps` to `elapsed_ns` are of the run so far."""

    epoch: int
    """1 for the first."""
    steps: int
    samples: int
    train_ns: int
    elapsed_ns: int
    lr: float
    """Of the epoch's last step, as is the batch."""
    global_batch: int
    train_loss: float | None
    evaluation: EvaluationResult | None
    """None where the epoch was not evaluated."""


class EpochLog:
    """Rank 0's file. `earlier`: rows of the epochs before this attempt, which come first."""

    def __init__(self, attempt: Path, earlier: Iterable[Row] = ()) -> None:
        self._writer = RowWriter(epochs_file(attempt), EPOCH_COLUMNS)
        self.rows: list[Row] = []
        """All of them so far, for the next checkpoint."""
        for row in earlier:
            self._write(tuple(row))
        self._writer.flush()

    def write(self, end: EpochEnd) -> None:
        """One row, handed to the operating system at once."""
        found = end.evaluation or EvaluationResult()
        self._write(
            (
                *(end.epoch, end.steps, end.samples, end.train_ns, end.elapsed_ns, round(end.lr * 1e12), end.global_batch),
                *(loss_cell(end.train_loss), found.correct, found.samples, loss_cell(found.loss)),
            )
        )
        self._writer.flush()

    def counts(self) -> tuple[int, int]:
        return self._writer.rows, self._writer.crc32

    def close(self) -> None:
        """No further epoch ends."""
        self._writer.__exit__(None, None, None)

    def _write(self, row: Row) -> None:
        self._writer.row(row)
        self.rows.append(row)


@dataclass(frozen=True)
class TrainingParts:
    """What an epoch's end works with."""

    point: Point
    trainer: Trainer
    log: StepLog
    group: ProcessGroup
    evaluated: Source


class EpochRecorder:
    """Of one rank; all ranks call `close` after the same steps. `earlier`: the `state` that the run goes on from."""

    def __init__(self, parts: TrainingParts, plan: EpochPlan, attempt: Path, earlier: Mapping[str, Any] | None) -> None:
        self._parts = parts
        self._plan = plan
        first = parts.group.rank.rank == 0
        before = earlier if earlier and first else {}
        self._log = EpochLog(attempt, before.get("rows", ())) if first else None
        self._train_ns_before: int = before.get("train_ns", 0)
        self._elapsed_ns_before: int = before.get("elapsed_ns", 0)
        parts.log.loss_sum = before.get("loss_sum", 0.0)
        self._began_ns = time.monotonic_ns()
        self._evaluations: list[Evaluation] = []
        """On rank 0."""
        self._epochs_before = len(earlier["rows"]) if earlier else 0
        self.target_reached = False
        self.interrupted = False
        """Told to stop while an epoch was evaluated: a later attempt begins with that."""

    def begin(self, first_step: int) -> None:
        """The attempt's first step is about to begin; an epoch whose evaluation was cut by a stop signal ends here."""
        self._began_ns = time.monotonic_ns()
        if first_step > self._plan.first_step(self._epochs_before):
            self._close(first_step)

    def close(self, steps: int) -> None:
        """After so many steps of the run, all drained; does nothing where no epoch ends."""
        resumes = self._parts.point.measure.resume
        try:
            self._close(steps, stop_requested if resumes else None)
        except EvaluationCut:
            self.interrupted = True

    def _close(self, steps: int, stops: Callable[[], bool] | None = None) -> None:
        epoch, more = self._plan.epoch_at(steps)
        if more:
            return
        parts = self._parts
        evaluation = self._evaluate(epoch, stops) if self._is_due(epoch) else None
        losses = parts.group.gather(f"losses of epoch {epoch}", parts.log.loss_sum)
        parts.log.loss_sum = 0.0
        if self._log:
            self._log.write(self._end(epoch, steps, sum(losses), evaluation))
        reached = evaluation is not None and reaches(evaluation, parts.point.measure.target_accuracy)
        self.target_reached = parts.group.share(f"target after epoch {epoch}", reached)

    def state(self, loss_sums: Sequence[float]) -> dict[str, Any]:
        """On rank 0, for a checkpoint between two epochs' ends; `loss_sums`: of each rank, its steps since the last of them."""
        return {
            "rows": self._log.rows if self._log else [],
            "train_ns": self._train_ns(),
            "elapsed_ns": self._elapsed_ns(),
            "loss_sum": sum(loss_sums),
        }

    @property
    def loss_sum(self) -> float:
        """Of this rank's steps since the last epoch's end."""
        return self._parts.log.loss_sum

    def evaluation(self) -> Evaluation | None:
        """The last one, on rank 0, with the gate of the first that was not exact; None where there was none."""
        if not self._evaluations:
            return None
        failed = [gate for _, gate in self._evaluations if not gate.passed]
        result, gate = self._evaluations[-1]
        return result, failed[0] if failed else gate

    def finish(self) -> tuple[int, int] | None:
        """Closes the file; on rank 0 how many rows it has, and its checksum."""
        if self._log is None:
            return None
        self._log.close()
        return self._log.counts()

    def _is_due(self, epoch: int) -> bool:
        measure = self._parts.point.measure
        every = measure.evaluate_every
        return epoch == measure.epochs or (every > 0 and epoch % every == 0)

    def _evaluate(self, epoch: int, stops: Callable[[], bool] | None) -> EvaluationResult | None:
        parts, key = self._parts, f"evaluation {epoch}"
        with parts.trainer.evaluated():
            found = evaluate(parts.point.workload, parts.evaluated, parts.trainer, parts.group, key, stops=stops)
        parts.trainer.model.train()
        if found is None:
            return None
        self._evaluations.append(found)
        return found[0]

    def _end(self, epoch: int, steps: int, loss_sum: float, evaluation: EvaluationResult | None) -> EpochEnd:
        parts = self._parts
        return EpochEnd(
            epoch=epoch,
            steps=steps,
            samples=self._plan.samples_before(steps),
            train_ns=self._train_ns(),
            elapsed_ns=self._elapsed_ns(),
            lr=parts.trainer.optimizer.param_groups[0]["lr"],
            global_batch=self._plan.batch_of(epoch - 1),
            train_loss=loss_sum / (self._plan.steps_of(epoch - 1) * parts.group.rank.world),
            evaluation=evaluation,
        )

    def _train_ns(self) -> int:
        return self._train_ns_before + sum(self._parts.log.times_ns)

    def _elapsed_ns(self) -> int:
        return self._elapsed_ns_before + time.monotonic_ns() - self._began_ns


def reaches(found: EvaluationResult, target: float | None) -> bool:
    """Whether as many are right as `target` asks for, which is the decimal fraction that its author wrote; never without one."""
    if target is None or not found.samples:
        return False
    return Fraction(found.correct or 0, found.samples) >= Fraction(str(target))
