"""What of a plan is refused, and what its jobs are given."""

import json
import subprocess
from pathlib import Path

import pytest

from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.run_root import Study
from hpcddp.submit.submission_plan import git_commit
from hpcddp.submit.submit import submit_runs
from tests.fake_backend import FakeBackend
from tests.given_plan import labels, study_of, submission_plan


def test_every_job_is_told_the_same_code_and_its_own_run(tmp_path: Path) -> None:
    """Specs carry point, run, absolute study, data root from the settings, profile without facts; one snapshot for all."""
    study, backend = study_of(tmp_path), FakeBackend()
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
    """A cluster that charges needs an account, from the sweep or the user's settings."""
    study = study_of(tmp_path)
    with pytest.raises(UsageError, match="rcc needs an account"):
        submit_runs(study, submission_plan(tmp_path, cluster="rcc"), FakeBackend())
    assert not study.folder.exists()
    submit_runs(study, submission_plan(tmp_path, cluster="rcc", user=Settings(account="abc")), FakeBackend())


def test_data_without_a_folder_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A set on disk needs a folder, from the sweep or the user's settings: else every run would wait in the queue and fail."""
    study, data = study_of(tmp_path), "workload.data.name=bigmnist"
    with pytest.raises(UsageError, match="data `bigmnist` has no folder"):
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
    """The commit, a plus with local changes, None outside a repository."""
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
