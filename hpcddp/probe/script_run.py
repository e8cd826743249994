"""The records of one measured run of a script: where they lie, what stands in them, and what checks them."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from hpcddp.core.attempt_records import ClockOffset, Fault, ProfiledExchange, RankClock
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import BackendName
from hpcddp.core.jobspec import JobSpec, expanded
from hpcddp.core.point import Point
from hpcddp.core.records import error_file, write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.study_files import describe_point
from hpcddp.core.text import count
from hpcddp.probe.checkpoints import ScriptCheckpoints
from hpcddp.probe.profiled_window import window_of
from hpcddp.worker.attempt_records import RunFacts, record_end, record_training_launch
from hpcddp.worker.checksums import checksum
from hpcddp.worker.comm.transport import record_transport
from hpcddp.worker.faults import own_words
from hpcddp.worker.finish import error_record, reserve, write_failure
from hpcddp.worker.node_share import node_share
from hpcddp.worker.rank_result import RankResult
from hpcddp.worker.rendezvous import ProcessGroup
from hpcddp.worker.script_job import Measured, ScriptJob
from hpcddp.worker.telemetry.reader_process import finish_telemetry, start_reader
from hpcddp.worker.timing.clock_offsets import offset_to_rank_0
from hpcddp.worker.timing.steplog import StepLog, first_break
from hpcddp.worker.timing.steptimer import StepTimer
from hpcddp.worker.training.preemption import PolledSteps
from hpcddp.worker.training.train import peak_memory_bytes
from hpcddp.worker.training.window import StepWindow

ENOUGH_STEPS = 0.9
"""Share of the measured steps: a loss scaler skips a few."""

ADHOC = "adhoc"
"""The study of what no sweep has."""


@dataclass(frozen=True)
class RunPlace:
    """Which run it is, and where its records go."""

    spec: JobSpec
    attempt: Path
    job: ScriptJob | None = None
    """That the script is run by; None where it was started by itself."""


def place_in_job(job: ScriptJob, point: Point) -> RunPlace:
    """The job's run, of its point as it was completed."""
    return RunPlace(replace(job.spec, point=point), job.attempt, job)


def adhoc_place(point: Point, group: ProcessGroup) -> RunPlace:
    """Another run of the point, in the study of what no sweep has; all ranks call it."""
    folder = Path(expanded(os.environ.get("HPCDDP_RUNS") or "jobs", "HPCDDP_RUNS")).absolute() / ADHOC
    run = group.share("run", _next_run(Study(folder), point) if group.rank.rank == 0 else None)
    backend: BackendName = "slurm" if os.environ.get("SLURM_JOB_ID") else "local"
    spec = JobSpec(point=point, run=run, study=str(folder), backend=backend)
    attempt = spec.attempt_dir(group.rank.job, group.rank.restart)
    if group.rank.rank == 0:
        reserve(attempt)
    return RunPlace(spec, attempt)


