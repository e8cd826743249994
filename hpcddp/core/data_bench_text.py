"""What `hpcddp bench data` found, as text for a terminal. For Python 3.10, without libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from hpcddp.core.data_bench_judgement import best_rate, loader_limit
from hpcddp.core.data_bench_record import Cache, DataBenchRecord, LoaderRate
from hpcddp.core.published_rates import published_rate
from hpcddp.core.text import count, escape_controls, first_few, size, table

CACHES: tuple[Cache, ...] = get_args(Cache)


def data_bench_text(bench: DataBenchRecord) -> str:
    """The setting, a row for each measurement, the fastest, and what GPUs will need."""
    lines = [_title(bench), _place(bench), *([_storage(bench)] if bench.storage else []), "", _rates(bench), "", *_fastest(bench)]
    if (need := published_rate(bench.model, bench.precision, bench.gpu)) is not None:
        gpus = bench.layout.nodes * bench.layout.gpus_per_node
        needed = f"{need[0] * gpus:,} samples/s by {count(gpus, 'GPU')}, {need[0]:,} each ({need[1]})"
        lines.append(f"\n{'':<13}".join([f"needed       {needed}", *enough_words(bench, need[0] * gpus)]))
    return escape_controls("\n".join([*lines, *(f"! {problem}" for problem in bench.problems)]))


def enough_words(bench: DataBenchRecord, samples_per_s: float) -> list[str]:
    """By cache, the setting with the fewest workers that gives so much, or how much of it the fastest gives."""
    texts = []
    for cache in CACHES:
        rates = [rate for rate in bench.rates if rate.cache == cache]
        enough = [rate for rate in rates if rate.samples_per_s >= samples_per_s]
        if enough:
            fewest = min(enough, key=lambda rate: (rate.loader_workers_per_rank, -rate.samples_per_s))
            texts.append(f"{cache}: {setting_words(fewest)} will do")
        elif best := best_rate(rates):
            texts.append(f"{cache}: no setting will do, {setting_words(best)} gives {best.samples_per_s / samples_per_s:.0%}")
    return texts


def setting_words(rate: LoaderRate) -> str:
    """`4 workers, batch 32, simplejpeg 1.9`"""
    words = [count(rate.loader_workers_per_rank, "worker"), f"batch {rate.batch_per_gpu}", rate.form, rate.decoder]
    return ", ".join(filter(None, words))


def _title(bench: DataBenchRecord) -> str:
    where = f" in {bench.data.root}" if bench.data.root else ""
    each = f" of {size(bench.bytes_per_sample)}" if bench.bytes_per_sample else ""
    return f"data         {bench.data.name}{where}: {count(bench.samples, 'sample')}{each}"


def _place(bench: DataBenchRecord) -> str:
    cpus = sorted(set(bench.cpus_of_ranks))
    each = count(cpus[0], "CPU") if len(cpus) == 1 else f"{cpus[0]} to {cpus[-1]} CPUs"
    return f"read by      {count(bench.ranks, 'rank')} with {each} each, on {first_few(bench.hosts)}"


def _storage(bench: DataBenchRecord) -> str:
    assert bench.storage is not None
    storage = bench.storage
    return f"storage      {size(storage.bytes_per_s)}/s in large pieces; {size(storage.again_bytes_per_s)}/s when read again"


def _rates(bench: DataBenchRecord) -> str:
    columns: dict[str, Sequence[object]] = {
        "workers": [rate.loader_workers_per_rank for rate in bench.rates],
        "batch": [rate.batch_per_gpu for rate in bench.rates],
        "form": [rate.form for rate in bench.rates],
        "decoder": [rate.decoder for rate in bench.rates],
        "cache": [rate.cache for rate in bench.rates],
        "samples/s": [f"{rate.samples_per_s:,.0f}" for rate in bench.rates],
        "bytes/s": [None if (found := bench.bytes_per_s(rate)) is None else size(found) for rate in bench.rates],
        "reading": [_per_s(rate.read_samples_per_s) for rate in bench.rates],
        "decoding": [_per_s(rate.decode_samples_per_s) for rate in bench.rates],
        "limit": [loader_limit(bench, rate) for rate in bench.rates],
    }
    known = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    return table(list(known), list(zip(*known.values(), strict=True)), left=("form", "decoder", "cache", "limit"))


def _per_s(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:,.0f}"


def _fastest(bench: DataBenchRecord) -> list[str]:
    """With the cache cold, and warm."""
    found = [best_rate(rate for rate in bench.rates if rate.cache == cache) for cache in CACHES]
    texts = [f"{rate.cache} {rate.samples_per_s:,.0f} samples/s with {setting_words(rate)}" for rate in found if rate]
    return [f"{'fastest' if not place else '':<13}{text}" for place, text in enumerate(texts)]
