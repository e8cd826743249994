from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation, Text

from hpcddp.analysis import How
from hpcddp.analysis.figures.axis import nodes_at, size_ticks, spread_out
from hpcddp.analysis.figures.colours import BASELINES, PARTS
from hpcddp.analysis.figures.figures import Drawing, InlineSvg, detail_drawings, inline_svg, point_drawings
from hpcddp.analysis.figures.scaling import MAX_PANELS, effect_drawings, effect_figure
from hpcddp.analysis.figures.style import DEFAULT, MM_PER_INCH, PANEL_MM, STYLES, MarkedFigure, fix_layout, save
from hpcddp.analysis.report.api import analyze as analyze_studies
from hpcddp.analysis.study.axes import TIMED_OTHERWISE, Axis
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.series import OUTSIDE
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.cluster.profile_file import load_profile
from hpcddp.commands.analyze import analyze
from hpcddp.core.point import flat_keys
from hpcddp.core.run_root import Study
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.analysis.synthetic import (
    FAILED,
    MS,
    Bucket,
    Recorded,
    point,
    predicted,
    write_marconi100,
    write_measured,
    write_prediction,
    write_run,
    write_study,
)

ALL_PARTS = {"data_wait": 0.4, "h2d_exposed": 0.05, "forward": 0.1, "backward": 0.2, "comm_exposed": 0.1, "optimizer": 0.05}


def figures(study: Study) -> tuple[dict[str, Figure], Findings]:
    found = find(load_study(study))
    return drawn(point_drawings(found)[0]), found


def drawn(figures: dict[str, Drawing]) -> dict[str, Figure]:
    return {name: draw() for name, draw in figures.items()}


def every(found: Findings, style: str) -> dict[str, Figure]:
    """Those of runs looked at closely, too."""
    made = point_drawings(found, STYLES[style])[0]
    return drawn(made | detail_drawings(found, STYLES[style])[0])


def xy(line: Line2D) -> Any:
    """The points of a line as lists."""
    return np.asarray(line.get_xydata()).tolist()


def small(folder: Path) -> Study:
    """1, 2 and 4 ranks on one machine."""
    steps = {point(1, ranks, device="cpu"): [40 + 5 * ranks + run for run in range(3)] for ranks in (1, 2, 4)}
    return write_measured(folder, steps, gpu=None, shares=ALL_PARTS)


def product(folder: Path) -> Study:
    """Nodes times GPUs per node, on two node types, with two batches."""
    kinds, batches, nodes, gpus = ("a40", "v100"), (32, 128), (1, 4), (1, 2, 4)
    points = [
        point(*layout, node_type=kind, batch_per_gpu=batch)
        for kind, batch, *layout in itertools.product(kinds, batches, nodes, gpus)
    ]
    return write_measured(
        folder, {each: [20 + each.layout.nodes + each.layout.gpus_per_node] for each in points}, shares=ALL_PARTS
    )


def hooked(folder: Path, plain_ms: int = 97) -> Study:
    """1, 2 and 4 GPUs, each with and without the communication hook, but 4 without it only."""
    points = [point(1, gpus, comm=comm) for gpus in (1, 2, 4) for comm in ("off", "on") if (gpus, comm) != (4, "on")]
    study = write_study(folder, points)
    for each in points:
        travels = [lambda rank: Bucket(size_bytes=8, ready_ns=(72 + 18 * (rank == 1)) * MS, done_ns=94 * MS)]
        buckets = travels if each.measure.comm == "on" else ()
        write_run(study, each, Recorded(step_ns=(100 if buckets else plain_ms) * MS, shares=ALL_PARTS, buckets=buckets))
    return study


def long_names(folder: Path) -> Study:
    """Series told apart by much: three of two points, one of a single point."""
    differences = [{"model": "resnet18"}, {"model": "my_package.models:build_it"}, {"model": "vgg11", "precision": "bf16"}]
    points = [point(nodes, 4, loader_workers_per_rank=2 + i, **each) for i, each in enumerate(differences) for nodes in (1, 16)]
    points.append(point(1, 2, model="my_package.models:build_other", precision="fp16", loader_workers_per_rank=16))
    return write_measured(folder, points, shares=ALL_PARTS)


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


