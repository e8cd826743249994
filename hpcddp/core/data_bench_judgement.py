"""What limits a setting of the loaders, from what `hpcddp bench data` measured of it. For Python 3.10, without libraries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from hpcddp.core.data_bench_record import DataBenchRecord, LoaderRate

LoaderLimit = Literal["storage", "decoder", "cores", "loader processes", "hand-over", "other waits"]
"""hand-over: processes could read and decode more than arrives at the rank; a rank that reads for itself may get more."""

SLOWER = 0.8
"""Cold below this share of warm: it is the storage that is waited for. Pairs of equal measurements of a few seconds stay within
a tenth of each other."""

HAND_OVER = 0.6
"""Of what reading and decoding one after the other come to, less arrives: the rest goes between processes."""


def loader_limit(bench: DataBenchRecord, rate: LoaderRate) -> LoaderLimit | None:
    """What holds that setting back; None of data that lie in memory."""
    if bench.bytes_per_sample is None or not rate.is_of_files:
        return None
    reading, decoding = rate.read_samples_per_s, rate.decode_samples_per_s
    if reading and decoding:
        return _of_pictures(bench, rate, reading, decoding)
    warm = next((each for each in bench.rates if each.cache == "warm" and _key(each) == _key(rate)), None)
    if rate.cache == "cold" and warm and rate.samples_per_s < SLOWER * warm.samples_per_s:
        return "storage"
    workers = rate.loader_workers_per_rank
    faster = best_rate(
        other for other in bench.rates if _same_but_workers(other, rate) and rate.samples_per_s < SLOWER * other.samples_per_s
    )
    if faster and faster.loader_workers_per_rank > workers:
        return "loader processes"
    if faster and not faster.loader_workers_per_rank:
        return "hand-over"
    return "hand-over" if workers and _has_cores_left(bench, rate) else "cores"


def best_rate(rates: Iterable[LoaderRate]) -> LoaderRate | None:
    """The fastest; of equal ones the first."""
    return max(rates, key=lambda rate: rate.samples_per_s, default=None)


def _of_pictures(bench: DataBenchRecord, rate: LoaderRate, reading: float, decoding: float) -> LoaderLimit:
    """A process reads a picture, then decodes it."""
    if rate.loader_workers_per_rank and rate.samples_per_s < HAND_OVER / (1 / reading + 1 / decoding):
        return "hand-over"
    if reading < decoding:
        return "storage"
    if _has_cores_left(bench, rate):
        return "loader processes"
    return "decoder" if rate.decoder and not rate.decoder.startswith("simplejpeg") else "cores"


def _has_cores_left(bench: DataBenchRecord, rate: LoaderRate) -> bool:
    return max(1, rate.loader_workers_per_rank) < min(bench.cpus_of_ranks)


def _same_but_workers(other: LoaderRate, rate: LoaderRate) -> bool:
    return (other.cache, *_key(other)[1:]) == (rate.cache, *_key(rate)[1:])


def _key(rate: LoaderRate) -> tuple[object, ...]:
    return rate.loader_workers_per_rank, rate.batch_per_gpu, rate.decoder, rate.form
