"""A training run on one rank: what is prepared, the timed steps, and what is measured after them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.attempt_records import CommCheck, RankClock
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.records import trace_file
from hpcddp.data import Source
from hpcddp.data.read_clock import ReadClock
from hpcddp.worker.barriers import STRAGGLER_WAIT, agree_on_steps, naming_departed, steps_barrier
from hpcddp.worker.checksums import buffers_at_next_forward, probe
from hpcddp.worker.comm.check import check_comm
from hpcddp.worker.comm.hook import time_buckets
from hpcddp.worker.node_share import node_share
from hpcddp.worker.rank_result import ForwardScores, RankResult, Trained, rank_reads
from hpcddp.worker.rendezvous import TIMEOUT, ProcessGroup
from hpcddp.worker.timing.clock import clock_for
from hpcddp.worker.timing.clock_offsets import offset_to_rank_0
from hpcddp.worker.timing.steplog import StepLog, first_break
from hpcddp.worker.timing.steptimer import StepTimer, loss_reader_for
from hpcddp.worker.training.ddp_warmup import compile_now, warm_up_buckets
from hpcddp.worker.training.epochs import EpochRecorder, TrainingParts
from hpcddp.worker.training.feeds import Feed, first_batch, loader_of, make_feed
from hpcddp.worker.training.profiling import profile_steps
from hpcddp.worker.training.resume import Checkpointer, RunStart, interruption_words, restore
from hpcddp.worker.training.sharding import mark_exchanges
from hpcddp.worker.training.train import train, work_of
from hpcddp.worker.training.trainer import Trainer, make_trainer
from hpcddp.worker.training.window import timed_steps


@dataclass(frozen=True)
class TrainingRun:
    """What the steps of a rank work with."""

    spec: JobSpec
    group: ProcessGroup
    attempt: Path
    trainer: Trainer
    shape: tuple[int, int, int]
    """Of a sample."""
    feed: Feed
    log: StepLog
    compile_s: float | None
    """None where nothing was compiled."""
    checkpointer: Checkpointer | None
    """None without `measure.resume`."""
    epochs: EpochRecorder | None
    """Of `work: train`."""


def prepare_training(
    spec: JobSpec, sources: tuple[Source, Source | None], group: ProcessGroup, attempt: Path, start: RunStart
) -> TrainingRun:
    """All that comes before the first step: builds the model, compiles it, restores a checkpoint, hooks DDP's buckets.

    `sources`: what is trained on, and what is evaluated; None where nothing is.
    """
    source, evaluated = sources
    point, rank = spec.point, group.rank.rank
    trainer = make_trainer(point.workload, source, group.device, rank, gpus=point.gpus // point.ranks, shards=point.shards)
    compile_s = compile_now(trainer, first_batch(point, source, group)) if point.workload.compile else None
    if start.state:
        warm_up_buckets(trainer, first_batch(point, source, group), start.step)
        restore(start.state, trainer, rank, attempt.parent)
    kind, hooked = group.device.type, point.measure.comm != "off"
    log = StepLog(StepTimer(clock_for(kind), start.step, loss_reader_for(kind)), attempt, rank, buckets=point.times_buckets)
    if trainer.ddp and hooked:
        time_buckets(trainer.ddp, log.timer)
    if trainer.sharding and hooked:
        mark_exchanges(trainer.sharding, log.timer.mark)
    feed, epochs = make_feed(point, source, group, start.step), None
    if point.work == "train" and evaluated is not None:
        parts = TrainingParts(point, trainer, log, group, evaluated)
        epochs = EpochRecorder(parts, feed.plan, attempt, start.state["epochs"] if start.state else None)
    resumes = point.measure.resume
    checkpointer = Checkpointer(spec, group, trainer, start, log.timer, epochs=epochs) if resumes else None
    return TrainingRun(spec, group, attempt, trainer, source.shape, feed, log, compile_s, checkpointer, epochs)


def train_timed(training: TrainingRun) -> RankResult:
    """Trains; what this rank found, with its clock before and after."""
    spec, group, timer = training.spec, training.group, training.log.timer
    scores_at_start = _probe(training, "at the start")
    clock_at_start = offset_to_rank_0(group, timer.unix_now(), "start")
    loader = loader_of(training.feed)
    trained = _train(training, loader.clock if loader else None)
    clock = RankClock(start=clock_at_start, end=offset_to_rank_0(group, timer.unix_now(), "end"))
    buffers = buffers_at_next_forward(training.trainer)
    return RankResult(
        **vars(trained),
        rank=group.rank.rank,
        host=group.rank.host,
        reason=_why_interrupted(training, trained),
        clock=clock,
        buffers=buffers,
        row_break=first_break(training.attempt, group.rank.rank),
        node=node_share(spec, group.rank) if group.rank.local_rank == 0 else None,
        reads=rank_reads(loader) if loader else None,
        sharded_ns=timer.sharded_ns if spec.point.sharded and spec.point.measure.comm == "on" else None,
        forward={**scores_at_start, **_probe(training, "at the end")},  # behind the broadcast of buffers
    )


def measure_further(training: TrainingRun) -> CommCheck | None:
    """After the timed steps: the cross-check of communication (its record on rank 0) and the profile, as `measure` says."""
    measure, rank, timer = training.spec.point.measure, training.group.rank.rank, training.log.timer
    training.trainer.model.train()  # it may have been evaluated
    found = check_comm(training.group, training.trainer, training.feed, timer) if measure.comm == "check" else None
    if measure.profile_steps:
        trace = trace_file(training.attempt, rank) if rank in measure.profile_ranks else None
        profile_steps(measure.profile_steps, work_of(training.spec.point, training.trainer), training.feed, timer, trace)
    return found


def _probe(training: TrainingRun, when: str) -> dict[str, ForwardScores]:
    """Nothing where there is nobody to compare with."""
    return {when: probe(training.trainer, training.shape)} if training.group.rank.world > 1 else {}


def _why_interrupted(training: TrainingRun, trained: Trained) -> str | None:
    """Why the attempt ended before the run's last step, and what comes next; None where it did not."""
    if not trained.interrupted:
        return None
    found = training.checkpointer
    return interruption_words(
        trained.steps, requeues=bool(found and found.requeues), stops_too_early=bool(found and found.stops_too_early)
    )


def _train(training: TrainingRun, clock: ReadClock | None) -> Trained:
    """Makes the steps that all ranks agree on, and waits for all ranks."""
    point, group, log = training.spec.point, training.group, training.log
    agree_on_steps(group, timed_steps(point, training.feed.plan))
    first_step = training.checkpointer.first_step if training.checkpointer else 0
    with naming_departed(group, lambda: first_step + log.counts()["rows"]):
        trained = train(
            point,
            training.trainer,
            training.feed,
            log,
            group,
            checkpointer=training.checkpointer,
            epochs=training.epochs,
            clock=clock,
        )
    # Nothing holds ranks together that only load: they may end far apart.
    steps_barrier(group, (first_step + trained.rows, trained.steps), TIMEOUT if point.measure.input == "io" else STRAGGLER_WAIT)
    return trained