def straggling(folder: Path) -> Study:
    """2 and 4 nodes of 4 GPUs, one rank slow on the smaller, all-reduces recorded; long host names, and a few long steps."""
    points = [point(nodes, 4, comm="on") for nodes in (2, 4)]
    study = write_study(folder, points)
    buckets = [Bucket(size_bytes=25_000_000, ready_ns=at * MS, done_ns=(at + 20) * MS) for at in (30, 50, 70)]
    slow = {**ALL_PARTS, "backward": 0.3, "comm_exposed": 0.0}
    for each in points:
        late = [lambda rank, i=i: Bucket(size_bytes=7, ready_ns=(40 + i + 9 * (rank == 5)) * MS, done_ns=75 * MS) for i in (1, 2)]
        recorded = Recorded(
            step_ns=lambda rank, step: (100 + 60 * (step % 13 == 0)) * MS,
            shares=ALL_PARTS,
            shares_of_rank={5: slow} if each.layout.nodes == 2 else {},
            steps=40,
            buckets=[*buckets, *late],
            of_rank={"host": "a-rather-long-host-name-r207n13"},
        )
        write_run(study, each, recorded)
    return study


def check_texts(name: str, figure: Figure) -> None:
    figure.draw_without_rendering()
    inside = figure.bbox.padded(1)
    boxes = [(text.get_text(), text.get_window_extent().padded(-1)) for text in texts(figure)]
    outside = [text for text, box in boxes if not (inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1))]
    assert outside == [], name
    pairs = itertools.combinations(boxes, 2)
    assert [(text, other) for (text, box), (other, there) in pairs if box.overlaps(there)] == [], name


@pytest.mark.dear
@pytest.mark.parametrize(
    ("make", "style"),
    [
        *((make, "default") for make in (write_marconi100, small, product, hooked, long_names, straggling)),
        *((make, "paper") for make in (write_marconi100, straggling)),
        (straggling, "slides"),
    ],
)
def test_no_text_overlaps_another_or_leaves_the_figure(tmp_path: Path, make: Callable[[Path], Study], style: str) -> None:
    for name, figure in every(find(load_study(make(tmp_path / "s"))), style).items():
        check_texts(name, figure)


@pytest.mark.dear
def test_a_dollar_in_a_name_begins_no_formula(tmp_path: Path) -> None:
    points = [point(nodes, 4, model=model) for model in ("$a_$", "$b_$") for nodes in (1, 2)]
    study = write_measured(tmp_path / "s", points, shares=ALL_PARTS, steps=20)
    for name, figure in every(find(load_study(study)), "default").items():
        figure.draw_without_rendering()
        assert any("_$" in text.get_text() for text in texts(figure)), name


