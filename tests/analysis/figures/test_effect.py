"""A figure for every key that a shipped sweep varies, in which no text overlaps another."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.figures.effect import MAX_PANELS, effect_drawings, effect_figure
from hpcddp.analysis.figures.style import STYLES
from hpcddp.analysis.study.axes import TIMED_OTHERWISE, Axis
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.series import OUTSIDE
from hpcddp.analysis.verdicts.findings import find
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.point import Point, flat_keys
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.analysis.figures.test_figures import check_texts
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_runs, write_study

SHIPPED = sorted((Path(__file__).parents[3] / "jobs").glob("*.yaml"))


def is_effect(key: str) -> bool:
    """Whether it may change how fast training is: not its size, and not how it is timed."""
    return key not in OUTSIDE and key != "work" and (key in TIMED_OTHERWISE or not key.startswith("measure."))


def axes_of(folder: Path, points: list[Point], hold: str) -> list[Axis]:
    study = write_study(folder, points, hold=hold)
    for i, each in enumerate(points):
        write_run(study, each, Recorded(step_ns=(100 + i) * MS, steps=2, gpu=each.layout.node_type))
    return find(load_study(study)).effects


@pytest.mark.dear
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_key_that_a_sweep_varies_has_a_figure(tmp_path: Path, file: Path) -> None:
    """By itself, or with the key that it always changes with; the figure has a panel for each comparison, up to MAX_PANELS."""
    source = read_sweep(file)
    assert source.sweep.cluster is not None
    planned = expand(source, load_profile(source.sweep.cluster))
    points = [each.point for each in planned if each.point.work != "comm" and each.point.layout.nodes <= 2]
    found = axes_of(tmp_path / "s", points, source.sweep.hold)
    varied = set()
    for name, group in source.groups.items():
        values = [flat_keys(each.point) for each in planned if name in each.groups and not each.is_added]
        varied |= {key for key in group.keys if is_effect(key) and len({str(flat.get(key)) for flat in values}) > 1}
    drawn_for = {key for axis in found for key in (axis.key, *axis.joint)}
    assert varied <= drawn_for
    figures, _ = effect_drawings(found)
    assert set(figures) == {axis.stem for axis in found}
    for axis in found:
        panels = [ax for ax in figures[axis.stem]().axes if ax.get_visible()]
        assert len(panels) == min(len(axis.panels), MAX_PANELS), axis.key


@pytest.mark.dear
@pytest.mark.parametrize("style", STYLES)
def test_no_text_of_a_figure_overlaps_another(tmp_path: Path, style: str) -> None:
    """Many numbers, long words, and a value of which much is said."""
    points = {
        point(1, gpus, parallel=parallel, batch_per_gpu=batch): batch
        for gpus in (1, 2)
        for parallel in ("ddp", "data_parallel", "none")
        for batch in (32, 64, 128, 256, 512, 1024, 2048)
        if (gpus, parallel) != (2, "none")
    }
    study = write_study(tmp_path / "s", list(points))
    for each, batch in points.items():
        write_runs(study, each, [(20 + batch) * MS], shares={"data_wait": 0.25})
    for axis in find(load_study(study)).effects:
        check_texts(axis.stem, effect_figure(axis, STYLES[style]))


def test_the_base_keeps_its_label(tmp_path: Path) -> None:
    """Of values too close to each other for the labels of all, those go that reach the base's."""
    points = {point(1, 4, batch_per_gpu=batch): batch for batch in (60, 62, 64, 66, 256)}
    more = [point(2, 4, batch_per_gpu=62)]
    study = write_study(tmp_path / "s", [*points, *more])
    for each in (*points, *more):
        write_runs(study, each, [100 * MS])
    (axis,) = find(load_study(study)).effects
    (ax,) = effect_figure(axis).axes
    labels = [tick.get_text().splitlines()[0] for tick in ax.get_xticklabels()]
    assert axis.panels[0].values[axis.panels[0].base].text == "62"
    assert labels == ["62", "256"]
