"""What a key changes in two studies, beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.comparison.compare import Comparison, compare, to_plain
from hpcddp.analysis.comparison.text import to_text
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, point, write_runs, write_study


def workers_study(folder: Path, step_ms: dict[int, float], runs: int = 6) -> Study:
    """A step that long with so many loader workers, 0.2 % longer from run to run."""
    points = {point(1, 4, loader_workers_per_rank=workers): ms for workers, ms in step_ms.items()}
    study = write_study(folder, list(points))
    for each, ms in points.items():
        write_runs(study, each, [int(ms * (1 + 0.002 * run) * MS) for run in range(runs)])
    return study


def compared(folder: Path, a: dict[int, float], b: dict[int, float], runs: int = 6) -> Comparison:
    return compare(workers_study(folder / "a", a, runs), workers_study(folder / "b", b, runs), 0.05)


@pytest.mark.dear
def test_an_effect_that_differs_is_said(tmp_path: Path) -> None:
    """Eight workers are twice as fast as two in A, and no faster in B, whose base is read as A's."""
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 100, 8: 100})
    (effect,) = to_plain(found)["effects"]
    assert (effect["value"], effect["base"]) == ("8", "2")
    assert (effect["key"], effect["where"], effect["differs"]) == ("workload.loader_workers_per_rank", "1x4", True)
    assert (effect["a"]["ratio"], effect["b"]["ratio"]) == (pytest.approx(2.0), pytest.approx(1.0))
    assert "effects   at 1x4, workers 8 is 2.00 (95 % " in to_text(found)


def test_an_effect_that_is_the_same_is_in_the_json_alone(tmp_path: Path) -> None:
    """Also where one study is slower throughout."""
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 120, 8: 60})
    assert [effect["differs"] for effect in to_plain(found)["effects"]] == [False]
    assert "effects" not in to_text(found)


def test_a_single_run_shows_no_difference(tmp_path: Path) -> None:
    """It has no range."""
    found = compared(tmp_path, {2: 100, 8: 50}, {2: 100, 8: 100}, runs=1)
    assert [effect["differs"] for effect in to_plain(found)["effects"]] == [False]


def test_a_key_that_one_study_did_not_vary_has_no_effect_in_both(tmp_path: Path) -> None:
    """Nothing is said."""
    assert compared(tmp_path, {2: 100, 8: 50}, {2: 100}).effects == []