@pytest.fixture(scope="module")
def marconi100(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return find(load_study(write_marconi100(tmp_path_factory.mktemp("runs") / "m100")))


def titles(figure: Figure) -> set[str]:
    """Of panels; of a figure of one panel its own."""
    bold = [text.get_text() for text in texts(figure) if text.get_fontweight() == "bold"]
    return {*bold} or {ax.get_title("left") for ax in figure.axes if ax.get_visible()}


@pytest.mark.dear
def test_figures_fit_a_column(marconi100: Findings) -> None:
    for figure in every(marconi100, "default").values():
        assert figure.get_figwidth() * MM_PER_INCH == pytest.approx(PANEL_MM)
        assert {text.get_fontsize() for text in texts(figure)} == {8.0}


@pytest.mark.dear
def test_on_paper_figures_leave_their_title_to_the_caption(marconi100: Findings) -> None:
    made = every(marconi100, "paper")
    for figure in made.values():
        assert figure.get_figwidth() == pytest.approx(3.4)
        assert {text.get_fontsize() for text in texts(figure)} == {7.0}
        assert titles(figure) == {""}
    assert made["scaling"].axes[0].get_ylabel() == "Throughput, samples/s"


@pytest.mark.dear
def test_panels_keep_their_names_on_paper(tmp_path: Path) -> None:
    found = find(load_study(long_names(tmp_path / "s")))
    made, _ = point_drawings(found, STYLES["paper"])
    assert all(title.startswith("workers") for title in titles(made["scaling"]()))


@pytest.mark.dear
def test_slides_are_of_16_to_9_with_large_type(marconi100: Findings) -> None:
    made, plain = every(marconi100, "slides"), every(marconi100, "default")
    for figure in made.values():
        assert figure.get_figwidth() / figure.get_figheight() == pytest.approx(16 / 9, rel=1e-3)
        (size,) = {float(text.get_fontsize()) for text in texts(figure)}
        assert 12 <= size <= 18
    thick, thin = (max(line.get_linewidth() for line in each["scaling"].axes[0].lines) for each in (made, plain))
    assert thick == pytest.approx(thin * 18 / 8)
    assert "Throughput, samples/s" in titles(made["scaling"])


@pytest.mark.dear
def test_a_long_breakdown_is_cut_on_slides(tmp_path: Path) -> None:
    found = find(load_study(product(tmp_path / "s")))
    slides, notes = point_drawings(found, STYLES["slides"])
    made = drawn(slides)
    assert len([text for text in made["breakdown"].axes[0].get_yticklabels() if " x " in text.get_text()]) == 12
    assert notes == ["figures/breakdown.png shows the first 12 of 24 points"]
    for name, figure in made.items():
        check_texts(name, figure)


@pytest.mark.dear
@pytest.mark.parametrize(("style", "dots"), [("default", 85 / 25.4 * 300), ("paper", 3.4 * 300), ("slides", 13.33 * 144)])
def test_files_are_the_same_bytes_twice_with_the_dots_of_their_style(
    marconi100: Findings, tmp_path: Path, style: str, dots: float
) -> None:
    """A PDF says neither when nor with what it was made; for a journal its fonts are TrueType."""
    draw = point_drawings(marconi100, STYLES[style])[0]["efficiency"]
    first, again = (save(draw(), tmp_path / name, STYLES[style]) for name in "ab")
    png, _, pdf = (file.read_bytes() for file in first)
    assert [file.suffix for file in first] == [".png", ".svg", ".pdf"]
    assert int.from_bytes(png[16:20], "big") == pytest.approx(dots, rel=0.01)
    assert pdf == again[2].read_bytes()
    assert not re.search(rb"Date|atplotlib", pdf)
    assert (b"/FontFile2" in pdf) is (style == "paper")


def test_commands_know_every_style() -> None:
    (option,) = [each for each in analyze.params if each.name == "style"]
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == list(STYLES)
    assert option.default == next(name for name, style in STYLES.items() if style == DEFAULT)


@pytest.mark.dear
def test_what_would_be_empty_is_not_drawn(tmp_path: Path) -> None:
    """Efficiency without a baseline; scaling of one layout."""
    assert sorted(figures(straggling(tmp_path / "s"))[0]) == ["breakdown", "scaling"]
    batches = [point(1, 4, batch_per_gpu=batch) for batch in (16, 32)]
    assert list(figures(write_measured(tmp_path / "t", batches))[0]) == ["breakdown"]


@pytest.mark.parametrize(("node_ms", "drawn"), [(30.0, ["1gpu"]), (33.0, ["1gpu", "1node"]), (60.0, ["1gpu", "1node"])])
def test_curves_of_baselines_do_not_lie_on_each_other(tmp_path: Path, node_ms: float, drawn: list[str]) -> None:
    """One is drawn, and said to be both, where they differ by less than 3 points; two curves have marks of their own apart."""
    steps = {
        point(1, 1): [30.0] * 6,
        point(1, 4): [node_ms] * 6,
        point(2, 4): [node_ms * 1.2] * 6,
        point(4, 4): [node_ms * 1.5] * 6,
    }
    figure = figures(write_measured(tmp_path / "s", steps))[0]["efficiency"]
    (ax,) = figure.axes
    figure.draw_without_rendering()
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    assert {line.get_color() for line in marks} == {BASELINES[base] for base in drawn}
    places = [tuple(line.get_transform().transform(line.get_xydata())[0]) for line in marks]
    assert all(abs(x - other_x) > 2 for (x, _), (other_x, _) in itertools.combinations(places, 2))
    assert {line.get_markerfacecolor() for line in marks if line.get_color() == BASELINES["1node"]} <= {"white"}
    (note,) = [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()]
    assert ("One curve stands for baselines that differ by less than 3 points." in note) is (len(drawn) == 1)
    ends = {text.get_text().partition("vs ")[2] for text in ax.texts} - {""}
    assert ends == {"1 GPU", "1 node"}


def test_parts_have_their_colours_and_order(tmp_path: Path) -> None:
    figure = figures(small(tmp_path / "s"))[0]["breakdown"]
    wanted = [colour.lower() for part, colour in PARTS.items() if part in ALL_PARTS or part == "unaccounted"]
    assert [to_hex(piece.get_facecolor()) for piece in bar(figure, 0)] == wanted


def bar(figure: Figure, height: int) -> list[Rectangle]:
    """The pieces of a bar, left to right."""
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return sorted((b for b in bars if abs(b.get_y() + b.get_height() / 2 - height) < 0.01 and b.get_width()), key=Rectangle.get_x)


@pytest.mark.dear
def test_communication_is_drawn_split_where_it_is_known(tmp_path: Path) -> None:
    figure = figures(hooked(tmp_path / "s"))[0]["breakdown"]
    colours = [{to_hex(piece.get_facecolor()) for piece in bar(figure, height)} for height in (1, 2)]
    split, unsplit = {PARTS["transfer"].lower(), PARTS["peer_wait"].lower()}, {PARTS["comm_exposed"].lower()}
    assert split <= colours[0]
    assert unsplit <= colours[1]
    assert PARTS["peer_wait"].lower() not in colours[1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()].count("exchange") == 1
    assert "an exchange includes it" in legend.get_title().get_text().replace("\n", " ")
    (stroke,) = [line for line in figure.axes[0].lines if line.get_marker() == "|"]
    assert xy(stroke) == [[97.0, 0.0], [97.0, 1.0]]


def test_a_steps_length_is_not_written_over_the_stroke(tmp_path: Path) -> None:
    (ax,) = figures(hooked(tmp_path / "s", plain_ms=130))[0]["breakdown"].axes
    written = {text.xy[1]: text.xy[0] for text in ax.texts if isinstance(text, Annotation) and text.get_text() == "100 ms"}
    assert written == {0: 130.0, 1: 130.0}
    assert ax.get_xlim()[1] > 130.0


@pytest.mark.dear
def test_the_legend_has_no_part_of_0_percent(tmp_path: Path) -> None:
    for share, there in ((0.002, False), (0.04, True)):
        points = [point(1, gpus) for gpus in (1, 2)]
        study = write_study(tmp_path / str(share), points)
        for each in points:
            shares = {"forward": 0.5, "backward": 0.3, "h2d_exposed": share if each.ranks == 1 else 0.002}
            write_run(study, each, Recorded(step_ns=100 * MS, shares=shares))
        (legend,) = figures(study)[0]["breakdown"].legends
        assert ("copy" in [text.get_text() for text in legend.get_texts()]) is there


SIGHT = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Linear RGB as it is seen (Machado, Oliveira & Fernandes 2009, severity 1)."""

TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, sight: Any) -> Any:
    """CIELAB of what is seen."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.asarray(sight) @ linear, 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_parts_are_told_apart_with_any_colour_vision(sight: str) -> None:
    """Any two at least 15 apart (CIE76), where 2.3 can just be seen."""
    labs = {part: lab(colour, SIGHT[sight]) for part, colour in PARTS.items() if part != "comm_exposed"}
    alike = [pair for pair in itertools.combinations(labs, 2) if np.linalg.norm(labs[pair[0]] - labs[pair[1]]) < 15]
    assert alike == []


def bands(folder: Path, gpus: tuple[int, ...], nodes: tuple[int, ...], anchor: int = 1) -> tuple[list[list[list[float]]], Figure]:
    """Corners of each band of predictions for these nodes, of 1, 2 and 4 measured ones with so many GPUs."""
    points = [point(n, g) for g in gpus for n in (1, 2, 4)]
    study = write_measured(folder, points)
    of = {each: point(anchor, each.layout.gpus_per_node).label for each in points if each.layout.nodes in nodes}
    write_prediction(study, *(predicted(each, 9.0 * each.global_batch, anchor=label) for each, label in of.items()))
    figure = drawn({"scaling": point_drawings(find(load_study(study)))[0]["scaling"]})["scaling"]
    found = [each.get_paths()[0].vertices for each in figure.axes[0].collections if isinstance(each, PolyCollection)]
    return [np.unique(np.asarray(corners), axis=0).round(1).tolist() for corners in found], figure


@pytest.mark.dear
def test_the_band_goes_from_its_measured_point_through_the_predicted_ones(tmp_path: Path) -> None:
    """It is 1,280 samples/s there, and a tenth to both sides of 2,304 and 4,608."""
    (corners,), figure = bands(tmp_path / "s", (4,), (2, 4))
    assert corners == [[4.0, 1280.0], [8.0, 2073.6], [8.0, 2534.4], [16.0, 4147.2], [16.0, 5068.8]]
    assert [text.get_text() for text in texts(figure)].count("predicted") == 1


@pytest.mark.dear
def test_each_number_of_gpus_per_node_has_its_band(tmp_path: Path) -> None:
    found, figure = bands(tmp_path / "s", (2, 4), (2, 4))
    assert [[corners[0][0], corners[-1][0]] for corners in found] == [[2.0, 8.0], [4.0, 16.0]]
    assert [text.get_text() for text in texts(figure)].count("predicted") == 1
    check_texts("scaling", figure)


@pytest.mark.dear
def test_one_point_whose_anchor_is_not_shown_has_a_band_that_can_be_seen(tmp_path: Path) -> None:
    (corners,), _ = bands(tmp_path / "s", (4,), (4,), anchor=3)
    assert [corners[0][0], corners[-1][0]] == pytest.approx([14.4, 17.6])


@pytest.mark.dear
def test_without_a_prediction_there_is_no_band(tmp_path: Path) -> None:
    found, figure = bands(tmp_path / "s", (4,), ())
    assert found == []
    assert "predicted" not in [text.get_text() for text in texts(figure)]


@pytest.mark.dear
def test_rejected_runs_are_drawn_hollow(tmp_path: Path) -> None:
    """Within the axis also where a size has no others."""
    small(tmp_path / "s")
    study = write_study(tmp_path / "s", [point(1, ranks, device="cpu") for ranks in (1, 2, 4, 8)], repeat=3)
    for ranks, run in ((4, 3), (8, 1)):
        write_run(study, point(1, ranks, device="cpu"), Recorded(step_ns=100 * MS, gates=FAILED, gpu=None, job="900"), run)
    (ax,) = figures(study)[0]["scaling"].axes
    hollow = [xy(line) for line in ax.lines if line.get_markerfacecolor() == "none" and line.get_marker() == "o"]
    assert hollow == [[[4.0, 1280.0], [8.0, 2560.0]]]
    assert ax.get_xlim()[1] > 8
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["rejected"]


@pytest.mark.dear
def test_the_ideal_goes_through_its_baseline(tmp_path: Path) -> None:
    made, found = figures(write_marconi100(tmp_path / "s"))
    rate = dict(zip(found.scaling["gpus"], found.scaling["samples_per_s"], strict=True))
    ideals = [xy(line) for line in made["scaling"].axes[0].lines if line.get_linestyle() == "--"]
    assert ideals == [[[1, rate[1]], [64, rate[1] * 64]], [[4, rate[4]], [64, rate[4] * 16]]]


@pytest.mark.parametrize(
    ("sizes", "ticks"),
    [([1, 2, 3, 4, 8], [1, 2, 4, 8]), ([4, 8, 64], [4, 8, 16, 32, 64]), ([6, 12, 24], [6, 12, 24]), ([1], [1])],
)
def test_ticks_are_powers_of_two_where_sizes_are(sizes: list[int], ticks: list[int]) -> None:
    assert size_ticks(sizes) == ticks


def test_nodes_at_a_size() -> None:
    """A range where layouts of one size differ, nothing for a size that was not measured."""
    points = pd.DataFrame({"gpus": [1, 4, 4, 16], "nodes": [1, 1, 4, 4]})
    assert [nodes_at(points, gpus) for gpus in (1, 4, 16, 3)] == ["1", "1-4", "4", ""]


@pytest.mark.parametrize(
    ("heights", "apart"),
    [([0.0, 20.0], [0.0, 20.0]), ([0.0, 4.0], [-3.0, 7.0]), ([0.0, 9.0, 10.0], [-3.666, 6.333, 16.333]), ([], [])],
)
def test_labels_move_as_little_as_need_be(heights: list[float], apart: list[float]) -> None:
    assert spread_out(heights, 10.0) == pytest.approx(apart, abs=0.001)


@pytest.mark.dear
def test_a_home_that_cannot_be_written_is_no_news(tmp_path: Path) -> None:
    """Matplotlib gets a temporary folder, which goes again: nothing on stderr, nothing left."""
    study = write_measured(tmp_path / "s", [point(1, 1)])
    (tmp_path / "tmp").mkdir()
    command = [str(Path(sys.executable).parent / "hpcddp"), "analyze", str(study.folder), "-o", str(tmp_path / "out")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MPL"))}
    env = {**environment, "HOME": "/proc/nobody", "TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out/s/figures/breakdown.png").is_file()
    assert list((tmp_path / "tmp").iterdir()) == []


OTHER_GPUS = [
    *("A40", "NVIDIA GH200 480GB by its long name"),
    *(pytest.param(name, marks=pytest.mark.soak) for name in ("RTX 4090", "RTX A6000", "NVIDIA H100 80GB HBM3")),
]


@pytest.mark.dear
@pytest.mark.parametrize("gpu", OTHER_GPUS)
def test_a_point_on_another_gpu_has_its_whole_name(tmp_path: Path, gpu: str) -> None:
    """No label is cut, and the axes keep their room (matplotlib would warn)."""
    points = [point(1, 1), point(1, 4), point(2, 4)]
    study = write_study(tmp_path / "s", points, repeat=2)
    for each, run in itertools.product(points, (1, 2)):
        kind = gpu if each.ranks == 4 and run == 2 else "NVIDIA A100-SXM4-80GB"
        write_run(study, each, Recorded(step_ns=100 * MS, steps=30, gpu=kind, job=str(run)), run)
    found = find(load_study(study))
    for figure in (figure for style in STYLES for figure in every(found, style).values()):
        figure.draw_without_rendering()
        for ax in figure.axes:
            labels = [label for label in ax.get_yticklabels() if label.get_text()]
            assert all(label.get_window_extent().x0 >= -1 for label in labels)
            assert ax.get_window_extent().width > 0.15 * figure.bbox.width


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MarkedFigure]:
    """All that a study with a straggler has, laid out."""
    found = find(load_study(straggling(tmp_path_factory.mktemp("runs") / "s")))
    made = point_drawings(found)[0] | detail_drawings(found)[0]
    drawn = {name: draw() for name, draw in made.items()}
    for figure in drawn.values():
        fix_layout(figure, DEFAULT)
    return drawn


def test_the_figure_of_all_steps_says_how_many_they_are(laid_out: dict[str, MarkedFigure]) -> None:
    assert [text.get_text() for text in laid_out["steps"].legends[0].get_texts()] == ["Each row: 40 timed steps of all its runs."]


def svg_texts(panel: InlineSvg) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(panel.markup).iter("text")]


