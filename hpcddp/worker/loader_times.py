"""`loader` of end.json: what the loaders of all ranks did while timed steps were made. Standard library and torch only."""

from __future__ import annotations

from collections.abc import Sequence

from hpcddp.core.loader_record import LoaderTimes
from hpcddp.data import TrainLoader
from hpcddp.worker.rank_result import RankReads


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