class ScriptRun:
    """Of one rank; all ranks make it, and call its methods, after the same steps."""

    def __init__(  # noqa: PLR0913 - which run, and what it is made of
        self,
        place: RunPlace,
        group: ProcessGroup,
        model: nn.Module,
        timer: StepTimer,
        samples: int,
        *,
        checkpoints: ScriptCheckpoints | None = None,
        hooked: bool,
    ) -> None:
        """`hooked`: DDP's buckets are timed."""
        self._checkpoints = checkpoints
        self._group, self._model, self._timer = group, model, timer
        self._spec, self._attempt, self._job = place.spec, place.attempt, place.job
        point = place.spec.point
        self._reader = start_reader(point, group.rank, self._attempt)
        description = self._reader.description if self._reader else None
        resumed = checkpoints.record if checkpoints else None
        record_training_launch(self._spec, group, self._attempt, samples=samples, telemetry=description, resumed=resumed)
        record_transport(group, self._attempt)
        self.log = StepLog(timer, self._attempt, group.rank.rank, buckets=hooked)
        self.window = StepWindow(point, EpochPlan(point.global_batch, point.global_batch), self.log.times_ns, group, checkpoints)
        self.steps = self.window.first_step
        """Of the run, made so far."""
        self.profiled = window_of(point, group.rank.rank, timer, self._attempt)
        self._exchange: ProfiledExchange | None = None
        self._checksums: dict[str, str] = {}
        self._clock_at_start: ClockOffset | None = None

    def stretches(self) -> Iterator[range | PolledSteps]:
        """The steps of the run, with a pause after each stretch of them."""
        self._clock_at_start = offset_to_rank_0(self._group, self._timer.unix_now(), "start")
        self._note_parameters("at the start")
        if self._group.watchdog:
            self._group.watchdog.watch_steps(self._timer, self._reader.pid if self._reader else None)
        with contextlib.closing(self.window.stretches()) as stretches:
            for stretch in stretches:
                self._timer.restart()
                yield stretch
                self.log.pause()

    def pause(self) -> None:
        """Between two steps of a stretch, for what is of no step."""
        self.log.pause()
        self.window.pause(self.steps)

    def finish(
        self, optimizer_steps: int, *, tokens_per_step: int | None, flops_per_sample: int | None, samples: tuple[int, int] | None
    ) -> None:
        """All records, and on rank 0 a line on where they are. `samples`: least and most of a step, where batches show them."""
        measure = self._spec.point.measure
        needed = max(self.window.steps, measure.warmup_steps + (measure.steps if measure.stop == "steps" else 1))
        made = f"the loop ended after {count(self.steps + 1, 'step')}"
        words = f"{made}; it needs {needed} after the untimed first one, {measure.warmup_steps} of them warm-up"
        self._end_steps()
        self._exchange = self.profiled.exchange() if self.profiled else None
        self.log.pause()
        with self.log:
            pass
        if self._job and self.steps < self.window.steps:
            self._stop_reader()
            raise HpcddpError(f"{words}. Train more epochs in the script, each with steps(loader), or lower measure.steps.")
        if self.steps < self.window.steps:
            self.window.end(self.steps, "the loop")
        if self.steps <= self.window.timed_from and not self.window.interrupted:
            self._fail(self._fault(f"{words}: nothing was timed. {MORE}"))
            return
        self._note_parameters("at the end")
        result = self._result(samples)
        steady_from = result.protocol.steady_from_step
        telemetry = finish_telemetry(self._reader, self._spec.point, self._group, self._attempt, steady_from)
        facts = RunFacts(
            early_gates=(),
            evaluation=None,
            compile_s=None,
            comm_check=None,
            telemetry=telemetry,
            flops_per_sample=flops_per_sample,
            history=self._checkpoints.history(self.steps) if self._checkpoints else (),
            epoch_rows=None,
            epoch_crc32=None,
            tokens_per_step=tokens_per_step,
        )
        passed = record_end(self._spec, self._group, self._attempt, result, facts)
        if self._job:
            self._job.measured = Measured(steps=self.steps, gates_passed=passed)
        if self._group.rank.rank == 0 and not self.window.interrupted:
            self._say(passed, optimizer_steps)

    def fail(self, error: BaseException) -> None:
        """The loop raised: the run does not count, and says why; in a job its worker does that."""
        rank = self._group.rank
        self._end_steps()
        if self._job:
            self.log.__exit__(type(error), error, None)
            self._stop_reader()
            return
        fault = self._fault(f"rank {rank.rank} on {rank.host}: {type(error).__name__}: {own_words(error)}")
        write_json(error_file(self._attempt, rank.rank), encode(error_record(rank, error, fault)))
        self.log.__exit__(type(error), error, None)
        self._fail(fault)

    def _end_steps(self) -> None:
        """Outside of them a rank may take as long as it likes."""
        if self._group.watchdog:
            self._group.watchdog.watch_steps(None)

    def _stop_reader(self) -> None:
        if self._reader:
            self._reader.stop()

    def _fault(self, sentence: str) -> Fault:
        rank = self._group.rank
        return Fault(kind="error", rank=rank.rank, host=rank.host, sentence=sentence)

    def _fail(self, fault: Fault) -> None:
        self._stop_reader()
        if self._group.rank.rank == 0:
            write_failure(self._attempt, fault)
            print(f"hpcddp: {fault.sentence}", file=sys.stderr, flush=True)

    def _result(self, samples: tuple[int, int] | None) -> RankResult:
        rank, log = self._group.rank, self.log
        clock_at_end = offset_to_rank_0(self._group, self._timer.unix_now(), "end")
        return RankResult(
            first_step=self.window.first_step,
            steps=self.steps,
            interrupted=self.window.interrupted,
            **log.counts(),
            reads=None,
            sharded_ns=None,
            loss_first=_finite(log.loss_first),
            loss_last=_finite(log.loss_last),
            finite=log.not_finite is None,
            checksums=self._checksums,
            epochs=1,
            repeated_epoch=None,
            protocol=self.window.record(),
            peak_memory_bytes=peak_memory_bytes(self._group.device),
            rank=rank.rank,
            host=rank.host,
            reason=self._checkpoints.why_interrupted(self.steps) if self._checkpoints and self.window.interrupted else None,
            clock=RankClock(start=self._clock_at_start, end=clock_at_end),
            buffers=None,
            row_break=first_break(self._attempt, rank.rank),
            node=node_share(self._spec, rank) if rank.local_rank == 0 else None,
            forward={},
            profiled=self._exchange,
            samples=samples,
        )

    def _note_parameters(self, when: str) -> None:
        """Nothing of parameters that no rank has in full."""
        parameters = list(self._model.parameters())
        if all(type(parameter.data) is torch.Tensor for parameter in parameters):
            self._checksums[when] = checksum(parameters)

    def _say(self, passed: bool | None, optimizer_steps: int) -> None:
        measure = self._spec.point.measure
        if self.steps < measure.warmup_steps + measure.steps and not self._job:
            timed = self.steps - measure.warmup_steps
            print(f"hpcddp: {timed} of {measure.steps} steps were timed before the loop ended. {MORE}", file=sys.stderr)
        if optimizer_steps < ENOUGH_STEPS * (self.steps - self.window.first_step):
            print(
                f"hpcddp: the optimizer made {optimizer_steps} steps in {self.steps} iterations. If a step accumulates N "
                f"batches, pass measure(..., iterations_per_step=N). Steps that a loss scaler skips need no change.",
                file=sys.stderr,
            )
        how = "" if passed else ", but a check failed"
        print(f"hpcddp: measured{how}; hpcddp analyze {self._spec.study}", flush=True)


MORE = "Train more epochs, each with steps(loader), or lower warmup_steps and steps"


def _finite(loss: float | None) -> float | None:
    """A record's number; of one that is none a gate tells."""
    return loss if loss is not None and math.isfinite(loss) else None


def _next_run(study: Study, point: Point) -> int:
    """The first that has no folder, which is made; and the point's description, where there is none."""
    describe_point(study, point)
    for run in itertools.count(1):
        try:
            study.run_dir(point.label, run).mkdir(parents=True)
        except FileExistsError:
            continue
        return run
    raise AssertionError("there are infinitely many numbers")
