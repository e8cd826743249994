"""What limits the loaders, by rates whose reason is known."""

from __future__ import annotations

from typing import Any

import pytest

from hpcddp.core.data_bench_judgement import best_rate, loader_limit
from hpcddp.core.data_bench_record import DataBenchRecord, LoaderRate
from hpcddp.core.point import Data, Layout


def rate(workers: int, samples_per_s: float, **changes: Any) -> LoaderRate:
    """With the caches cold."""
    given = {"batch_per_gpu": 32, "cache": "cold", "samples": 1000, **changes}
    return LoaderRate(loader_workers_per_rank=workers, samples_per_s=samples_per_s, **given)


def bench(*rates: LoaderRate, cpus: int = 4, **changes: Any) -> DataBenchRecord:
    """Of one rank, of samples on a disk."""
    given = {"job": "7", "unix_ns": 1, "took_s": 9.0, "cluster": "local", "layout": Layout(), "device": "cpu", "hosts": ("a",)}
    given |= {"model": "resnet50", "precision": "fp32", "data": Data(name="imagenet"), "samples": 5000, "bytes_per_sample": 1e5}
    return DataBenchRecord(**{**given, "cpus_of_ranks": (cpus,), "rates": rates, **changes})


@pytest.mark.parametrize(
    ("workers", "reading", "decoding", "decoder", "limit"),
    [
        (4, 100.0, 2000.0, "pillow 12.0", "storage"),
        (4, 9000.0, 2000.0, "pillow 12.0", "decoder"),
        (4, 9000.0, 2000.0, "simplejpeg 1.9", "cores"),
        (2, 9000.0, 2000.0, "simplejpeg 1.9", "loader processes"),
    ],
)
def test_pictures(workers: int, reading: float, decoding: float, decoder: str, limit: str) -> None:
    """A process reads, then decodes: what takes it longer is the limit; of decoding, what would help."""
    given = rate(
        workers,
        1 / (1 / reading + 1 / decoding),
        decoder=decoder,
        read_samples_per_s=reading,
        decode_samples_per_s=decoding,
    )
    assert loader_limit(bench(given), given) == limit


def test_less_arrives_than_processes_make() -> None:
    """Neither reading nor decoding is it."""
    given = rate(2, 500.0, decoder="pillow", read_samples_per_s=9000.0, decode_samples_per_s=9000.0)
    assert loader_limit(bench(given), given) == "hand-over"


def test_rows_of_large_files() -> None:
    """Cold far below warm is the storage; else more processes where these were faster, and cores where there are none left."""
    cold, warm, more = rate(1, 100.0), rate(1, 900.0, cache="warm"), rate(4, 3000.0, cache="warm")
    found = bench(cold, warm, more)
    assert [loader_limit(found, each) for each in (cold, warm, more)] == ["storage", "loader processes", "cores"]
    assert loader_limit(bench(rate(1, 880.0), warm), rate(1, 880.0)) == "hand-over"


def test_a_rank_that_loads_for_itself_hands_nothing_over() -> None:
    """Where more processes are not faster, it is what one core does; theirs that are far slower spend their time on it."""
    found = bench(rate(0, 900.0, cache="warm"), rate(2, 800.0, cache="warm"))
    assert [loader_limit(found, each) for each in found.rates] == ["cores", "hand-over"]
    found = bench(rate(0, 900.0, cache="warm"), rate(1, 100.0, cache="warm"), rate(2, 200.0, cache="warm"), cpus=1)
    assert [loader_limit(found, each) for each in found.rates] == ["cores", "hand-over", "hand-over"]
    slow = rate(0, 100.0, decoder="pillow", read_samples_per_s=9000.0, decode_samples_per_s=900.0)
    assert loader_limit(bench(slow), slow) == "loader processes"


def test_nothing_is_said_of_data_in_memory() -> None:
    """They are read once, when the run begins."""
    given = rate(2, 100.0, cache="warm")
    assert loader_limit(bench(given, bytes_per_sample=None), given) is None
    virtual = rate(2, 100.0, cache="warm", form="virtual")
    found = bench(virtual, given)
    assert (loader_limit(found, virtual), found.bytes_per_s(virtual), found.bytes_per_s(given)) == (None, None, 1e7)


def test_the_fastest_setting() -> None:
    assert best_rate([rate(1, 10.0), rate(2, 30.0), rate(4, 30.0)]) == rate(2, 30.0)
    assert best_rate([]) is None
