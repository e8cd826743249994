"""Runs in one allocation: whose turn it is, and what becomes of those whose turn never came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_allocation import CANCELLED, STEPS, give_up, had_its_turn, turn

RUNNING = JobState(phase="running", nodes="gn[01-02]")
WAITS = JobState(phase="queued", detail="the nodes it needs are busy (Resources)")
TIMEOUT = JobState(phase="failed", detail="the wall time was over (TIMEOUT)", word="TIMEOUT")
ITS_TURN = JobState(phase="queued", detail="waits for its turn in its job")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a job of four runs: 0 is done, 1 has failed, 2 is at work, 3 is to come."""
    for task in range(4):
        (tmp_path / str(task)).mkdir()
    tell(tmp_path, ("begun", None), ("started", 0), ("ended", 0, 0), ("started", 1), ("ended", 1, 7), ("started", 2))
    return tmp_path


def tell(folder: Path, *events: tuple[object, ...]) -> None:
    with (folder / STEPS).open("a") as lines:
        for event in events:
            lines.write(json.dumps(dict(zip(("event", "task", "code", "word", "limit_min"), event, strict=False))) + "\n")


def turns(folder: Path, job: JobState) -> list[JobState]:
    return [turn(folder / str(task), job) for task in range(4)]


def test_while_the_job_runs(folder: Path) -> None:
    """What has ended has, one runs, the others wait; when it is requeued, and before it starts one again, all of them wait."""
    ended = [JobState(phase="done", nodes=RUNNING.nodes)]
    ended += [JobState(phase="failed", detail="exit code 7 (FAILED)", nodes=RUNNING.nodes, word="FAILED")]
    assert turns(folder, RUNNING) == [*ended, RUNNING, ITS_TURN]
    assert [state.phase for state in turns(folder, WAITS)[:2]] == ["done", "failed"]
    assert turns(folder, WAITS)[2:] == [WAITS, WAITS]
    tell(folder, ("begun", None))
    assert turns(folder, RUNNING)[2:] == [ITS_TURN, ITS_TURN]
    tell(folder, ("started", 2))
    assert turns(folder, RUNNING)[2:] == [RUNNING, ITS_TURN]


def test_when_the_job_is_over(folder: Path) -> None:
    """What ended by itself keeps its own end; the others have the job's."""
    assert [state.phase for state in turns(folder, TIMEOUT)[:2]] == ["done", "failed"]
    assert turns(folder, TIMEOUT)[1].word == "FAILED"
    assert turns(folder, TIMEOUT)[2:] == [TIMEOUT, TIMEOUT]
    assert [had_its_turn(folder / str(task)) for task in range(4)] == [True, True, True, False]


def test_a_run_that_had_all_the_time_there_is(folder: Path) -> None:
    """Slurm's word for it is the script's, and the limit is the run's own."""
    tell(folder, ("ended", 2, 1, "TIMEOUT", 30))
    found = turn(folder / "2", RUNNING)
    assert (found.detail, found.word, found.time_limit) == ("the wall time was over (TIMEOUT)", "TIMEOUT", "30:00")


def test_a_cancelled_run_does_not_wait(folder: Path) -> None:
    """It has failed while its job runs on; one that is at work runs until its step has ended."""
    assert not give_up(folder, [2])
    assert [state.phase for state in turns(folder, RUNNING)[2:]] == ["running", "queued"]
    assert give_up(folder, [3])
    assert turn(folder / "3", RUNNING).detail == "cancelled before its turn"
    assert [(folder / str(task) / CANCELLED).exists() for task in range(4)] == [False, False, True, True]
    tell(folder, ("ended", 2, 137))
    assert turn(folder / "2", RUNNING).word == "CANCELLED"


def test_a_job_that_has_told_nothing(tmp_path: Path) -> None:
    """It loads modules, or waits: nobody has had a turn. A torn line says nothing either."""
    (tmp_path / "0").mkdir()
    assert turn(tmp_path / "0", RUNNING) == ITS_TURN
    assert turn(tmp_path / "0", WAITS) == WAITS
    (tmp_path / STEPS).write_text('{"event":"started","ta')
    assert turn(tmp_path / "0", RUNNING) == ITS_TURN
    assert not had_its_turn(tmp_path / "0")
