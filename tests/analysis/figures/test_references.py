from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from hpcddp.analysis.figures.figures import point_drawings
from hpcddp.analysis.figures.references import FILE, overlay, published, reference_names
from hpcddp.analysis.figures.style import MarkedFigure
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.cli import main
from hpcddp.core.errors import USAGE, UsageError
from tests.analysis.synthetic import point, write_measured


def rows() -> list[dict[str, str]]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def figure_of(folder: Path, *names: str, device: str = "cuda", rejected: bool = False) -> tuple[MarkedFigure, list[str]]:
    """The scaling figure of a study on 1 and 2 nodes with these points beside it, and the notes."""
    points = [point(nodes, 4, device=device) for nodes in (1, 2)]
    found = find(load_study(write_measured(folder, points, gpu=None if device == "cpu" else "V100")))
    figures, notes = point_drawings(found, overlay=overlay(names, rejected))
    return figures["scaling"](), notes


def marks(figure: Figure) -> dict[str, list[list[float]]]:
    """Marker with its filling (`Dwhite`) -> the points drawn so."""
    found: dict[str, list[list[float]]] = {}
    for line in figure.axes[0].lines:
        key = f"{line.get_marker()}{line.get_markerfacecolor()}"
        found.setdefault(key, []).extend(np.asarray(line.get_xydata()).tolist())
    return found


def test_every_point_says_where_it_is_from_and_how_far_it_goes() -> None:
    for row in rows():
        assert row["source"], row
        assert row["cite"], row
        assert row["kind"] in ("published", "derived"), row
        assert row["quality"] in ("ok", "caveat", "reject"), row
        assert row["quality"] != "caveat" or row["caveat"], row
        assert row["quality"] != "reject" or row["note"], row
        assert float(row["value"]) > 0, row


def test_every_name_can_be_drawn() -> None:
    for name in reference_names():
        points = overlay([name])
        assert len(points)
        assert (points["samples_per_s"] > 0).all()
        assert points["gpus"].dtype.kind == "i"


def test_throughput_is_samples_over_time() -> None:
    """Marconi100: ImageNet in an epoch of 139 s on 64 GPUs, not the figure's label; Kempner: 90 epochs in 2,640 s."""
    rate = dict(zip(overlay(["marconi100"])["gpus"], overlay(["marconi100"])["samples_per_s"], strict=True))
    assert rate[64] == pytest.approx(1_281_167 / 139, rel=1e-3)
    assert overlay(["kempner-a100"])["samples_per_s"].iloc[-1] == pytest.approx(90 * 1_281_167 / 2640)


def test_rejected_points_are_hidden_unless_asked_for() -> None:
    """The seven averages of bigMNIST that are not averages."""
    assert set(overlay(["rcc-bigmnist"])["quality"]) == {"caveat"}
    assert (overlay(["rcc-bigmnist"], rejected=True)["quality"] == "reject").sum() == 7
    (note,) = published(["rcc-bigmnist"]).notes
    assert "7 rejected points hidden" in note


def test_unknown_names_are_refused_with_the_nearest_and_a_few() -> None:
    with pytest.raises(UsageError, match=r"did you mean `marconi100`\? \(known: aws-g5, .* and \d+ more\)"):
        overlay(["marconi"])


@pytest.mark.dear
@pytest.mark.parametrize(
    ("name", "doubts", "drawn"),
    [
        ("marconi100", {"caveat": 8}, {"Dwhite": 8}),
        ("kempner-a100", {}, {"D#009E73": 7}),
        ("rcc-bigmnist", {"reject": 7, "caveat": 47}, {"Dwhite": 47, "xwhite": 7}),
    ],
)
def test_published_points_say_how_far_they_may_be_trusted(
    tmp_path: Path, name: str, doubts: dict[str, int], drawn: dict[str, int]
) -> None:
    """Filled, hollow or crossed out; when pointed at; and in the legend."""
    figure, _ = figure_of(tmp_path / "s", name, rejected=True)
    published = [mark.values for mark in figure.marks if "published" in mark.values]
    assert len(published) == len(overlay([name], rejected=True))
    assert Counter(values["quality"] for values in published if "quality" in values) == doubts
    assert {key: len(points) for key, points in marks(figure).items() if key[0] in "Dx"} == drawn
    legend = " ".join(text.get_text() for text in figure.legends[0].get_texts())
    assert ("hollow: published with a caveat" in legend, "x: rejected" in legend) == ("caveat" in doubts, "reject" in doubts)


def test_sources_are_in_the_legend(tmp_path: Path) -> None:
    figure, _ = figure_of(tmp_path / "s", "marconi100")
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [
        "Dots: runs (1 each).",
        "measured",
        "marconi100: ResNet-18, V100 16 GB, fp32\nGherardi, bachelor thesis, ch. 6",
        "hollow: published with a caveat",
    ]


@pytest.mark.dear
def test_the_axis_holds_all_points_and_no_text_leaves_the_figure(tmp_path: Path) -> None:
    figure, _ = figure_of(tmp_path / "s", "marconi100", "dgx1-v100-16gb-fp32", "rcc-mnist")
    without, _ = figure_of(tmp_path / "t")
    figure.draw_without_rendering()
    assert figure.axes[0].get_xlim()[1] > 64
    sources = [text.get_text().partition(":")[0] for text in figure.legends[0].get_texts()]
    assert sources[2:5] == ["marconi100", "dgx1-v100-16gb-fp32", "rcc-mnist"]
    assert figure.get_figheight() > without.get_figheight()
    inside = figure.bbox.padded(1)
    for text in figure.legends[0].get_texts():
        box = text.get_window_extent()
        assert inside.contains(box.x0, box.y0), text
        assert inside.contains(box.x1, box.y1), text


def test_gpus_are_not_drawn_beside_cpus(tmp_path: Path) -> None:
    figure, notes = figure_of(tmp_path / "s", "marconi100", device="cpu")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Dots: runs (1 each)."]
    assert "published points are of GPUs: they are not drawn beside ranks on CPUs" in notes


def test_the_command_refuses_an_unknown_name_before_it_writes(tmp_path: Path) -> None:
    write_measured(tmp_path / "s", [point(1, 4)])
    done = CliRunner().invoke(main, ["analyze", str(tmp_path), "--overlay", "kempner"])
    assert done.exit_code == USAGE
    assert "did you mean `kempner-a100`?" in done.stderr
    assert not (tmp_path / "s" / "report").exists()
