"""Runs submitted as one job: intents, interrupted submissions, and what is submitted again while the job runs and after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.slurm_allocation import STEPS
from hpcddp.core.errors import FullError, UsageError
from hpcddp.core.hours import Hours
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.study.status import RunState, run_states
from hpcddp.study.submission_log import latest_events
from hpcddp.study.used_hours import StudyHours, study_hours
from hpcddp.submit.budget import account
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.submit import submit_runs
from tests.fake_backend import FakeBackend
from tests.given_one_allocation import submission_plan
from tests.given_plan import study_of

HOUR_NS = 3_600_000_000_000

DIED = JobState(phase="failed", detail="its time limit was over (TIMEOUT)", word="TIMEOUT", time_limit="03:00:00")


def write_steps(study: Study, job: str, *events: tuple[str, int | None, int | None]) -> None:
    """As the job's script does."""
    folder = study.job_dir(job)
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"event": event, "task": task, "code": code}) for event, task, code in events]
    with (folder / STEPS).open("a") as out:
        out.write("\n".join([*lines, ""]))


def by_task(states: list[RunState]) -> dict[str, RunState]:
    return {str(state.job): state for state in states}


def test_each_run_is_noted_as_one_of_its_job(tmp_path: Path) -> None:
    """One job of six runs, largest first; each has a line of its own, with the job's size. Asked again, nothing is submitted."""
    study, backend = study_of(tmp_path), FakeBackend()
    runs = submit_runs(study, submission_plan(tmp_path), backend)
    assert [run.job for run in runs] == [f"100+{task}" for task in range(6)]
    assert [(run.label[:3], run.run) for run in runs] == [(f"n{nodes:02d}", run) for run in (1, 2) for nodes in (4, 2, 1)]
    assert len(backend.queued) == 1
    events = latest_events(study).values()
    assert {(line.event, line.nodes, line.gpus_per_node, line.name) for line in events} == {
        ("submitted", 4, 1, backend.batches_taken["100"].name)
    }
    assert submit_runs(study, submission_plan(tmp_path), backend) == []


@pytest.mark.parametrize("arrived", [True, False])
def test_an_interrupted_submission_is_looked_up(tmp_path: Path, arrived: bool) -> None:
    """Between intent and answer: a job that was queued is taken up with all its runs; one that was not is submitted again."""
    study, backend = study_of(tmp_path), FakeBackend()
    with backend.breaking_off(arrived=arrived), pytest.raises(KeyboardInterrupt):
        submit_runs(study, submission_plan(tmp_path), backend)
    assert len(submit_runs(study, submission_plan(tmp_path), backend)) == (0 if arrived else 6)
    assert sorted(str(line.job) for line in latest_events(study).values()) == [f"100+{task}" for task in range(6)]


def test_a_cluster_that_takes_no_more_has_none_of_it(tmp_path: Path) -> None:
    """One job is not cut in halves; all six runs are missing, and said to be left."""
    study, backend = study_of(tmp_path), FakeBackend()

    def full(request: Submission) -> None:
        raise FullError("QOSMaxSubmitJobPerUserLimit")

    backend.on_submit = full
    with pytest.raises(FullError, match="6 runs left"):
        submit_runs(study, submission_plan(tmp_path), backend)
    assert {state.phase for state in run_states(study, backend)} == {"missing"}


def test_what_failed_is_submitted_again_while_the_others_go_on(tmp_path: Path) -> None:
    """The first is done, the second has failed, the third runs: only the second gets another job, of its own."""
    study, backend = study_of(tmp_path), FakeBackend()
    runs = submit_runs(study, submission_plan(tmp_path), backend)
    write_json(study.attempt_dir(runs[0].label, 1, "100+0", 0) / "end.json", {"state": "done", "reason": None, "gates": []})
    write_steps(study, "100", ("begun", None, None), ("started", 0, None), ("ended", 0, 0), ("started", 1, None), ("ended", 1, 7))
    write_steps(study, "100", ("started", 2, None))
    backend.states |= {run.job: JobState(phase="running", nodes="gn[01-04]") for run in runs}
    found = by_task(run_states(study, backend))
    phases = [found[f"100+{task}"].phase for task in range(6)]
    assert phases == ["done", "failed", "running", "queued", "queued", "queued"]
    assert found["100+1"].detail == "exit code 7 (FAILED)"
    assert found["100+3"].detail == "waits for its turn in its job"
    (again,) = submit_runs(study, submission_plan(tmp_path), backend)
    assert (again.label, again.run, again.job) == (runs[1].label, 1, "101+0")


