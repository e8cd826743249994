"""Figures of trainings: a line per run, a colour per size, the target's line, and speedups with their intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcddp.analysis.figures.accuracy import training_drawings
from hpcddp.analysis.figures.colours import SIZES
from hpcddp.analysis.figures.figures import FIGURES
from hpcddp.analysis.figures.style import STYLES
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import Findings, find
from tests.analysis.study.test_accuracy import training, trainings
from tests.analysis.synthetic import point, write_measured

GIVEN = {1: (((40, 70, 90), 60.0),) * 3, 2: (((30, 60, 80, 90), 40.0),) * 2, 4: (((30, 50, 60, 70), 25.0),) * 2}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Seven runs of three sizes; four GPUs do not reach the target."""
    folder = tmp_path_factory.mktemp("figures") / "s"
    return find(load_study(trainings(folder, {training(gpus, target_accuracy=0.9): runs for gpus, runs in GIVEN.items()})))


@pytest.mark.parametrize("style", STYLES)
def test_a_line_per_run_and_a_colour_per_size(found: Findings, style: str) -> None:
    figures, notes = training_drawings(found, STYLES[style])
    figure = figures["accuracy"]()
    axes = [ax for ax in figure.axes if ax.get_visible()]
    assert [ax.get_xlabel() for ax in axes] == ["Training time, s", "Epochs", "Node hours"]
    for ax in axes:
        runs = [line for line in ax.lines if len(line.get_xdata()) > 2]  # type: ignore[arg-type]
        assert [line.get_color() for line in runs] == [*[SIZES[0]] * 3, *[SIZES[1]] * 2, *[SIZES[2]] * 2]
        assert [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "--"] == [90.0]  # type: ignore[index]
    assert np.asarray(axes[1].lines[0].get_xdata()).tolist() == [1, 2, 3]
    assert np.asarray(axes[0].lines[0].get_xdata()).tolist() == [60.0, 120.0, 180.0]
    assert [text.get_text() for text in figure.legends[-1].get_texts()] == ["1 GPU", "1 x 2 GPUs", "1 x 4 GPUs", "90.00 %"]
    assert len(figure.marks) == 3 * 7
    assert notes == []


def test_the_speedup_to_the_target_is_beside_that_of_the_throughput(found: Findings) -> None:
    figures, _ = training_drawings(found)
    (ax,) = figures["to_accuracy"]().axes
    orange = [line for line in ax.lines if line.get_color() != "#222222" and line.get_linestyle() == "-"]
    assert any(np.allclose(np.asarray(line.get_ydata(), float), [1, 1.125]) for line in orange)
    assert {text.get_text() for text in ax.texts} >= {"ideal", "samples/s", "to 90.00 %"}
    assert set(figures) <= set(FIGURES)


@pytest.mark.dear
def test_more_points_than_colours_are_said(tmp_path: Path) -> None:
    runs = {training(gpus): (((50, 90), 10.0),) for gpus in range(1, 9)}
    found = find(load_study(trainings(tmp_path / "s", runs)))
    figures, notes = training_drawings(found)
    assert notes == ["figures/accuracy.png shows 6 of 8 points; with `--to csv`, epochs.csv has them all"]
    names = [text.get_text() for text in figures["accuracy"]().legends[-1].get_texts()]
    assert (names[0], names[-2], len(names)) == ("1 GPU", "1 x 8 GPUs", 7)


def test_without_trainings_there_are_none(tmp_path: Path) -> None:
    found = find(load_study(write_measured(tmp_path / "s", [point(1, 1)])))
    assert training_drawings(found) == ({}, [])
