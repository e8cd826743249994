"""What a study says it was asked for."""

import json
from pathlib import Path

from hpcddp.submit.submit import submit_runs
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
