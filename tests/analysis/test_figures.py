from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from hpcddp.analysis.axis import nodes_at, size_ticks
from hpcddp.analysis.colours import PARTS
from hpcddp.analysis.figures import draw
from hpcddp.analysis.findings import Findings, find
from hpcddp.analysis.labels import spread_out
from hpcddp.analysis.load import load_study
from hpcddp.analysis.style import COLUMN_MM, MM_PER_INCH
from hpcddp.runroot import Study

from .synthetic import FAILED, MS, Told, point, write_marconi100, write_run, write_runs, write_study

ALL_PARTS = {"data_wait": 0.4, "h2d_exposed": 0.05, "forward": 0.1, "backward": 0.2, "comm_exposed": 0.1, "optimizer": 0.05}


def figures(study: Study) -> tuple[dict[str, Figure], Findings]:
    found = find(load_study(study))
    return draw(found.scaling, found.runs, found.apart)[0], found


def xy(line: Line2D) -> Any:
    """The points of a line as lists."""
    return np.asarray(line.get_xydata()).tolist()


def small(folder: Path) -> Study:
    """1, 2 and 4 ranks on one machine."""
    points = [point(1, ranks, device="cpu") for ranks in (1, 2, 4)]
    study = write_study(folder, points, repeat=3)
    for each in points:
        write_runs(study, each, [(40 + 5 * each.ranks + run) * MS for run in range(3)], gpu=None, shares=ALL_PARTS)
    return study


def product(folder: Path) -> Study:
    """Nodes times GPUs per node, on two node types, with two batches."""
    points = [
        point(nodes, gpus, node_type=kind, batch_per_gpu=batch)
        for kind in ("a40", "v100")
        for batch in (32, 128)
        for nodes in (1, 2, 4)
        for gpus in (1, 2, 4)
    ]
    study = write_study(folder, points)
    for each in points:
        write_runs(study, each, [(20 + each.layout.nodes + each.layout.gpus_per_node) * MS], shares=ALL_PARTS)
    return study


def texts(figure: Figure) -> list[Text]:
    """The texts that are drawn: tick labels beyond an axis's limits exist, but are not."""
    unseen = set()
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            outside = [tick for tick in axis.get_major_ticks() if not ax.get_visible() or not low <= tick.get_loc() <= high]
            unseen |= {label for tick in outside for label in (tick.label1, tick.label2)}
    found = [text for text in figure.findobj(Text) if isinstance(text, Text) and text not in unseen]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("make", [write_marconi100, small, product])
def test_no_text_overlaps_another_or_leaves_the_figure(tmp_path: Path, make: Callable[[Path], Study]) -> None:
    """Every text has a place of its own, within the figure."""
    for name, figure in figures(make(tmp_path / "s"))[0].items():
        figure.draw_without_rendering()
        whole = figure.bbox.padded(1)
        boxes = [(text.get_text(), text.get_window_extent().padded(-1)) for text in texts(figure)]
        outside = [text for text, box in boxes if not (whole.contains(box.x0, box.y0) and whole.contains(box.x1, box.y1))]
        assert outside == [], name
        pairs = itertools.combinations(boxes, 2)
        assert [(text, other) for (text, box), (other, there) in pairs if box.overlaps(there)] == [], name


def test_figures_fit_a_column(tmp_path: Path) -> None:
    """85 mm wide, type of 8 points."""
    for figure in figures(write_marconi100(tmp_path / "s"))[0].values():
        assert figure.get_figwidth() * MM_PER_INCH == pytest.approx(COLUMN_MM)
        assert {text.get_fontsize() for text in texts(figure)} == {8.0}


def test_parts_have_their_colours_and_order(tmp_path: Path) -> None:
    """The first bar's pieces, left to right."""
    figure = figures(small(tmp_path / "s"))[0]["breakdown"]
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    first = sorted((bar for bar in bars if abs(bar.get_y() + bar.get_height() / 2) < 0.01), key=lambda bar: bar.get_x())
    wanted = [colour.lower() for part, colour in PARTS.items() if part in ALL_PARTS or part == "unaccounted"]
    assert [to_hex(bar.get_facecolor()) for bar in first] == wanted


def test_rejected_runs_are_drawn_hollow(tmp_path: Path) -> None:
    """At the throughput they had."""
    study = small(tmp_path / "s")
    write_run(study, point(1, 4, device="cpu"), Told(step_ns=100 * MS, gates=FAILED, gpu=None, job="900"), run=3)
    made = figures(study)[0]["scaling"]
    lines = made.axes[0].lines
    hollow = [xy(line) for line in lines if line.get_markerfacecolor() == "none" and line.get_marker() == "o"]
    assert hollow == [[[4.0, 1280.0]]]
    legend = made.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["rejected"]


def test_a_size_with_rejected_runs_only_is_within_the_axis(tmp_path: Path) -> None:
    """Shown, not cut off, though the table has no row for it."""
    points = [point(1, 1), point(2, 1), point(4, 1)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS], gates=FAILED if each.layout.nodes == 4 else ())
    assert figures(study)[0]["scaling"].axes[0].get_xlim()[1] > 4


def test_the_ideal_goes_through_its_baseline(tmp_path: Path) -> None:
    """From one GPU's and one node's throughput straight to 64 times the one and 16 times the other."""
    made, found = figures(write_marconi100(tmp_path / "s"))
    rate = dict(zip(found.scaling["ranks"], found.scaling["samples_per_s"], strict=True))
    ideals = [xy(line) for line in made["scaling"].axes[0].lines if line.get_linestyle() == "--"]
    assert ideals == [[[1, rate[1]], [64, rate[1] * 64]], [[4, rate[4]], [64, rate[4] * 16]]]


def test_one_layout_has_no_scaling_figure(tmp_path: Path) -> None:
    """A batch sweep on one node: where the step goes is all there is to draw."""
    points = [point(1, 4, batch_per_gpu=batch) for batch in (16, 32)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [MS])
    assert list(figures(study)[0]) == ["breakdown"]


@pytest.mark.parametrize(
    ("sizes", "ticks"),
    [([1, 2, 3, 4, 8], [1, 2, 4, 8]), ([4, 8, 64], [4, 8, 16, 32, 64]), ([6, 12, 24], [6, 12, 24]), ([1], [1])],
)
def test_ticks_are_powers_of_two_where_sizes_are(sizes: list[int], ticks: list[int]) -> None:
    """Six GPUs per node get their own ticks."""
    assert size_ticks(sizes) == ticks


def test_nodes_at_a_size(tmp_path: Path) -> None:
    """A range where layouts of one size differ, nothing for a size that was not measured."""
    scaling = find(load_study(product(tmp_path / "s"))).scaling
    assert [nodes_at(scaling, ranks) for ranks in (1, 4, 16, 3)] == ["1", "1-4", "4", ""]


@pytest.mark.parametrize(
    ("heights", "apart"),
    [([0.0, 20.0], [0.0, 20.0]), ([0.0, 4.0], [-3.0, 7.0]), ([0.0, 9.0, 10.0], [-3.666, 6.333, 16.333]), ([], [])],
)
def test_labels_move_as_little_as_need_be(heights: list[float], apart: list[float]) -> None:
    """Ten points between neighbours; those that touch share their middle."""
    assert spread_out(heights, 10.0) == pytest.approx(apart, abs=0.001)
