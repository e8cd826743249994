"""What `hpcddp bench data` says of a point that waits for data: the limit of its setting, and the setting that gives more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcddp.analysis.study.data_benches import decoder_name, is_setting, newest_benches
from hpcddp.analysis.util.wording import quantity
from hpcddp.analysis.verdicts.context import Case, PointRow
from hpcddp.analysis.verdicts.settings import WORKERS, Advice, Set, phrase
from hpcddp.core.data_bench_judgement import LoaderLimit, loader_limit
from hpcddp.core.data_bench_record import DataBenchRecord, LoaderRate
from hpcddp.core.point import Point

FASTER = 0.1
"""By how much more another setting must give to be advised: two measurements of equal settings stay within it."""


@dataclass(frozen=True)
class Benched:
    """A point's setting in a benchmark."""

    bench: DataBenchRecord
    rate: LoaderRate

    @property
    def limit(self) -> LoaderLimit | None:
        """None of data that lie in memory."""
        return loader_limit(self.bench, self.rate)

    @property
    def advice(self) -> Advice:
        """The single change with which most was given; empty where none gives more for sure."""
        more = [each for each in self.bench.rates if _changes(each, self.rate) and self._is_faster(each)]
        if not more:
            return ""
        best = max(more, key=lambda each: each.samples_per_s)
        setting = _changes(best, self.rate)
        gave = f"{quantity(best.samples_per_s)} samples/s instead of {quantity(self.rate.samples_per_s)}"
        return phrase(setting, f": `hpcddp bench data` (job {self.bench.job}) gave {gave}")

    def _is_faster(self, other: LoaderRate) -> bool:
        return other.samples_per_s >= (1 + FASTER) * self.rate.samples_per_s


def benched(case: Case, row: PointRow) -> Benched | None:
    """In the benchmark of the point's layout and data; of cold and warm caches the one nearer to what runs load."""
    run = case.runs_of(row)[0]
    point = run.point
    here = _bench_of(case.records.data_benches, point) if point else None
    if here is None or point is None:
        return None
    alike = [rate for rate in here.rates if is_setting(rate, point, run.decoder)]
    wanted = float(row["samples_per_s"])
    found = min(alike, key=lambda rate: _apart(rate.samples_per_s, wanted), default=None)
    return Benched(here, found) if found else None


def _bench_of(records: Sequence[DataBenchRecord], point: Point) -> DataBenchRecord | None:
    """The newest; of the point's folder, and with as many cores for a rank, where there is one."""
    root, cores = point.workload.data.root, point.layout.physical_cores_per_rank

    def unlike(bench: DataBenchRecord) -> tuple[bool, bool, int]:
        return bench.data.root != root, bench.layout.physical_cores_per_rank != cores, -bench.unix_ns

    return min((bench for bench in newest_benches(records) if _is_of(bench, point)), key=unlike, default=None)


def _is_of(bench: DataBenchRecord, point: Point) -> bool:
    layouts = ((each.nodes, each.gpus_per_node, each.node_type) for each in (bench.layout, point.layout))
    return len(set(layouts)) == 1 and bench.data.name == point.workload.data.name


def _changes(other: LoaderRate, rate: LoaderRate) -> Advice | Set:
    """Where the other setting differs in one key that a sweep may change as it likes; else empty."""
    if (other.cache, other.batch_per_gpu, other.form) != (rate.cache, rate.batch_per_gpu, rate.form):
        return ""
    workers = other.loader_workers_per_rank != rate.loader_workers_per_rank
    decoder = decoder_name(other.decoder) != decoder_name(rate.decoder)
    if workers and not decoder:
        return Set({WORKERS: other.loader_workers_per_rank})
    return Set({"workload.data.decoder": decoder_name(other.decoder)}) if decoder and not workers else ""


def _apart(rate: float, wanted: float) -> float:
    """How many times as large one is as the other."""
    low, high = sorted((rate, wanted))
    return high / low if low else float("inf")