@pytest.mark.dear
@pytest.mark.parametrize("name", ["scaling", "breakdown", "steps", "ranks", "timeline"])
def test_the_pages_policy_refuses_nothing_of_it(laid_out: dict[str, MarkedFigure], name: str) -> None:
    markup = "".join(panel.markup for panel in inline_svg(laid_out[name], name))
    assert "style" not in markup
    assert not re.search(r"https?:", markup)
    assert all(target.startswith("data:image/png;base64,") for target in re.findall(r'href="([^#"][^"]*)"', markup))
    targets = set(re.findall(r'(?:href="|url\()#([^")]+)', markup))
    assert targets <= set(re.findall(r' id="([^"]+)"', markup))


@pytest.mark.dear
def test_panels_are_elements_of_their_own_and_so_are_entries_of_a_shared_legend(laid_out: dict[str, MarkedFigure]) -> None:
    panels = inline_svg(laid_out["timeline"], "One step")
    marked, legend = ([panel for panel in panels if panel.marked is of_panel] for of_panel in (True, False))
    assert [svg_texts(panel)[-1 if i == 0 else -3][:3] for i, panel in enumerate(marked)] == ["2 x", "4 x"]
    assert [svg_texts(entry) for entry in legend][-2:] == [["bucket waits for a rank"], ["bucket in flight"]]


