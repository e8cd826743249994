"""What a run leaves on disk, at most, before it has run: how many files, how many bytes."""

from __future__ import annotations

import math

from hpcddp.core.catalog import parameters, train_samples
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.point import Point

STEP_ROW_BYTES = 100
BUCKET_ROW_BYTES = 60
NODE_ROW_BYTES = 155
GPU_ROW_BYTES = 90
EPOCH_ROW_BYTES = 130
TRACE_STEP_BYTES = 200_000
"""Gzipped; it grows with the number of operations of a step."""

RANK_OVERHEAD_BYTES = 1_800
RUN_OVERHEAD_BYTES = 20_600
"""Logs and submitit's result per rank; launch.json, end.json, script and specification per run.
tests/twin/test_studies.py holds them against what a study leaves."""

CHECKPOINT_OF_RANK_BYTES = 17_000
"""A rank's random numbers to come."""

CHECKPOINTS = 3
"""Of a run that resumes: two are kept while the next is written. Each holds the parameters and the optimizer's state, in a file
for each rank of a copy where they are sharded."""

COMM_BYTES = 60_000
"""comm.json of `work: comm`."""

FILES_PER_RANK = 4
FILES_PER_NODE = 1
FILES_PER_RUN = 10
"""Step rows, two logs, submitit's result; nodes/HOST.json; point, launch, transport, end, two batch logs, pickle, and script and
two links on Slurm, or specification and two markers locally. A benchmark of collectives has comm.json in place of step rows."""

UNKNOWN_BUCKETS = 4
"""Of a model whose size only its code knows."""

MOST_BUCKETS = 200
"""No more than a model has parameters to exchange (ResNet-50: 161)."""


def run_steps(point: Point) -> int:
    """Optimizer steps of one run at most, warm-up included; an epoch of unknown length counts as the default number of steps."""
    measure = point.measure
    if point.work == "comm":
        return 0
    samples = train_samples(point.workload.data)
    if point.work in ("epoch", "train") and samples is not None:
        return EpochPlan.of(point, samples).first_step(measure.epochs or 1)
    return measure.warmup_steps + (measure.steps if measure.stop == "steps" else measure.max_steps)


def step_buckets(point: Point) -> int:
    """All-reduces of a step, at most: a bucket is full once it holds its size, so only the last may hold less."""
    count, cap = parameters(point.workload), point.workload.ddp.bucket_cap_mb
    if count is None:
        return UNKNOWN_BUCKETS
    gradient_mb = count * (8 if point.workload.precision == "fp64" else 4) / 2**20
    if cap is None:
        return 1 + math.ceil(gradient_mb / 25)
    return math.ceil(gradient_mb / cap) if cap * MOST_BUCKETS > gradient_mb else MOST_BUCKETS


def run_files(point: Point) -> int:
    """Files of one run."""
    measure, layout = point.measure, point.layout
    if point.work == "comm":
        return FILES_PER_RUN + 1 + FILES_PER_NODE * layout.nodes + (FILES_PER_RANK - 1) * point.ranks
    of_rank = FILES_PER_RANK + point.times_buckets
    of_node = FILES_PER_NODE + bool(measure.telemetry_hz) * (1 + (point.device == "cuda"))
    traces = len(measure.profile_ranks) if measure.profile_steps else 0
    checkpoints = CHECKPOINTS * measure.resume * (1 + point.sharded * point.shards)
    epochs = point.work == "train"
    return FILES_PER_RUN + epochs + of_node * layout.nodes + of_rank * point.ranks + traces + checkpoints


def run_bytes(point: Point, walltime_min: float) -> int:
    """Bytes of one run that may last `walltime_min`: telemetry goes on as long as it does."""
    if point.work == "comm":
        return RUN_OVERHEAD_BYTES + RANK_OVERHEAD_BYTES * point.ranks + COMM_BYTES
    measure = point.measure
    of_step = STEP_ROW_BYTES + point.times_buckets * BUCKET_ROW_BYTES * step_buckets(point)
    ranks = point.ranks * (RANK_OVERHEAD_BYTES + of_step * run_steps(point))
    readings = math.ceil(measure.telemetry_hz * walltime_min * 60)
    of_reading = NODE_ROW_BYTES + (point.device == "cuda") * GPU_ROW_BYTES * point.layout.gpus_per_node
    traces = measure.profile_steps * len(measure.profile_ranks) * TRACE_STEP_BYTES
    checkpoints = CHECKPOINTS * checkpoint_bytes(point) * measure.resume
    epochs = EPOCH_ROW_BYTES * (measure.epochs or 0)
    return RUN_OVERHEAD_BYTES + epochs + ranks + point.layout.nodes * readings * of_reading + traces + checkpoints


def checkpoint_bytes(point: Point) -> int:
    """Of one checkpoint, without BatchNorm's statistics; 0 for a model whose size only its code knows."""
    workload = point.workload
    per_parameter = (8 if workload.precision == "fp64" else 4) * (1 + workload.optimizer.numbers_per_parameter)
    return (parameters(workload) or 0) * per_parameter + CHECKPOINT_OF_RANK_BYTES * point.ranks
