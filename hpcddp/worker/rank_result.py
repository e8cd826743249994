"""What one rank found, as it is gathered on rank 0 when all have trained. Standard library and torch only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcddp.core.attempt_records import LoaderTimes, MeasuringProtocol, ProfiledExchange, RankClock
from hpcddp.data import TrainLoader


@dataclass(frozen=True, kw_only=True)
class RankReads:
    """What one rank's loader did while its timed steps were made; see data/read_clock.py."""

    workers: int
    samples: int
    batches: int
    read_ns: int
    compute_ns: int
    processor_wait_ns: int | None
    """None where the kernel does not say."""
    hand_over_ns: int
    receive_ns: int
    read_bytes: int | None = None
    """The same."""
    prefetch_cut: str | None = None
    """Why fewer batches than usual are read ahead."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What one rank did in its steps."""

    first_step: int
    """The run's step with which this attempt began."""
    steps: int
    """Of the run that are made, those before `first_step` included."""
    interrupted: bool
    """Told to stop before the run's last step."""
    rows: int
    crc32: int
    bucket_rows: int | None = None
    bucket_crc32: int | None = None
    loss_first: float | None
    loss_last: float | None
    """Mean over the rank's share of the first and the last step; None if nothing was trained."""
    finite: bool
    """Every loss of this rank was finite; so also where there was none."""
    checksums: Mapping[str, str]
    """SHA-256 of the parameters, by when it was taken."""
    epochs: int
    """Epochs begun."""
    repeated_epoch: int | None
    """The first epoch that began as the one before it."""
    protocol: MeasuringProtocol
    """As end.json has it, by this rank's steps."""
    peak_memory_bytes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class EvaluationSums:
    """Over the samples that one rank evaluated."""

    samples: int
    correct: int
    loss_sum: float


@dataclass(frozen=True, kw_only=True)
class EvaluatedShare(EvaluationSums):
    """What one rank evaluated, and what its share was: the samples [first, end)."""

    first: int
    end: int
    mismatch: int | None
    """One of these in whose place another came; None where none did."""


@dataclass(frozen=True, kw_only=True)
class NodeShare:
    """How much of its node a job has; None is unknown."""

    host: str
    cpus: int | None
    """That Slurm gave the job there."""
    of: int | None
    """That the node has."""


@dataclass(frozen=True, kw_only=True)
class ForwardScores:
    """What one rank's model computes from the same pictures as every other's, or why it could not."""

    values: tuple[float, ...] = ()
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class RankScores:
    """What one rank computes."""

    host: str
    forward: Mapping[str, ForwardScores]
    """By when it was computed; nothing where there is no other rank."""


@dataclass(frozen=True, kw_only=True)
class RankResult(Trained, RankScores):
    """All that one rank found."""

    rank: int
    reason: str | None
    """Why it was interrupted."""
    clock: RankClock
    buffers: str | None
    """Checksum of the model's buffers at the entry of the next forward; None where it has none."""
    row_break: str | None
    """The first place where its timed rows do not follow each other."""
    node: NodeShare | None
    """Of a node's first rank."""
    reads: RankReads | None = None
    """None without a loader, and where it read nothing."""
    sharded_ns: Mapping[str, int] | None = None
    """Of records.SHARDED_PARTS, over all timed steps; None where they are not marked."""
    profiled: ProfiledExchange | None = None
    """Of a script's further steps; None where none were profiled for it."""
    samples: tuple[int, ...] | None = None
    """Of a script's steps the least and the most; None where its batches do not show them."""


def rank_reads(loader: TrainLoader) -> RankReads | None:
    """Of this rank; None where it read nothing."""
    clock, found = loader.clock, loader.clock.times()
    if not found.samples:
        return None
    waited = found.processor_wait_ns if clock.knows_processor_wait else None
    known = {"processor_wait_ns": waited, "read_bytes": found.read_bytes if clock.knows_bytes else None}
    return RankReads(**{**found._asdict(), **known}, workers=clock.workers, prefetch_cut=loader.prefetch.cut)


def loader_times(ranks: Sequence[RankReads | None]) -> LoaderTimes | None:
    """Over all ranks; None where one of them read nothing."""
    known = [rank for rank in ranks if rank is not None]
    if not known or len(known) < len(ranks):
        return None
    waits = [rank.processor_wait_ns for rank in known if rank.processor_wait_ns is not None]
    read = [rank.read_bytes for rank in known if rank.read_bytes is not None]
    return LoaderTimes(
        workers=known[0].workers,
        samples_per_s=sum(map(rate_per_s, known)),
        samples=sum(rank.samples for rank in known),
        batches=sum(rank.batches for rank in known),
        read_s=sum(rank.read_ns for rank in known) / 1e9,
        compute_s=sum(rank.compute_ns for rank in known) / 1e9,
        processor_wait_s=sum(waits) / 1e9 if len(waits) == len(known) else None,
        hand_over_s=sum(rank.hand_over_ns for rank in known) / 1e9,
        receive_s=sum(rank.receive_ns for rank in known) / 1e9,
        read_bytes=sum(read) if len(read) == len(known) else None,
        prefetch_cut=next((rank.prefetch_cut for rank in known if rank.prefetch_cut), None),
    )


def rate_per_s(rank: RankReads) -> float:
    """Samples/s that its processes read and hand over without a pause, or that the rank can take, whichever is less."""
    read_per_s = max(1, rank.workers) * rank.samples * 1e9 / max(1, rank.read_ns + rank.hand_over_ns)
    return min(read_per_s, rank.samples * 1e9 / rank.receive_ns) if rank.receive_ns else read_per_s
