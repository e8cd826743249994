"""From points to jobs: everything missing, nothing twice, whatever breaks off in between."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.local import LocalBackend
from hpcddp.cluster import load_profile
from hpcddp.errors import HpcddpError, RefusedError, UsageError
from hpcddp.jobspec import spec_to_dict
from hpcddp.records import write_json
from hpcddp.runroot import Study
from hpcddp.settings import Settings
from hpcddp.status import RunState, run_states
from hpcddp.submissions import last_told
from hpcddp.submit import Order, SubmittedRun, git_commit, pending_runs, submit_runs
from hpcddp.sweep import expand, read_sweep
from tests.told_backend import ToldBackend

SWEEP = """
schema: 1
cluster: local
device: cpu
workload:
  model: mnist-cnn
  data: {name: synthetic-mnist}
  batch_per_gpu: 8
  loader_workers_per_rank: 0
points:
  ranks: {layout.gpus_per_node: [1, 2]}
  alone: {layout.gpus_per_node: [1]}
measure: {warmup_steps: 1, steps: 3}
repeat: 2
"""


def order(folder: Path, *settings: str, cluster: str | None = None, user: Settings = Settings()) -> Order:  # noqa: B008
    """What `hpcddp submit` makes of a sweep file."""
    file = folder / "small.yaml"
    file.write_text(SWEEP)
    source = read_sweep(file, settings, cluster)
    profile = load_profile(str(source.sweep.cluster))
    return Order(source=source, profile=profile, points=expand(source, profile), requests={}, settings=user)


def study_of(folder: Path) -> Study:
    return Study(folder / "runs" / "small")


def lines(study: Study) -> list[dict[str, Any]]:
    return [json.loads(text) for text in study.submissions_file.read_text().splitlines()]


def labels(planned: Order) -> list[str]:
    return [entry.point.label for entry in planned.points]


def test_pending_is_what_is_missing_or_failed_one_repetition_after_another(tmp_path: Path) -> None:
    """Queued, running and done runs are left alone, and unknown ones unless no job of theirs is known; every point comes once
    before any comes twice.
    """
    points = [planned.point for planned in order(tmp_path).points]
    one, two = (point.label for point in points)
    states = [
        RunState(label=one, run=1, phase="done"),
        RunState(label=two, run=1, phase="failed"),
        RunState(label=one, run=2, phase="missing"),
        RunState(label=one, run=3, phase="unknown", job="7"),
        RunState(label=two, run=3, phase="queued"),
        RunState(label=one, run=4, phase="running"),
        RunState(label=two, run=4, phase="unknown"),
    ]
    pending = [(point.label, run) for point, run in pending_runs(points, 4, states)]
    assert pending == [(two, 1), (one, 2), (two, 2), (two, 4)]


def test_runs_are_submitted_once(tmp_path: Path) -> None:
    """All runs get a job and the caller hears of each; asked again, only a run that has failed meanwhile is submitted."""
    study, backend, heard = study_of(tmp_path), ToldBackend(), list[SubmittedRun]()
    runs = submit_runs(study, order(tmp_path), backend, heard.append)
    one, two = labels(order(tmp_path))
    assert [(run.label, run.run, run.job) for run in runs] == [(one, 1, "100"), (two, 1, "101"), (one, 2, "102"), (two, 2, "103")]
    assert heard == runs
    assert submit_runs(study, order(tmp_path), backend) == []
    backend.states["101"] = JobState(phase="failed", detail="a node failed (NODE_FAIL)")
    assert submit_runs(study, order(tmp_path), backend) == [SubmittedRun(label=two, run=1, job="104")]
    assert submit_runs(study, order(tmp_path), backend) == []


def test_every_job_is_told_the_same_code_and_its_own_run(tmp_path: Path) -> None:
    """Specs carry point, run, absolute study, data root from the settings, profile without facts; one snapshot for all."""
    study, backend = study_of(tmp_path), ToldBackend()
    user = Settings(data_roots={"synthetic-mnist": "$WORK/mnist"})
    submit_runs(study, order(tmp_path, user=user), backend)
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


def test_study_says_what_was_asked_for(tmp_path: Path) -> None:
    """study.json lists every point ever asked for with groups and repetitions; each point has its point.json."""
    study, small = study_of(tmp_path), order(tmp_path, "repeat=1", "measure.steps=2")
    submit_runs(study, small, ToldBackend())
    full = order(tmp_path)
    submit_runs(study, full, ToldBackend())
    told = json.loads(study.study_file.read_text())
    assert (told["schema"], told["name"], told["repeat"]) == (1, "small", 2)
    assert told["sweep"]["measure"] == {"warmup_steps": 1, "steps": 3}
    assert [(entry["label"], entry["repeat"]) for entry in told["points"]] == [
        *((label, 1) for label in labels(small)),
        *((label, 2) for label in labels(full)),
    ]
    assert told["points"][2]["groups"] == ["ranks", "alone"]
    for planned in full.points:
        described = json.loads(study.point_file(planned.point.label).read_text())
        assert described["id"] == planned.point.id


def test_intent_is_on_disk_before_the_backend_is_asked(tmp_path: Path) -> None:
    """When a backend is asked, the last line of submissions.jsonl says so, with the token it is given."""
    study, backend, seen = study_of(tmp_path), ToldBackend(), list[tuple[str, str, str]]()
    backend.on_submit = lambda request: seen.append((lines(study)[-1]["event"], lines(study)[-1]["token"], request.token))
    submit_runs(study, order(tmp_path), backend)
    assert [event for event, _, _ in seen] == ["intent"] * 4
    assert all(written == given for _, written, given in seen)
    assert [line["event"] for line in lines(study)] == ["intent", "submitted"] * 4


def test_refusal_is_recorded_and_the_rest_comes_next_time(tmp_path: Path) -> None:
    """At the first refusal submission stops; what was submitted stays, what was refused has failed and is tried again."""
    study, backend = study_of(tmp_path), ToldBackend()

    def refuse(request: Submission) -> None:
        if len(backend.queued) == 2:
            backend.queued.popitem()
            raise RefusedError(f"{request.name}: sbatch: error: QOSMaxSubmitJobPerUserLimit")

    backend.on_submit = refuse
    with pytest.raises(RefusedError, match="QOSMaxSubmitJobPerUserLimit"):
        submit_runs(study, order(tmp_path), backend)
    assert [line["event"] for line in lines(study)] == ["intent", "submitted", "intent", "refused"]
    one, two = labels(order(tmp_path))
    refused = next(state for state in run_states(study, backend) if (state.label, state.run) == (two, 1))
    assert refused.phase == "failed"
    backend.on_submit = lambda request: None
    assert [(run.label, run.run) for run in submit_runs(study, order(tmp_path), backend)] == [(two, 1), (one, 2), (two, 2)]


@pytest.mark.parametrize("arrived", [True, False])
def test_interrupted_submission_is_looked_up(tmp_path: Path, arrived: bool) -> None:
    """Broken off between intent and answer: a job that was queued is taken up, one that was not is submitted again."""
    study, backend = study_of(tmp_path), ToldBackend()

    def break_off(request: Submission) -> None:
        if not arrived:
            backend.queued.clear()
        raise KeyboardInterrupt

    backend.on_submit = break_off
    with pytest.raises(KeyboardInterrupt):
        submit_runs(study, order(tmp_path), backend)
    backend.on_submit = lambda request: None
    runs = submit_runs(study, order(tmp_path), backend)
    assert len(runs) == (3 if arrived else 4)
    assert len(backend.queued) == 4
    assert [line["event"] for line in lines(study)][:2] == ["intent", "submitted" if arrived else "lost"]


def test_two_submissions_at_once_do_not_double(tmp_path: Path) -> None:
    """While one submission is at work another is refused with a sentence, and submits nothing."""
    study, backend = study_of(tmp_path), ToldBackend()
    study.jobs.mkdir(parents=True)
    with (study.jobs / "submit.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(HpcddpError, match="another `hpcddp submit` is at work"):
            submit_runs(study, order(tmp_path), backend)
    assert backend.queued == {}
    assert len(submit_runs(study, order(tmp_path), backend)) == 4


def test_missing_account_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A cluster that charges needs an account, from the sweep or the user's settings."""
    study = study_of(tmp_path)
    with pytest.raises(UsageError, match="rcc needs an account"):
        submit_runs(study, order(tmp_path, cluster="rcc"), ToldBackend())
    assert not study.folder.exists()
    submit_runs(study, order(tmp_path, cluster="rcc", user=Settings(account="abc")), ToldBackend())


