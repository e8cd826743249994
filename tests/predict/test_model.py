"""The model of a step on more nodes: an example worked out by hand, and what holds for any."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.core.prediction import Limit
from hpcddp.predict.model import (
    FORWARD,
    LOST_PER_DOUBLING,
    MATTERS,
    Anchor,
    Bucket,
    Network,
    hidden_from_s,
    predict,
    step_with_exchange_s,
)

NETWORK = Network(1e9, 2e-3)
BUCKETS = (Bucket(10e6, 0.1), Bucket(25e6, 0.5), Bucket(15e6, 1.0))
STEP_S = 90e-3
"""Forward 30 ms, backward 60 ms: the buckets are ready 36, 60 and 90 ms into the step, and travel for 12, 27 and 17 ms."""

ANCHOR = Anchor(nodes=1, gpus_per_node=4, batch_per_gpu=32, step_s=STEP_S)


def to_the_digit(value: float | list[float]) -> Any:
    return pytest.approx(value, rel=1e-12)


def of_example_s(nodes: int = 2, buckets: tuple[Bucket, ...] = BUCKETS, network: Network = NETWORK) -> float:
    return step_with_exchange_s(STEP_S, nodes, FORWARD, buckets, network)


def test_each_bucket_travels_once_it_is_ready_and_the_one_before_has_arrived() -> None:
    """One of 100 ms behind the first ones, ready before them, shows when they have arrived."""
    last = Bucket(98e6, 0.0)
    assert [of_example_s(buckets=(*BUCKETS[:count], last)) - 0.1 for count in (1, 2, 3)] == to_the_digit([48e-3, 87e-3, 107e-3])
    assert of_example_s() == to_the_digit(107e-3)


def test_half_the_bandwidth() -> None:
    assert of_example_s(network=Network(0.5e9, 2e-3)) == to_the_digit(144e-3)


def test_on_four_nodes_each_sends_one_and_a_half_times_the_bytes() -> None:
    assert of_example_s(nodes=4) == to_the_digit(124e-3)


def test_gradients_that_are_all_ready_at_the_end_hide_nothing() -> None:
    assert of_example_s(buckets=tuple(dataclasses.replace(each, ready=1.0) for each in BUCKETS)) == to_the_digit(146e-3)


def test_latency_that_nobody_measured_grows_with_each_doubling() -> None:
    """A start of 20 us and two messages of 15 us for each doubling."""
    assert [Network(1e9).all_reduce_s(0, nodes) for nodes in (1, 2, 4, 16)] == to_the_digit([0, 50e-6, 80e-6, 140e-6])


def test_a_prediction_by_hand() -> None:
    found = predict("n02-g4", ANCHOR, 2, 32, BUCKETS, NETWORK)
    assert (found.label, found.limit) == ("n02-g4", "network")
    assert found.step_s == to_the_digit(109.14e-3)
    assert found.exposed_s == to_the_digit(17e-3)
    assert [round(rate or 0) for rate in (found.samples_per_s, found.low, found.high)] == [2346, 2165, 2541]


def test_an_anchor_on_two_nodes_holds_its_own_exchange() -> None:
    """What takes 107 ms on two takes 90 without exchange and 124 on four."""
    anchor = dataclasses.replace(ANCHOR, nodes=2, step_s=107e-3)
    assert predict("", anchor, 4, 32, BUCKETS, NETWORK).step_s == to_the_digit(124e-3 * 1.02)


def test_the_band_grows_with_the_root_of_the_doublings() -> None:
    found = predict("", ANCHOR, 16, 32, BUCKETS, NETWORK)
    assert found.samples_per_s
    assert found.low
    assert found.high
    assert found.high / found.samples_per_s == found.samples_per_s / found.low == to_the_digit(math.exp(0.08 * 2))


def test_another_batch_changes_all_of_a_step_but_what_is_fixed() -> None:
    """3 + 87 x 2 ms: of these forward takes 59, and buckets have arrived after 82.8, 145 and 194 ms. Of 2 ms, 1.8 are fixed."""
    assert predict("", ANCHOR, 1, 64, BUCKETS, NETWORK).step_s == to_the_digit(177e-3)
    on_two = predict("", ANCHOR, 2, 64, BUCKETS, NETWORK)
    assert on_two.step_s == to_the_digit(194e-3 * 1.02)
    assert on_two.samples_per_s == to_the_digit(2 * 4 * 64 / (194e-3 * 1.02))
    short = dataclasses.replace(ANCHOR, step_s=2e-3)
    assert predict("", short, 1, 64, BUCKETS, NETWORK).step_s == to_the_digit(2.2e-3)


@pytest.mark.parametrize(
    ("waits", "bytes_per_s", "limit"),
    [(0.7, 1e9, "network"), (0.7, 1e12, "input"), (0.04, 1e12, "compute"), (None, 1e12, "unknown"), (None, 1e9, "network")],
)
def test_what_limits_a_step(waits: float | None, bytes_per_s: float, limit: Limit) -> None:
    found = predict("", dataclasses.replace(ANCHOR, waits=waits), 2, 32, BUCKETS, Network(bytes_per_s, 0.0))
    assert found.limit == limit
    assert found.waits_s == (None if waits is None else to_the_digit(waits * STEP_S))


STEPS_S = st.floats(1e-3, 10.0)
AHEAD = st.floats(0.0, 0.95)
NODES = st.integers(1, 1024)
FACTORS = st.floats(1.0, 100.0)
LINKS = st.builds(Network, st.floats(1e6, 1e12), st.none() | st.floats(0.0, 0.01))
GRADIENTS = st.lists(st.builds(Bucket, st.floats(1e3, 1e9), st.floats(0.0, 1.0)), min_size=1, max_size=6).map(
    lambda buckets: sorted(buckets, key=lambda bucket: bucket.ready)
)
ANCHORS = st.builds(
    Anchor, nodes=st.integers(1, 64), gpus_per_node=st.integers(1, 8), batch_per_gpu=st.just(32.0), step_s=STEPS_S, ahead=AHEAD
)


def faster(found_s: float | None, than_s: float | None) -> bool:
    """By more than rounding."""
    assert found_s is not None
    assert than_s is not None
    return found_s < than_s * (1 - 1e-9)


@given(STEPS_S, NODES, AHEAD, GRADIENTS)
def test_a_network_that_takes_no_time_leaves_the_step_as_it_is(
    step_s: float, nodes: int, ahead: float, buckets: list[Bucket]
) -> None:
    assert step_with_exchange_s(step_s, nodes, ahead, buckets, Network(math.inf, 0.0)) == step_s


@given(NODES, AHEAD, GRADIENTS, LINKS)
def test_a_step_without_computation_is_its_all_reduces(nodes: int, ahead: float, buckets: list[Bucket], network: Network) -> None:
    total_s = sum(network.all_reduce_s(bucket.size_bytes, nodes) for bucket in buckets)
    assert step_with_exchange_s(0.0, nodes, ahead, buckets, network) == to_the_digit(total_s)


@given(ANCHORS, GRADIENTS, LINKS)
def test_the_anchors_own_nodes_give_the_anchor(anchor: Anchor, buckets: list[Bucket], network: Network) -> None:
    """Also where all-reduces by this network alone would take longer than the step that was measured."""
    found = predict("", anchor, anchor.nodes, anchor.batch_per_gpu, buckets, network)
    assert found.step_s == to_the_digit(anchor.step_s)
    assert found.samples_per_s == found.low == found.high == to_the_digit(anchor.samples_per_s)


@given(ANCHORS, NODES, GRADIENTS)
def test_without_exchange_each_doubling_costs_its_share(anchor: Anchor, times: int, buckets: list[Bucket]) -> None:
    found = predict("", anchor, anchor.nodes * times, anchor.batch_per_gpu, buckets, Network(math.inf, 0.0))
    assert found.step_s == to_the_digit(anchor.step_s * (1 + LOST_PER_DOUBLING * math.log2(times)))
    assert found.exposed_s == pytest.approx(0.0, abs=1e-12)


@given(STEPS_S, NODES, AHEAD, GRADIENTS, LINKS, FACTORS)
def test_no_step_is_faster_with_less_bandwidth_or_more_of_anything_else(  # noqa: PLR0913, PLR0917 - all that a step follows from
    step_s: float, nodes: int, ahead: float, buckets: list[Bucket], network: Network, factor: float
) -> None:
    now_s = step_with_exchange_s(step_s, nodes, ahead, buckets, network)
    slower = dataclasses.replace(network, bytes_per_s=network.bytes_per_s / factor)
    larger = [dataclasses.replace(bucket, size_bytes=bucket.size_bytes * factor) for bucket in buckets]
    assert not faster(step_with_exchange_s(step_s, nodes, ahead, buckets, slower), now_s)
    assert not faster(step_with_exchange_s(step_s, nodes, ahead, larger, network), now_s)
    assert not faster(step_with_exchange_s(step_s * factor, nodes, ahead, buckets, network), now_s)
    assert not faster(step_with_exchange_s(step_s, nodes + int(factor), ahead, buckets, network), now_s)


@given(ANCHORS, st.integers(0, 512), GRADIENTS, LINKS, FACTORS)
def test_no_prediction_is_either(anchor: Anchor, added: int, buckets: list[Bucket], network: Network, factor: float) -> None:
    """Whatever nodes the anchor has."""
    nodes = anchor.nodes + added
    now_s = predict("", anchor, nodes, 32, buckets, network).step_s
    longer = dataclasses.replace(anchor, step_s=anchor.step_s * factor)
    assert not faster(predict("", anchor, nodes + int(factor), 32, buckets, network).step_s, now_s)
    assert not faster(predict("", anchor, nodes, 32 * factor, buckets, network).step_s, now_s)
    assert not faster(predict("", longer, nodes, 32, buckets, network).step_s, now_s)


@given(ANCHORS, st.integers(0, 512), GRADIENTS, LINKS, FACTORS)
def test_no_prediction_is_faster_with_less_bandwidth_or_more_bytes(
    anchor: Anchor, added: int, buckets: list[Bucket], network: Network, factor: float
) -> None:
    """As long as the anchor's step has room for its all-reduces by the slower network."""
    slower = dataclasses.replace(network, bytes_per_s=network.bytes_per_s / factor)
    larger = [dataclasses.replace(bucket, size_bytes=bucket.size_bytes * factor) for bucket in buckets]
    room_s = sum(slower.all_reduce_s(bucket.size_bytes, anchor.nodes) for bucket in buckets)
    anchor, nodes = dataclasses.replace(anchor, step_s=max(anchor.step_s, room_s)), anchor.nodes + added
    now_s = predict("", anchor, nodes, 32, buckets, network).step_s
    assert not faster(predict("", anchor, nodes, 32, buckets, slower).step_s, now_s)
    assert not faster(predict("", anchor, nodes, 32, larger, network).step_s, now_s)


@given(st.integers(2, 1024), AHEAD, GRADIENTS, LINKS)
def test_from_this_step_on_the_exchange_matters_no_more(
    nodes: int, ahead: float, buckets: list[Bucket], network: Network
) -> None:
    step_s = hidden_from_s(nodes, ahead, buckets, network)
    assert step_with_exchange_s(step_s, nodes, ahead, buckets, network) == pytest.approx((1 + MATTERS) * step_s, rel=1e-9)
