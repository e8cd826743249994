"""Studies of scripts whose samples, model and precision only their jobs know."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import StudyRecords, load_study
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.analysis.study.series import same_workload
from hpcddp.analysis.study.trained import trained
from hpcddp.core.point import Data, Point
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study


def script(gpus: int, **changes: object) -> Point:
    """`train.py --depth 12` on one node, as its sweep has it."""
    chosen = {"model": "", "data": Data(name=""), "script": "train.py", "args": {"depth": 12}, **changes}
    return point(1, gpus, **chosen)


def facts(samples: int) -> dict[str, object]:
    """As launch.json has them."""
    return {"script": {"model": "train:Net", "data": "train:Words", "precision": "bf16", "samples_per_step": samples}}


def measured(study: Study, each: Point, samples: int) -> None:
    """A run whose steps take 100 ms."""
    write_run(study, each, Recorded(step_ns=100 * MS, launch=facts(samples), end={"global_batch": samples * each.gpus}))


@pytest.fixture
def records(tmp_path: Path) -> StudyRecords:
    """One and two ranks; four are planned. Read twice: the second time from the cache."""
    points = [script(1), script(2), script(4)]
    study = write_study(tmp_path / "s", points)
    for each in points[:2]:
        measured(study, each, 8)
    load_study(study)
    return load_study(study)


def test_what_the_jobs_found_completes_the_points(records: StudyRecords) -> None:
    """Rates are of the samples that the script gave, though no sweep says them; points keep their ids."""
    assert [run.state for run in records.runs] == ["counts", "counts", "missing"]
    found = records.runs[0].point
    assert found is not None
    assert (found.workload.model, found.workload.precision, found.workload.batch_per_gpu) == ("train:Net", "bf16", 8)
    assert found.label == records.runs[0].label == script(1).label
    scaling = scaling_frame(runs_frame(records), records.points, records.hold)
    assert list(scaling["samples_per_s"]) == [80.0, 160.0]
    assert list(scaling["efficiency_1gpu"]) == [1.0, 1.0]


def test_planned_points_are_of_the_series(records: StudyRecords) -> None:
    """Also one without a run: what is known of the same arguments at another size is known of it."""
    (series,) = runs_frame(records)["series"].dropna().unique()
    assert [same_workload(series, each, records.hold) for each in records.points] == [True] * 3


def test_equal_work_of_all_ranks_is_one_series(tmp_path: Path) -> None:
    """A script that shares a batch among its ranks: with `hold: global_batch` no key of the sweep needs to say it."""
    points = [script(1), script(2), script(4)]
    study = write_study(tmp_path / "s", points, hold="global_batch")
    for each, samples in zip(points[:2], (16, 8), strict=True):
        measured(study, each, samples)
    found = load_study(study)
    (series,) = runs_frame(found)["series"].dropna().unique()
    assert [same_workload(series, each, found.hold) for each in found.points] == [True] * 3


def test_another_argument_is_another_series(tmp_path: Path) -> None:
    """Its name distinguishes them."""
    points = [script(1), script(1, args={"depth": 6})]
    study = write_study(tmp_path / "s", points)
    for each in points:
        measured(study, each, 8)
    assert runs_frame(load_study(study))["series"].nunique() == 2


def test_samples_that_are_not_the_recorded_ones(tmp_path: Path) -> None:
    """end.json is held against launch.json, as against any point."""
    each = script(2)
    study = write_study(tmp_path / "s", [each])
    write_run(study, each, Recorded(step_ns=100 * MS, launch=facts(8), end={"global_batch": 99}))
    (run,) = load_study(study).runs
    assert run.reason == "end.json: global_batch is 99, and the point's is 16"


def test_the_command_is_named(records: StudyRecords) -> None:
    """As people write it."""
    assert trained(records.runs)["script"] == ["train.py --depth 12"]
