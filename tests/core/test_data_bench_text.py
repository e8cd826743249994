"""A benchmark of loaders as text, and what GPUs were published to need."""

from __future__ import annotations

import pytest

from hpcddp.core.data_bench_record import StorageRate
from hpcddp.core.data_bench_text import data_bench_text, enough_words
from hpcddp.core.published_rates import published_rate
from tests.core.test_data_bench_judgement import bench, rate

RATES = (
    rate(1, 400.0, decoder="simplejpeg 1.9", read_samples_per_s=900.0, decode_samples_per_s=800.0),
    rate(1, 700.0, cache="warm", decoder="simplejpeg 1.9", read_samples_per_s=9000.0, decode_samples_per_s=800.0),
    rate(4, 800.0, decoder="simplejpeg 1.9", read_samples_per_s=900.0, decode_samples_per_s=3000.0),
    rate(4, 2800.0, cache="warm", decoder="simplejpeg 1.9", read_samples_per_s=30000.0, decode_samples_per_s=3000.0),
)


def test_everything_in_a_hundred_columns() -> None:
    """Rates with their limits, the fastest, and which setting feeds the GPUs of the profile."""
    storage = StorageRate(bytes_per_s=1e8, again_bytes_per_s=5e9)
    text = data_bench_text(bench(*RATES, gpu="NVIDIA A40", storage=storage))
    assert max(map(len, text.splitlines())) <= 100
    assert text.splitlines() == [
        "data         imagenet: 5,000 samples of 100 kB",
        "read by      1 rank with 4 CPUs each, on a",
        "storage      100 MB/s in large pieces; 5 GB/s when read again",
        "",
        "  workers  batch  decoder         cache  samples/s  bytes/s  reading  decoding  limit",
        "        1     32  simplejpeg 1.9  cold         400    40 MB      900       800  loader processes",
        "        1     32  simplejpeg 1.9  warm         700    70 MB    9,000       800  loader processes",
        "        4     32  simplejpeg 1.9  cold         800    80 MB      900     3,000  storage",
        "        4     32  simplejpeg 1.9  warm       2,800   280 MB   30,000     3,000  cores",
        "",
        "fastest      cold 800 samples/s with 4 workers, batch 32, simplejpeg 1.9",
        "             warm 2,800 samples/s with 4 workers, batch 32, simplejpeg 1.9",
        "needed       391 samples/s by 1 GPU, 391 each (A40, resnet50, fp32: lambdal/deeplearning-benchmark)",
        "             cold: 1 worker, batch 32, simplejpeg 1.9 will do",
        "             warm: 1 worker, batch 32, simplejpeg 1.9 will do",
    ]


def test_none_is_fast_enough() -> None:
    """How much the fastest gives is said."""
    assert enough_words(bench(*RATES), 1600.0) == [
        "cold: no setting will do, 4 workers, batch 32, simplejpeg 1.9 gives 50%",
        "warm: 4 workers, batch 32, simplejpeg 1.9 will do",
    ]


def test_what_others_named_is_shown_harmless() -> None:
    """Hosts and problems may come with someone else's study."""
    assert "\x1b" not in data_bench_text(bench(hosts=("\x1b[2J",), problems=("\x1b]0;x",)))


@pytest.mark.parametrize(
    ("model", "precision", "gpu", "expected"),
    [
        ("resnet50", "fp32", "V100", 367),
        ("resnet50", "bf16", "Tesla V100-SXM2-32GB", 1156),
        ("resnet50", "fp16", "NVIDIA A100-SXM4-80GB", 2470),
        ("resnet50", "fp16", "NVIDIA A100-SXM4-40GB", None),
        ("resnet50", "fp32", "NVIDIA GH200 120GB", None),
        ("resnet50", "fp32", "NVIDIA A10G", None),
        ("resnet50", "fp64", "V100", None),
        ("vgg11", "fp32", "V100", None),
        ("resnet50", "fp32", None, None),
    ],
)
def test_published_rates(model: str, precision: str, gpu: str | None, expected: int | None) -> None:
    """Of the GPU that was measured, and of no other."""
    found = published_rate(model, precision, gpu)
    assert (found and found[0]) == expected
