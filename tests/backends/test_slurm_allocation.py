"""Runs in one allocation: which of them runs, and what becomes of those that were never started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_allocation import CANCELLED, STEPS, cancel_tasks, task_state, was_started

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
    """What has ended has, one runs, the others wait; when it is requeued, and before it starts one again, all of them wait."""
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
    """What ended by itself keeps its own end; the others have the job's."""
    assert [state.phase for state in states(folder, TIMEOUT)[:2]] == ["done", "failed"]
    assert states(folder, TIMEOUT)[1].word == "FAILED"
    assert states(folder, TIMEOUT)[2:] == [TIMEOUT, TIMEOUT]
    assert [was_started(folder / str(task)) for task in range(4)] == [True, True, True, False]


def test_a_run_that_had_all_the_time_there_is(folder: Path) -> None:
    """Slurm's word for it is the script's, and the limit is the run's own."""
    write_events(folder, ("ended", 2, 1, "TIMEOUT", 30))
    found = task_state(folder / "2", RUNNING)
    assert (found.detail, found.word, found.time_limit) == ("its time limit was over (TIMEOUT)", "TIMEOUT", "30:00")


def test_a_cancelled_run_does_not_wait(folder: Path) -> None:
    """It has failed while its job runs on; one that is at work runs until its step has ended."""
    assert not cancel_tasks(folder, [2])
    assert [state.phase for state in states(folder, RUNNING)[2:]] == ["running", "queued"]
    assert cancel_tasks(folder, [3])
    assert task_state(folder / "3", RUNNING).detail == "cancelled before its turn"
    assert [(folder / str(task) / CANCELLED).exists() for task in range(4)] == [False, False, True, True]
    write_events(folder, ("ended", 2, 137))
    assert task_state(folder / "2", RUNNING).word == "CANCELLED"


def test_a_job_that_wrote_no_event(tmp_path: Path) -> None:
    """It loads modules, or waits: no run was started. A torn line says nothing either."""
    (tmp_path / "0").mkdir()
    assert task_state(tmp_path / "0", RUNNING) == NOT_STARTED
    assert task_state(tmp_path / "0", WAITS) == WAITS
    (tmp_path / STEPS).write_text('{"event":"started","ta')
    assert task_state(tmp_path / "0", RUNNING) == NOT_STARTED
    assert not was_started(tmp_path / "0")
