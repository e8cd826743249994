"""How well points are known, for who adds runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.study.effects import precision
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_run, write_runs, write_study

ONE, TWO = point(1, 1), point(1, 2)


def test_precision_is_half_the_interval_of_the_median(tmp_path: Path) -> None:
    """Six runs of 98 to 103 ms have their whole range; two runs have no interval."""
    study = write_study(tmp_path / "s", [ONE, TWO], repeat=2)
    write_runs(study, ONE, [step * MS for step in (98, 99, 100, 101, 102, 103)])
    write_runs(study, TWO, [MS, MS])
    found = precision(study)
    runs, half_percent = found[ONE.label]
    assert runs == 6
    assert half_percent == pytest.approx(50 * (1 / 98 - 1 / 103) / ((1 / 100 + 1 / 101) / 2))
    assert found[TWO.label] == (2, None)


def test_points_whose_runs_are_not_over_or_do_not_count_are_left_out(tmp_path: Path) -> None:
    """One run missing, one rejected."""
    study = write_study(tmp_path / "s", [ONE, TWO], repeat=2)
    write_run(study, ONE, Recorded(step_ns=MS))
    write_runs(study, TWO, [MS, MS])
    write_run(study, TWO, Recorded(step_ns=MS, gates=FAILED, job="300"), run=2)
    assert precision(study) == {}


def test_runs_of_another_environment_are_not_pooled(tmp_path: Path) -> None:
    """The newest run's kind counts."""
    study = write_study(tmp_path / "s", [ONE], repeat=2)
    for run in range(1, 8):
        write_run(study, ONE, Recorded(step_ns=MS, env_id="new" if run > 6 else "old"), run)
    assert precision(study) == {ONE.label: (1, None)}


def test_there_is_nothing_to_know_of_a_study_that_is_not_there(tmp_path: Path) -> None:
    """No folder yet, or a name that was misspelt."""
    with pytest.raises(HpcddpError, match="none: no study there"):
        precision(Study(tmp_path / "none"))