def test_a_mark_lies_over_what_it_is_of(laid_out: dict[str, MarkedFigure]) -> None:
    (panel,) = inline_svg(laid_out["breakdown"], "Parts", parts=True)
    marks = [rect.attrib for rect in ElementTree.fromstring(panel.markup).iter("rect") if rect.get("class") == "mark"]
    first = [mark for mark in marks if mark["y"] == marks[0]["y"]]
    ends = [float(mark["x"]) + float(mark["width"]) for mark in first]
    assert [float(mark["x"]) for mark in first[1:]] == pytest.approx(ends[:-1], abs=0.11)
    assert first[0]["aria-label"] == "data wait 41.8 ms, of the step 40 %, layout 2 x 4"
    assert {mark["height"] for mark in marks} == {first[0]["height"]}


@pytest.mark.dear
def test_the_page_has_the_same_figures_whatever_the_files_are_made_for(tmp_path: Path) -> None:
    write_measured(tmp_path / "s", [point(1, 4), point(2, 4)], shares={"forward": 0.5, "backward": 0.5})
    pages = []
    for style in ("default", "slides"):
        analyze_studies(tmp_path / "s", tmp_path / style, How(style=style))
        pages.append(re.findall(r"<svg class=.*?</svg>", (tmp_path / style / "s/index.html").read_text(), re.DOTALL))
    assert len(pages[0]) == 4
    assert pages[0] == pages[1]


