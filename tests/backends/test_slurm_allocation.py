"""Runs that share a job: which of them runs, and what becomes of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.backends.slurm_allocation import CANCELLED, STEPS, cancel_tasks, task_state, was_started
from hpcddp.backends.slurm_commands import longest_min
from hpcddp.backends.slurm_job_files import prepare
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.run_root import Study
from tests.backends.fake_slurm import Say, calls, stand_ins
from tests.given_one_allocation import batch_of, submission_plan

RUNNING = JobState(phase="running", nodes="gn[01-02]")
WAITS = JobState(phase="queued", detail="the nodes it needs are busy (Resources)")
TIMEOUT = JobState(phase="failed", detail="its time limit was over (TIMEOUT)", word="TIMEOUT")
NOT_STARTED = JobState(phase="queued", detail="waits for its turn in its job")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a job of four runs: 0 is done, 1 has failed, 2 runs, 3 was not started yet."""
    for task in range(4):
        (tmp_path / str(task)).mkdir()
    write_events(tmp_path, ("begun", None), ("started", 0), ("ended", 0, 0), ("started", 1), ("ended", 1, 7), ("started", 2))
    return tmp_path


def write_events(folder: Path, *events: tuple[object, ...]) -> None:
    with (folder / STEPS).open("a") as lines:
        for event in events:
            lines.write(json.dumps(dict(zip(("event", "task", "code", "word", "limit_min"), event, strict=False))) + "\n")


def states(folder: Path, job: JobState) -> list[JobState]:
    return [task_state(folder / str(task), job) for task in range(4)]


def test_while_the_job_runs(folder: Path) -> None:
    ended = [JobState(phase="done", nodes=RUNNING.nodes)]
    ended += [JobState(phase="failed", detail="exit code 7 (FAILED)", nodes=RUNNING.nodes, word="FAILED")]
    assert states(folder, RUNNING) == [*ended, RUNNING, NOT_STARTED]
    assert [state.phase for state in states(folder, WAITS)[:2]] == ["done", "failed"]
    assert states(folder, WAITS)[2:] == [WAITS, WAITS]
    write_events(folder, ("begun", None))
    assert states(folder, RUNNING)[2:] == [NOT_STARTED, NOT_STARTED]
    write_events(folder, ("started", 2))
    assert states(folder, RUNNING)[2:] == [RUNNING, NOT_STARTED]


def test_when_the_job_is_over(folder: Path) -> None:
    assert [state.phase for state in states(folder, TIMEOUT)[:2]] == ["done", "failed"]
    assert states(folder, TIMEOUT)[1].word == "FAILED"
    assert states(folder, TIMEOUT)[2:] == [TIMEOUT, TIMEOUT]
    assert [was_started(folder / str(task)) for task in range(4)] == [True, True, True, False]
    write_events(folder, ("ended", 2, 1, "TIMEOUT", 30))
    found = task_state(folder / "2", RUNNING)
    assert (found.detail, found.word, found.time_limit) == ("its time limit was over (TIMEOUT)", "TIMEOUT", "30:00")


def test_a_cancelled_run_does_not_wait(folder: Path) -> None:
    assert not cancel_tasks(folder, [2])
    assert [state.phase for state in states(folder, RUNNING)[2:]] == ["running", "queued"]
    assert cancel_tasks(folder, [3])
    assert task_state(folder / "3", RUNNING).detail == "cancelled before its turn"
    assert [(folder / str(task) / CANCELLED).exists() for task in range(4)] == [False, False, True, True]
    write_events(folder, ("ended", 2, 137))
    assert task_state(folder / "2", RUNNING).word == "CANCELLED"


def test_a_job_that_wrote_no_event(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    assert task_state(tmp_path / "0", RUNNING) == NOT_STARTED
    assert task_state(tmp_path / "0", WAITS) == WAITS
    (tmp_path / STEPS).write_text('{"event":"started","ta')
    assert task_state(tmp_path / "0", RUNNING) == NOT_STARTED
    assert not was_started(tmp_path / "0")


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    return stand_ins(tmp_path, monkeypatch, ("squeue", "sacct", "scancel", "scontrol"), "exit 0")


@pytest.fixture
def jobs(tmp_path: Path, say: Say) -> dict[str, str]:
    """Three runs in job 12, which runs, by id and name: 0 is done, 1 at work in step 12.3, 2 to come."""
    study = Study(tmp_path / "study")
    batch = batch_of(submission_plan(tmp_path, "repeat=1"), study.folder)
    prepare(study.jobs / batch.name, batch)
    study.job_dir("12").symlink_to(batch.name)
    events = ['"started","task":0', '"ended","task":0,"code":0', '"started","task":1']
    (study.job_dir("12") / STEPS).write_text("".join(f'{{"event":{each}}}\n' for each in events))
    row = f"printf '%s\\037' 12 {batch.name} RUNNING None gn01 {study.jobs}/{batch.name}; echo"
    step = f"printf '%s\\037%s\\n' 12.batch batch 12.3 {batch.submissions[1].name}"
    say("squeue", f'[[ " $* " == *" -s "* ]] && {{ {step}; exit; }}\n{row}')
    return {f"12+{task}": batch.name for task in range(3)}


def backend(tmp_path: Path) -> SlurmBackend:
    return SlurmBackend(SlurmRules(), Study(tmp_path / "study"))


def test_one_question_for_all_runs_of_a_job(tmp_path: Path, jobs: dict[str, str]) -> None:
    found = backend(tmp_path).poll(jobs)
    assert {job: state.phase for job, state in found.items()} == dict.fromkeys(jobs, "running")
    assert len(calls(tmp_path, "squeue")) == 1
    assert backend(tmp_path).poll({"12+0": "another's"})["12+0"].detail == "Slurm does not know this job any more"


@pytest.mark.parametrize(
    ("tasks", "ended"), [([2], []), ([1], ["scancel 12.3"]), ([1, 2], ["scancel 12"])], ids=["waits", "at work", "all left"]
)
def test_what_is_cancelled_with_some_runs(tmp_path: Path, jobs: dict[str, str], tasks: list[int], ended: list[str]) -> None:
    backend(tmp_path).cancel({f"12+{task}": jobs[f"12+{task}"] for task in tasks})
    assert calls(tmp_path, "scancel") == ended
    marked = [task for task in range(3) if (tmp_path / "study" / ".jobs" / "12" / str(task) / CANCELLED).exists()]
    assert marked == tasks


def test_how_long_a_job_may_be(say: Say) -> None:
    say("scontrol", "echo PartitionName=a Default=NO MaxTime=01:00:00; echo PartitionName=b Default=YES MaxTime=7-00:00:00")
    assert (longest_min("a"), longest_min(None)) == (60, 10080)
    say("scontrol", "echo PartitionName=a Default=NO MaxTime=UNLIMITED")
    assert (longest_min("a"), longest_min(None)) == (None, None)
    say("scontrol", "exit 1")
    assert longest_min("a") is None