def test_data_without_a_folder_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """A set on disk needs a folder, from the sweep or the user's settings: else every run would wait in the queue and fail."""
    study, data = study_of(tmp_path), "workload.data.name=bigmnist"
    with pytest.raises(UsageError, match="data `bigmnist` has no folder"):
        submit_runs(study, order(tmp_path, data), ToldBackend())
    assert not study.folder.exists()
    submit_runs(study, order(tmp_path, data, user=Settings(data_roots={"bigmnist": "/data"})), ToldBackend())


def test_relative_data_root_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job stands elsewhere: a relative root is made absolute, one with variables is left to the job; the id stays."""
    monkeypatch.chdir(tmp_path)
    for root, told in (("data/x", str(tmp_path / "data" / "x")), ("$WORK/x", "$WORK/x")):
        backend, planned = ToldBackend(), order(tmp_path, f"workload.data.root={root}", "repeat=1")
        study = Study(tmp_path / "runs" / root.strip("$").replace("/", "-"))
        submit_runs(study, planned, backend)
        assert {request.spec.point.workload.data.root for request in backend.queued.values()} == {told}
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


def test_submitter_killed_after_queueing_leaves_one_run_that_comes_to_its_end(tmp_path: Path) -> None:
    """SIGKILL between queueing and noting the id: submitting again finds the run, and the real worker brings it to its end."""
    study = study_of(tmp_path)
    text = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from tests.test_submit import *\n"
        "class Dies(LocalBackend):\n"
        "    def submit(self, request):\n"
        "        super().submit(request)\n"
        "        os.kill(os.getpid(), 9)\n"
        "folder = Path(sys.argv[1])\n"
        "submit_runs(study_of(folder), order(folder, 'repeat=1'), Dies(study_of(folder)))\n"
    )
    killed = subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert [line["event"] for line in lines(study)] == ["intent"]
    backend, planned = LocalBackend(study), order(tmp_path, "repeat=1")
    runs = submit_runs(study, planned, backend)
    assert [run.label for run in runs] == labels(planned)[1:]
    deadline = time.monotonic() + 120
    while any(state.phase in ("queued", "running") for state in run_states(study, backend)):
        assert time.monotonic() < deadline, run_states(study, backend)
        time.sleep(0.2)
    assert [(state.phase, state.job, state.detail) for state in run_states(study, backend)] == [
        ("done", "L0001", None),
        ("done", "L0002", None),
    ]
    assert submit_runs(study, planned, backend) == []
    assert {told.job for told in last_told(study).values()} == {"L0001", "L0002"}


def test_done_runs_stay_done_without_their_jobs(tmp_path: Path) -> None:
    """Records decide: with end.json in place nothing is submitted again, even if the queue has forgotten the job."""
    study, backend = study_of(tmp_path), ToldBackend()
    planned = order(tmp_path, "repeat=1")
    for run in submit_runs(study, planned, backend):
        write_json(study.attempt_dir(run.label, 1, run.job, 0) / "end.json", {"state": "done", "reason": None, "gates": []})
        backend.states[run.job] = JobState(phase="failed", detail="Slurm does not know this job any more")
    assert submit_runs(study, planned, backend) == []
    assert os.listdir(study.code)
