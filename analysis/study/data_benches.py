"""What `hpcddp bench data` found beside what runs load, and what GPUs need of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.core.data_bench_judgement import loader_limit
from hpcddp.core.data_bench_record import DataBenchRecord, LoaderRate
from hpcddp.core.data_bench_text import enough_words
from hpcddp.core.point import Point
from hpcddp.core.published_rates import published_rate
from hpcddp.core.text import count

COLUMNS = {
    "job": "string",
    "root": "string",
    "nodes": "Int64",
    "gpus_per_node": "Int64",
    "device": "string",
    "workers": "Int64",
    "batch_per_gpu": "Int64",
    "form": "string",
    "decoder": "string",
    "cache": "string",
    "samples_per_s": "Float64",
    "bytes_per_s": "Float64",
    "read_samples_per_s": "Float64",
    "decode_samples_per_s": "Float64",
    "limit": "string",
    "io_samples_per_s": "Float64",
    "storage_bytes_per_s": "Float64",
}
"""A row per setting and cache. `root` where data of one name were benchmarked in several folders; `io_samples_per_s` of runs with
`measure.input: io` at the same setting.
"""

RunsOf = Callable[[Any], Sequence[Run]]
"""Of a row of the scaling table, its runs."""


@dataclass(frozen=True)
class _Trained:
    """A row of the scaling table."""

    point: Point
    samples_per_s: float
    decoder: str | None
    """Name and version of what decoded pictures, where its runs say so."""


def newest_benches(records: Iterable[DataBenchRecord]) -> list[DataBenchRecord]:
    """The last one of each layout, data set and folder, small layouts first; `records` oldest first."""
    newest = {(record.layout, *_place(record)): record for record in records}
    return sorted(newest.values(), key=lambda record: (record.layout.nodes, record.layout.gpus_per_node, *_place(record)))


def data_bench_frame(benches: Sequence[DataBenchRecord], scaling: pd.DataFrame, runs_of: RunsOf) -> pd.DataFrame:
    """A row per setting of each of the benchmarks; `scaling` has a row per point whose runs count."""
    trained = _trained(scaling, runs_of)
    rows = [
        {
            "job": bench.job,
            "root": bench.data.root if _is_elsewhere_too(bench, benches) else None,
            "nodes": bench.layout.nodes,
            "gpus_per_node": bench.layout.gpus_per_node,
            "device": bench.device,
            "workers": rate.loader_workers_per_rank,
            "batch_per_gpu": rate.batch_per_gpu,
            "form": rate.form,
            "decoder": rate.decoder,
            "cache": rate.cache,
            "samples_per_s": rate.samples_per_s,
            "bytes_per_s": bench.bytes_per_s(rate),
            "read_samples_per_s": rate.read_samples_per_s,
            "decode_samples_per_s": rate.decode_samples_per_s,
            "limit": loader_limit(bench, rate),
            "io_samples_per_s": _loaded_by_runs(bench, rate, trained),
            "storage_bytes_per_s": bench.storage.bytes_per_s if bench.storage else None,
        }
        for bench in benches
        for rate in bench.rates
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def data_bench_notes(benches: Sequence[DataBenchRecord], scaling: pd.DataFrame, runs_of: RunsOf) -> list[str]:
    """Which setting gives what the GPUs of each layout need, and what makes its rates doubtful."""
    trained = _trained(scaling, runs_of)
    notes = []
    for bench in benches:
        place = f" in {bench.data.root}" if _is_elsewhere_too(bench, benches) else ""
        where = f"{bench.data.name}{place} on {count(bench.layout.nodes, 'node')} x {bench.layout.gpus_per_node}"
        need = _need(bench, trained)
        if need is not None:
            enough = "; ".join(enough_words(bench, need[0]))
            notes.append(f"{where}: {need[0]:,.0f} samples/s are needed ({need[1]}); of loaders (bench data), {enough}")
        notes += [f"bench data of {where}, job {bench.job}: {problem}" for problem in bench.problems]
    return notes


def _place(bench: DataBenchRecord) -> tuple[str, str]:
    return bench.data.name, bench.data.root or ""


def _is_elsewhere_too(bench: DataBenchRecord, benches: Iterable[DataBenchRecord]) -> bool:
    return len({_place(other) for other in benches if other.data.name == bench.data.name}) > 1


def _trained(scaling: pd.DataFrame, runs_of: RunsOf) -> list[_Trained]:
    rows = ((float(row["samples_per_s"]), runs_of(row)) for _, row in scaling.iterrows() if pd.notna(row["samples_per_s"]))
    return [_Trained(runs[0].point, rate, runs[0].decoder) for rate, runs in rows if runs and runs[0].point]


def _of_layout(bench: DataBenchRecord, trained: Iterable[_Trained]) -> Iterable[_Trained]:
    """Those of the same data on as many nodes and GPUs of the same type."""

    def key(layout: object) -> object:
        return tuple(getattr(layout, name) for name in ("nodes", "gpus_per_node", "node_type"))

    return (
        each
        for each in trained
        if each.point.workload.data.name == bench.data.name and key(each.point.layout) == key(bench.layout)
    )


def _loaded_by_runs(bench: DataBenchRecord, rate: LoaderRate, trained: Sequence[_Trained]) -> float | None:
    """None where no run with `measure.input: io` has the setting."""
    for each in _of_layout(bench, trained):
        named = each.point.workload.data.decoder
        decoder = each.decoder or (rate.decoder if named == "auto" else named)
        same_cores = each.point.layout.physical_cores_per_rank == bench.layout.physical_cores_per_rank
        same_folder = each.point.workload.data.root in (None, bench.data.root)
        if each.point.measure.input == "io" and same_cores and same_folder and is_setting(rate, each.point, decoder):
            return each.samples_per_s
    return None


def is_setting(rate: LoaderRate, point: Point, decoder: str | None) -> bool:
    """Whether the point's runs, for which this decoded, load as it was measured."""
    workload = point.workload
    same = (workload.loader_workers, workload.batch_per_gpu) == (rate.loader_workers_per_rank, rate.batch_per_gpu)
    decodes_alike = rate.decoder is None or decoder_name(decoder) == decoder_name(rate.decoder)
    return same and decodes_alike and rate.form in (None, workload.data.form)


def decoder_name(decoder: str | None) -> str:
    """Without its version."""
    return (decoder or "").partition(" ")[0]


def _need(bench: DataBenchRecord, trained: Sequence[_Trained]) -> tuple[float, str] | None:
    """Samples a second, and whose they are: of runs that do not load, else as published, else of full training, which its own
    loaders may have held back.
    """
    here = list(_of_layout(bench, trained))
    gpus = bench.layout.nodes * bench.layout.gpus_per_node
    synthetic = [each.samples_per_s for each in here if each.point.measure.input == "synthetic"]
    if synthetic:
        return max(synthetic), "what runs with input synthetic train"
    if found := published_rate(bench.model, bench.precision, bench.gpu):
        return found[0] * gpus, f"{count(gpus, 'GPU')}, {found[1]}"
    full = [each.samples_per_s for each in here if each.point.measure.input == "full"]
    return (max(full), "at least: what full training reaches") if full else None
