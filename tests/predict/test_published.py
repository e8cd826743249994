"""What the model makes of published series, from one full node to more of its kind."""

from __future__ import annotations

import functools

import pytest

from hpcddp.predict.model import BAND, LOST_PER_DOUBLING
from tests.bench.predict_published import (
    MEDIAN,
    OF_LINEAR,
    OTHER_EXCHANGE,
    WIDEST,
    WITHIN,
    WORST,
    Scored,
    buckets,
    by_name,
    figures,
    network,
    of_others,
    scored,
)

MISSED = {
    ("mlperf-v2.0-xe8545-40gb-maskrcnn", 8),
    ("dlperf-resnet50-amp-ngc-mxnet", 4),
}
"""Above 20 %: with a third of the batch; and with one adapter for eight GPUs, half of them on the other socket."""

points = functools.cache(scored)


def counted() -> list[Scored]:
    return [each for each in points() if not each.left_out]


def test_published_points_are_many_and_of_many_systems() -> None:
    assert len({each.name for each in counted()}) >= 20
    assert len(counted()) >= 40
    assert len({each.system for each in counted()}) >= 10


def test_errors_are_within_the_bounds() -> None:
    errors, linear = figures(counted()), figures(counted(), lambda each: each.of_linear)
    assert errors["median"] <= MEDIAN
    assert errors["mean"] <= OF_LINEAR * linear["mean"]
    assert {(each.name, each.nodes) for each in counted() if abs(each.error) > WORST} == MISSED


def test_the_band_holds_four_of_five() -> None:
    assert sum(each.within for each in counted()) >= WITHIN * len(counted())
    assert BAND <= WIDEST


def test_the_anchor_is_one_full_node() -> None:
    """Marconi100's series has 1, 2 and 3 GPUs of a node, which anchor nothing: 665.2 images/s on 4 do."""
    marconi = [each for each in points() if each.name == "marconi100"]
    assert [each.nodes for each in marconi] == [2, 4, 8, 16]
    assert [each.linear for each in marconi] == pytest.approx([665.2 * each.nodes for each in marconi])


def test_what_is_not_steps_or_has_too_small_a_batch_or_is_rejected_does_not_count() -> None:
    left_out = {(each.name, each.nodes): each.left_out for each in points() if each.left_out}
    assert left_out["kempner-a100", 16] == "wall clock of epochs: 7 to 10 s of each are no steps"
    assert left_out["mlperf-v2.0-azure", 8] == "not predicted: less than a quarter of the batch"
    assert left_out["mlperf-v2.1-hpe", 4] == "rejected"
    assert left_out["dlperf-bert-amp-max-oneflow-noclip", 4] == OTHER_EXCHANGE
    assert ("mlperf-v2.1-hpe", 16) not in left_out


def test_gradients_and_links_are_those_of_the_source() -> None:
    """ResNet-50 in fp32 and, as MLPerf's program sends it, in fp16; NVIDIA's BERT in one bucket; eight adapters of 200 Gb/s."""
    first = {name: rows[0] for name, rows in by_name().items()}

    def sizes(name: str) -> list[float]:
        return [each.size_bytes for each in buckets(name, first[name])]

    assert sum(sizes("csc-puhti-amp")) == 4 * 25_557_032
    assert sum(sizes("mlperf-v2.0-h3c")) == 2 * 25_557_032
    assert sizes("dlperf-bert-fp32-max-ngc-pytorch") == [440e6]
    assert len(sizes("dlperf-bert-fp32-max-mxnet")) == 17
    assert network(first["mlperf-v2.0-azure"]["system"]).bytes_per_s == pytest.approx(0.85 * 200e9)
    assert network(first["csc-mahti"]["system"]).bytes_per_s == pytest.approx(0.85 * 25e9)


def test_the_loss_of_others_leaves_the_scored_system_out() -> None:
    """With the loss it has itself, a point's error is 0; with the model's constant, what it was."""
    each = counted()[0]
    assert each.with_lost(each.lost) == pytest.approx(0.0, abs=1e-12)
    assert each.with_lost(LOST_PER_DOUBLING) == pytest.approx(each.error)
    alike = [other for other in counted() if other.system != each.system]
    assert of_others([each, *alike[:1]])(each) == pytest.approx(each.with_lost(alike[0].lost))