SHIPPED = sorted((Path(__file__).parents[3] / "jobs").glob("*.yaml"))


def is_effect(key: str) -> bool:
    """Whether it may change how fast training is: not its size, and not how it is timed."""
    return key not in OUTSIDE and key != "work" and (key in TIMED_OTHERWISE or not key.startswith("measure."))


@pytest.mark.dear
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_key_that_a_sweep_varies_has_a_figure(tmp_path: Path, file: Path) -> None:
    source = read_sweep(file)
    assert source.sweep.cluster is not None
    planned = expand(source, load_profile(source.sweep.cluster))
    points = [each.point for each in planned if each.point.work != "comm" and each.point.layout.nodes <= 2]
    study = write_study(tmp_path / "s", points, hold=source.sweep.hold)
    for i, each in enumerate(points):
        write_run(study, each, Recorded(step_ns=(100 + i) * MS, steps=2, gpu=each.layout.node_type))
    found = find(load_study(study)).effects
    varied = set()
    for name, group in source.groups.items():
        values = [flat_keys(each.point) for each in planned if name in each.groups and not each.is_added]
        varied |= {key for key in group.keys if is_effect(key) and len({str(flat.get(key)) for flat in values}) > 1}
    assert varied <= {key for axis in found for key in (axis.key, *axis.joint)}
    figures, _ = effect_drawings(found)
    assert set(figures) == {axis.stem for axis in found}
    for axis in found:
        panels = [ax for ax in figures[axis.stem]().axes if ax.get_visible()]
        assert len(panels) == min(len(axis.panels), MAX_PANELS), axis.key


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> list[Axis]:
    """Many numbers, long words, and a value of which much is said."""
    steps = {
        point(1, gpus, parallel=parallel, batch_per_gpu=batch): [20 + batch]
        for gpus, parallel in ((1, "ddp"), (1, "data_parallel"), (1, "none"), (2, "ddp"), (2, "data_parallel"))
        for batch in (32, 64, 128, 256, 512, 1024, 2048)
    }
    return find(load_study(write_measured(tmp_path_factory.mktemp("effects"), steps, shares={"data_wait": 0.25}))).effects


@pytest.mark.dear
@pytest.mark.parametrize("style", STYLES)
def test_no_text_of_a_figure_of_effects_overlaps_another(effects: list[Axis], style: str) -> None:
    for axis in effects:
        check_texts(axis.stem, effect_figure(axis, STYLES[style]))


def test_the_base_keeps_its_label(tmp_path: Path) -> None:
    """Of values too close to each other for the labels of all, those go that reach the base's."""
    points = [*(point(1, 4, batch_per_gpu=batch) for batch in (60, 62, 64, 66, 256)), point(2, 4, batch_per_gpu=62)]
    (axis,) = find(load_study(write_measured(tmp_path / "s", points))).effects
    (ax,) = effect_figure(axis).axes
    assert axis.panels[0].values[axis.panels[0].base].text == "62"
    assert [tick.get_text().splitlines()[0] for tick in ax.get_xticklabels()] == ["62", "256"]
