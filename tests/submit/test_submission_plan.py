"""What is decided before anything is submitted, and what study.json says of it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.point import Data, Layout, Point, Workload, comm_point
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.submit.remarks import staging_remarks
from hpcddp.submit.submission_plan import git_commit
from hpcddp.submit.submit import submit_runs
from hpcddp.sweep.expand import PlannedPoint
from tests.fake_slurm import FakeBackend
from tests.given_plan import labels, study_of, submission_plan


def test_every_job_is_told_the_same_code_and_its_own_run(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    user = Settings(data_roots={"synthetic-mnist": "$WORK/mnist"})
    submit_runs(study, submission_plan(tmp_path, user=user), backend)
    requests = list(backend.queued.values())
    assert len({request.code for request in requests}) == 1
    assert len({request.token for request in requests}) == 4
    assert {request.spec.study for request in requests} == {str(study.folder)}
    assert {request.spec.data_root for request in requests} == {"$WORK/mnist"}
    assert {request.spec.run for request in requests} == {1, 2}
    plain = spec_to_dict(requests[0].spec)
    assert plain["profile"]["name"] == "local"
    assert not plain["profile"]["facts"]
    assert json.loads(json.dumps(plain)) == plain


def test_missing_account_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    with pytest.raises(UsageError, match="rcc needs an account"):
        submit_runs(study, submission_plan(tmp_path, cluster="rcc"), FakeBackend())
    assert not study.folder.exists()
    submit_runs(study, submission_plan(tmp_path, cluster="rcc", user=Settings(account="abc")), FakeBackend())


def test_data_without_a_folder_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A set on disk needs a folder, from the sweep or the user's settings: else every run would wait in the queue and fail."""
    study, data = study_of(tmp_path), "workload.data.name=bigmnist"
    with pytest.raises(UsageError, match="Data `bigmnist` has no folder"):
        submit_runs(study, submission_plan(tmp_path, data), FakeBackend())
    assert not study.folder.exists()
    (tmp_path / "bigmnist.json").write_text("{}")
    submit_runs(study, submission_plan(tmp_path, data, user=Settings(data_roots={"bigmnist": str(tmp_path)})), FakeBackend())


def test_relative_data_root_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job stands elsewhere: a relative root is made absolute, one with variables is left to the job; the id stays."""
    monkeypatch.chdir(tmp_path)
    for root, expected in (("data/x", str(tmp_path / "data" / "x")), ("$WORK/x", "$WORK/x")):
        backend, planned = FakeBackend(), submission_plan(tmp_path, f"workload.data.root={root}", "repeat=1")
        study = Study(tmp_path / "runs" / root.strip("$").replace("/", "-"))
        submit_runs(study, planned, backend)
        assert {request.spec.point.workload.data.root for request in backend.queued.values()} == {expected}
        assert {request.spec.label for request in backend.queued.values()} == set(labels(planned))


def test_commit_is_that_of_the_sweeps_folder(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@x"]
    (tmp_path / "file").write_text("1")
    for command in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *command], check=True)
    commit = git_commit(tmp_path)
    assert commit is not None
    assert len(commit) == 40
    (tmp_path / "file").write_text("2")
    assert git_commit(tmp_path) == f"{commit}+"


def test_runs_of_points_are_counted_once(tmp_path: Path) -> None:
    """study.json looks them up point by point: counted anew each time, 10,000 points took 16 s."""
    plan = submission_plan(tmp_path)
    assert plan.repeats is plan.repeats
    assert dict.fromkeys(labels(plan), 2) == plan.repeats


def test_study_says_what_was_asked_for(tmp_path: Path) -> None:
    study, small = study_of(tmp_path), submission_plan(tmp_path, "repeat=1", "measure.steps=2")
    submit_runs(study, small, FakeBackend())
    full = submission_plan(tmp_path)
    submit_runs(study, full, FakeBackend())
    recorded = json.loads(study.study_file.read_text())
    assert (recorded["schema"], recorded["name"], recorded["repeat"]) == (1, "small", 2)
    assert recorded["sweep"]["measure"] == {"warmup_steps": 1, "steps": 3}
    repeats = [*((label, 1) for label in labels(small)), *((label, 2) for label in labels(full))]
    assert [(entry["label"], entry["repeat"]) for entry in recorded["points"]] == repeats
    assert recorded["points"][2]["groups"] == ["ranks", "alone"]
    for planned in full.points:
        described = json.loads(study.point_file(planned.point.label).read_text())
        assert described["id"] == planned.point.id


def test_what_does_not_apply_is_not_written(tmp_path: Path) -> None:
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
    study = study_of(tmp_path)
    older = {"schema": 1, "repeat": 4, "points": [{"label": "old", "id": "0", "groups": ["g"], "added_in_2030": {}}], "newer": 1}
    write_json(study.study_file, older)
    submit_runs(study, submission_plan(tmp_path), FakeBackend())
    recorded = json.loads(study.study_file.read_text())
    assert (recorded["repeat"], recorded["points"][0]) == (2, {"label": "old", "id": "0", "groups": ["g"], "repeat": 4})


def point(node_type: str | None = None, stage: Any = "tmpdir") -> Point:
    data = Data(name="bigmnist", root="/data", stage=stage)
    return Point(cluster="x", workload=Workload(model="mnist-cnn", data=data), layout=Layout(node_type=node_type))


@pytest.mark.parametrize("cluster", ["leonardo", "lumi-g", "alps"])
def test_a_copy_in_memory_is_named(cluster: str) -> None:
    (said,) = staging_remarks(load_profile(cluster), point())
    assert "the profile defines no disk for a node of type" in said
    assert said.endswith("Set `stage: none`, unless that is intended.")
    assert list(staging_remarks(load_profile(cluster), point(stage="none"))) == []


def test_copies_that_stay_are_named() -> None:
    rcc = load_profile("rcc")
    assert list(staging_remarks(rcc, point("a40"))) == []
    assert list(staging_remarks(load_profile("jupiter"), point())) == []
    staying = replace(rcc, node_types={"a40": replace(rcc.node_types["a40"], local_disk_per_job=False)})
    (said,) = staging_remarks(staying, point("a40"))
    assert "the disk of a node of type a40 keeps files after a job" in said
