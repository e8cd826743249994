"""Bars and their headings in figures of many series, and which points a line joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.figures.breakdown import BAR_MM, TEXT_MM, BarLayout, lay_lines
from hpcddp.analysis.figures.series_lines import tracks
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.series import full_names, short_names
from hpcddp.analysis.verdicts.findings import find
from hpcddp.core.point import Point
from tests.analysis.synthetic import MS, point, write_runs, write_study


def table(folder: Path, *points: Point) -> Any:
    study = write_study(folder / "s", points)
    for each in points:
        write_runs(study, each, [100 * MS])
    return find(load_study(study))


def laid(folder: Path, *points: Point) -> BarLayout:
    found = table(folder, *points)
    return lay_lines(found.shown, full_names(found.shown_apart), short_names(found.shown_apart), BAR_MM)


@pytest.mark.dear
def test_a_heading_says_what_differs_and_stands_by_its_bars(tmp_path: Path) -> None:
    """The first series in full; single points that differ in little come behind it, as no other heading is theirs."""
    points = [point(1, gpus, batch_per_gpu=batch) for batch in (32, 64) for gpus in (1, 2, 4)[batch == 64 :]]
    layout = laid(tmp_path, *points, point(1, 4, loader_workers_per_rank=8))
    assert [line.text for line in layout.lines] == [
        *("batch/GPU 32, workers 2", "1 x 1", "1 x 2", "1 x 4", "1 x 4, workers 8"),
        *("the same with batch/GPU 64", "1 x 2", "1 x 4"),
    ]
    *_, before, heading, after, _ = [line.at for line in layout.lines]
    assert heading - before > after - heading > TEXT_MM / BAR_MM


def test_lines_join_what_differs_in_gpus_or_in_nodes_alone(tmp_path: Path) -> None:
    """One node of four GPUs and four nodes of one have as many, and nothing between them."""
    found = table(tmp_path, point(1, 4), point(4, 1)).shown
    assert [len(line) for line in tracks(found)] == [1, 1]


@pytest.mark.parametrize("nodes", [2, 4])
def test_lines_go_on_over_nodes(tmp_path: Path, nodes: int) -> None:
    """With the same GPUs in each."""
    found = table(tmp_path, point(1, 4), point(nodes, 4)).shown
    assert [len(line) for line in tracks(found)] == [2]