def test_what_its_job_left_is_submitted_again(tmp_path: Path) -> None:
    """The run at work ended with the job; of those that never began that is said, and that nothing of theirs was too long."""
    study, backend = study_of(tmp_path), FakeBackend()
    runs = submit_runs(study, submission_plan(tmp_path), backend)
    write_json(study.attempt_dir(runs[0].label, 1, "100+0", 0) / "end.json", {"state": "done", "reason": None, "gates": []})
    write_steps(study, "100", ("begun", None, None), ("started", 0, None), ("ended", 0, 0), ("started", 1, None))
    backend.states |= {run.job: DIED for run in runs}
    found = by_task(run_states(study, backend))
    cut, never = found["100+1"], found["100+5"]
    assert cut.detail == "its time limit of 180 min was over (TIMEOUT)"
    assert str(cut.next_step).startswith("raise slurm.walltime_min in the sweep above 180")
    assert never.detail == "its turn did not come: its time limit of 180 min was over (TIMEOUT)"
    assert never.next_step == "submit it again"
    assert [(run.label, run.run) for run in submit_runs(study, submission_plan(tmp_path), backend)] == [
        (run.label, run.run) for run in runs[1:]
    ]


def test_a_job_whose_environment_fails_tells_all_its_runs_why(tmp_path: Path) -> None:
    """None of them began; the batch script's own words are the reason of each."""
    study, backend = study_of(tmp_path), FakeBackend()
    runs = submit_runs(study, submission_plan(tmp_path), backend)
    study.job_dir("100").mkdir()
    (study.job_dir("100") / "batch.err").write_text("hpcddp: this node has no `module` command; ...\n")
    backend.states |= {run.job: JobState(phase="failed", detail="exit code 1 (FAILED)", word="FAILED") for run in runs}
    details = {state.detail for state in run_states(study, backend)}
    assert details == {"its turn did not come: its node has no `module` command"}


def test_the_budget_counts_all_nodes_of_the_job(tmp_path: Path) -> None:
    """Of the run on one node that is over, for as long as it took; of those that wait, half an hour each."""
    study, backend = study_of(tmp_path), FakeBackend()
    planned = submission_plan(tmp_path, "budget.node_hours=12")
    runs = submit_runs(study, planned, backend)
    small = study.attempt_dir(runs[2].label, 1, "100+2", 0)
    launch = {"started_unix_ns": HOUR_NS, "hosts": ["gn01"], "environment": {"SLURM_JOB_NUM_NODES": "4"}}
    write_json(small / "launch.json", launch)
    write_json(small / "end.json", {"state": "done", "ended_unix_ns": HOUR_NS * 5 // 4, "gates": []})
    found = account(study, planned, run_states(study, backend))
    assert (found.used, found.waiting) == (Hours(node=1.0, gpu=1.0), Hours(node=10.0, gpu=10.0))
    assert study_hours(study, run_states(study, backend)) == StudyHours(used=Hours(node=1.0, gpu=1.0), to_come=None)
    with pytest.raises(UsageError, match=r"at most 12\.0 node hours, 12\.0 GPU hours by runs to submit"):
        submit_runs(study_of(tmp_path / "other"), submission_plan(tmp_path, "budget.node_hours=11.9"), backend)


def test_a_run_on_its_own_is_one_of_its_job(tmp_path: Path) -> None:
    """With a number in its job, like any other."""
    study, backend = study_of(tmp_path), FakeBackend()
    options = SubmitOptions(one_allocation=True, max_jobs=1)
    (run,) = submit_runs(study, submission_plan(tmp_path, options=options), backend)
    assert run.job == "100+0"
