from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis.figures.axis import EndLabel, end_labels, log_ticks, rate_axis, short_hosts, size_axis, tracks
from hpcddp.analysis.figures.breakdown import BAR_MM, TEXT_MM, lay_lines
from hpcddp.analysis.figures.style import DEFAULT, new_figure
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.series import full_names, short_names
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import Point
from tests.analysis.synthetic import point, write_measured


@pytest.mark.parametrize("middle", [1.0, 1.24, 3.1, 4.9, 7.1, 12059.0])
def test_rates_that_hardly_differ_have_numbers_too(middle: float) -> None:
    with new_figure(DEFAULT, 60.0) as (_, (ax,)):
        rate_axis(ax, 0.999 * middle, 1.001 * middle, str)
        low, high = ax.get_ylim()
        ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert len(ticks) >= 2
    assert (low * high) ** 0.5 == pytest.approx(middle, rel=1e-5)


SIZES: list[Sequence[int]] = [range(1, 17), range(4, 52, 4), [2**k for k in range(11)], [1, 2, 3, 6, 12, 24, 48, 96]]
PRODUCT = [(nodes, gpus) for nodes in (1, 2, 4, 8, 16, 32) for gpus in (1, 2, 4)]
"""It has sizes of `16-32` nodes."""


@pytest.mark.parametrize(
    ("layouts", "last"),
    [*(([(size, 1) for size in sizes], f"{sizes[-1]}\n{sizes[-1]}") for sizes in SIZES), (PRODUCT, "128\n32")],
)
def test_labels_of_sizes_do_not_reach_each_other(layouts: list[tuple[int, int]], last: str) -> None:
    """Beside a line's name, however many sizes there are; the largest has its label."""
    points = pd.DataFrame([{"gpus": nodes * gpus, "nodes": nodes, "device": "cuda"} for nodes, gpus in layouts])
    with new_figure(DEFAULT, 60.0) as (figure, (ax,)):
        size_axis(ax, points)
        end_labels(ax, [EndLabel(0.5, "ideal from 1 node", "black")])
        figure.draw_without_rendering()
        labels = ax.get_xticklabels()
        boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    assert labels[-1].get_text() == last


def test_hosts_that_begin_alike_keep_names_of_their_own() -> None:
    """Those of clouds and of large clusters differ in their last number."""
    assert short_hosts(["ip-172-31-12-134", "ip-172-31-12-99"]) == {"ip-172-31-12-134": "…134", "ip-172-31-12-99": "…99"}
    assert list(short_hosts(["compute-0-0-0012", "compute-0-0-0013"]).values()) == ["…0012", "…0013"]


def test_other_names_are_cut_to_what_has_room() -> None:
    long = "login7.cluster.example.edu"
    assert short_hosts(["r001", long, "r001"]) == {long: "login7.clust", "r001": "r001"}
    assert short_hosts([long]) == {long: "login7.clust"}


def table(folder: Path, *points: Point) -> Any:
    return find(load_study(write_measured(folder / "s", points)))


@pytest.mark.dear
def test_a_heading_says_what_differs_and_stands_by_its_bars(tmp_path: Path) -> None:
    points = [point(1, gpus, batch_per_gpu=batch) for batch in (32, 64) for gpus in (1, 2, 4)[batch == 64 :]]
    found = table(tmp_path, *points, point(1, 4, loader_workers_per_rank=8))
    layout = lay_lines(found.shown, full_names(found.shown_apart), short_names(found.shown_apart), BAR_MM)
    lines = sorted([*layout.headings, *((line.text, line.at) for line in layout.bars)], key=itemgetter(1))
    assert [text for text, _ in lines] == [
        *("batch/GPU 32, workers 2", "1 x 1", "1 x 2", "1 x 4", "1 x 4, workers 8"),
        *("the same with batch/GPU 64", "1 x 2", "1 x 4"),
    ]
    *_, before, heading, after, _ = [at for _, at in lines]
    assert heading - before > after - heading > TEXT_MM / BAR_MM


@pytest.mark.parametrize(
    ("layouts", "lines"),
    [([(1, 4), (4, 1)], [1, 1]), ([(1, 4), (2, 4)], [2]), ([(1, 4), (4, 4)], [2]), ([(1, 1), (1, 2), (1, 4)], [3])],
)
def test_lines_join_what_differs_in_gpus_or_in_nodes_alone(layouts: list[tuple[int, int]], lines: list[int]) -> None:
    """One node of four GPUs and four nodes of one have as many, and nothing between them."""
    points = pd.DataFrame([{"nodes": nodes, "gpus_per_node": gpus, "gpus": nodes * gpus} for nodes, gpus in layouts])
    assert [len(line) for line in tracks(points)] == lines


def test_each_line_has_its_points_in_order_and_no_other() -> None:
    """Given in any order: more GPUs in one node, then more nodes of one GPU and of four; the largest nodes come last."""
    layouts = [(4, 4), (1, 2), (4, 1), (1, 4), (2, 4), (1, 1)]
    points = pd.DataFrame([{"nodes": nodes, "gpus_per_node": gpus, "gpus": nodes * gpus} for nodes, gpus in layouts])
    drawn = [list(zip(line["nodes"], line["gpus_per_node"], strict=True)) for line in tracks(points)]
    assert drawn == [[(1, 1), (1, 2), (1, 4)], [(1, 1), (4, 1)], [(1, 4), (2, 4), (4, 4)]]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.9, 11, [1, 2, 5, 10]), (300, 900, [300, 500, 700]), (1, 2000, [1, 10, 100, 1000])],
)
def test_ticks_of_a_logarithmic_axis_are_closer_where_it_is_shorter(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)
