"""What a study says it was asked for."""

import dataclasses
import json
from pathlib import Path

from hpcddp.core.point import comm_point
from hpcddp.core.records import write_json
from hpcddp.submit.submit import submit_runs
from hpcddp.sweep.expand import PlannedPoint
from tests.fake_backend import FakeBackend
from tests.given_plan import labels, study_of, submission_plan


def test_study_says_what_was_asked_for(tmp_path: Path) -> None:
    """study.json lists every point ever asked for with groups and repetitions; each point has its point.json."""
    study, small = study_of(tmp_path), submission_plan(tmp_path, "repeat=1", "measure.steps=2")
    submit_runs(study, small, FakeBackend())
    full = submission_plan(tmp_path)
    submit_runs(study, full, FakeBackend())
    recorded = json.loads(study.study_file.read_text())
    assert (recorded["schema"], recorded["name"], recorded["repeat"]) == (1, "small", 2)
    assert recorded["sweep"]["measure"] == {"warmup_steps": 1, "steps": 3}
    assert [(entry["label"], entry["repeat"]) for entry in recorded["points"]] == [
        *((label, 1) for label in labels(small)),
        *((label, 2) for label in labels(full)),
    ]
    assert recorded["points"][2]["groups"] == ["ranks", "alone"]
    for planned in full.points:
        described = json.loads(study.point_file(planned.point.label).read_text())
        assert described["id"] == planned.point.id


def test_what_does_not_apply_is_not_written(tmp_path: Path) -> None:
    """A point has no key for what is not said of it: runs that --until-ci added, options of a benchmark, which is in no file."""
    study, plan = study_of(tmp_path), submission_plan(tmp_path)
    benchmark = PlannedPoint(comm_point(plan.points[1].point), ())
    plan = dataclasses.replace(plan, points=[*plan.points, benchmark], more={benchmark.point.label: 3})
    submit_runs(study, plan, FakeBackend())
    trained, _, timed = json.loads(study.study_file.read_text())["points"]
    assert sorted(trained) == ["groups", "id", "in_sweep", "label", "options", "repeat"]
    assert trained["options"] == [{"also": {}, "cluster": None, "set": []}]
    assert sorted(timed) == ["groups", "id", "label", "repeat", "until_ci"]
    assert (timed["groups"], timed["repeat"], timed["until_ci"]) == ([], 3, 3)


def test_points_that_an_older_hpcddp_recorded_stay(tmp_path: Path) -> None:
    """With the number of runs that the study had then; keys of a newer version do no harm."""
    study = study_of(tmp_path)
    older = {"schema": 1, "repeat": 4, "points": [{"label": "old", "id": "0", "groups": ["g"], "added_in_2030": {}}], "newer": 1}
    write_json(study.study_file, older)
    submit_runs(study, submission_plan(tmp_path), FakeBackend())
    recorded = json.loads(study.study_file.read_text())
    assert (recorded["repeat"], recorded["points"][0]) == (2, {"label": "old", "id": "0", "groups": ["g"], "repeat": 4})
