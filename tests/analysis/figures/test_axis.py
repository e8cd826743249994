from __future__ import annotations

import itertools
from collections.abc import Sequence

import pandas as pd
import pytest
from matplotlib.transforms import Bbox

from hpcddp.analysis.figures.axis import EndLabel, end_labels, rate_axis, short_hosts, size_axis
from hpcddp.analysis.figures.style import DEFAULT, new_figure


@pytest.mark.parametrize("middle", [1.0, 1.24, 3.1, 4.9, 7.1, 12059.0])
def test_rates_that_hardly_differ_have_numbers_too(middle: float) -> None:
    """Two of them at least; what was measured stays in the middle."""
    with new_figure(DEFAULT, 60.0) as (_, (ax,)):
        rate_axis(ax, 0.999 * middle, 1.001 * middle, str)
        low, high = ax.get_ylim()
        ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert len(ticks) >= 2
    assert (low * high) ** 0.5 == pytest.approx(middle, rel=1e-5)


@pytest.mark.parametrize("sizes", [range(1, 17), range(4, 52, 4), [2**k for k in range(11)], [1, 2, 3, 6, 12, 24, 48, 96]])
def test_labels_of_sizes_do_not_reach_each_other(sizes: Sequence[int]) -> None:
    """However many sizes there are; the largest has its label."""
    points = pd.DataFrame({"gpus": sizes, "nodes": sizes, "device": "cuda"})
    labels, boxes = drawn(points)
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    assert labels[-1] == f"{sizes[-1]}\n{sizes[-1]}"


def test_nor_do_the_nodes_below_them() -> None:
    """A product of nodes and GPUs per node has sizes of `16-32` nodes."""
    layouts = [(nodes, gpus) for nodes in (1, 2, 4, 8, 16, 32) for gpus in (1, 2, 4)]
    points = pd.DataFrame([{"gpus": nodes * gpus, "nodes": nodes, "device": "cuda"} for nodes, gpus in layouts])
    labels, boxes = drawn(points)
    assert "32\n8-32" in labels
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def drawn(points: pd.DataFrame) -> tuple[list[str], list[Bbox]]:
    """Labels of the axis beside a line's name, and where they are."""
    with new_figure(DEFAULT, 60.0) as (figure, (ax,)):
        size_axis(ax, points)
        end_labels(ax, [EndLabel(0.5, "ideal from 1 node", "black")])
        figure.draw_without_rendering()
        found = ax.get_xticklabels()
        return [label.get_text() for label in found], [label.get_window_extent() for label in found]


def test_hosts_that_begin_alike_keep_names_of_their_own() -> None:
    """Those of clouds and of large clusters differ in their last number."""
    assert short_hosts(["ip-172-31-12-134", "ip-172-31-12-99"]) == {"ip-172-31-12-134": "…134", "ip-172-31-12-99": "…99"}
    assert list(short_hosts(["compute-0-0-0012", "compute-0-0-0013"]).values()) == ["…0012", "…0013"]


def test_other_names_are_cut_to_what_has_room() -> None:
    """Each once, as it begins; a host alone too."""
    long = "login7.cluster.example.edu"
    assert short_hosts(["r001", long, "r001"]) == {long: "login7.clust", "r001": "r001"}
    assert short_hosts([long]) == {long: "login7.clust"}
