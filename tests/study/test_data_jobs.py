"""Jobs that prepare data, by what they left and what the backend says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.data_job_record import DataJob
from hpcddp.core.data_task import DataTask
from hpcddp.core.hours import Hours
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.study.clean import waste
from hpcddp.study.data_jobs import data_job_lines, data_job_states, folders_of_data_jobs
from hpcddp.study.status import Phase, RunState
from hpcddp.study.study_status import StudyStatus
from hpcddp.study.used_hours import StudyHours
from tests.fake_backend import FakeBackend

TASK = DataTask(action="prepare", data="bigmnist", options={"root": "$S/b"}, folders=("root",))


def left(study: Study, job: str, minute: int = 0, task: DataTask = TASK, **files: object) -> None:
    """What was submitted, and what the job wrote."""
    at = f"2026-01-01T00:{minute:02d}:00+00:00"
    record = DataJob(task=task, job=job, name=task.title, backend="slurm", submitted_at=at)
    for name, plain in {"job": encode(record), **files}.items():
        write_json(study.data_dir(job) / f"{name}.json", plain)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> dict[str, JobState]:
    """What the backend says, by job."""
    states: dict[str, JobState] = {}
    backend = FakeBackend()
    monkeypatch.setattr(backend, "poll", lambda jobs: {job: states[job] for job in jobs})
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda name, *studies: backend)
    return states


def test_the_newest_job_of_a_task_counts(tmp_path: Path, says: dict[str, JobState]) -> None:
    """An end that it left is its own word, and needs no backend; others are asked for."""
    study = Study(tmp_path)
    left(study, "8", 1, end={"ok": False, "text": "the disk is full", "took_s": 3.0})
    left(study, "9", 2, end={"ok": True, "text": "120 samples in b", "took_s": 3.0})
    left(study, "7", 3, DataTask(action="pack", data="imagenet", options={"root": "x"}))
    says["7"] = JobState(phase="queued", detail="the nodes it needs are busy")
    assert list(data_job_lines(data_job_states(study))) == [
        "prepare bigmnist  job 9  done  120 samples in b",
        "pack imagenet  job 7  queued  the nodes it needs are busy, in x",
    ]
    (tmp_path / "of-runs").mkdir()
    (tmp_path / "none").mkdir()
    (tmp_path / ".jobs").rename(tmp_path / "of-runs" / ".jobs")
    assert folders_of_data_jobs(tmp_path) == [Study(tmp_path / "of-runs")]


def test_how_far_it_is(tmp_path: Path, says: dict[str, JobState]) -> None:
    """By the file that it writes now and then; nothing of that where it never came to it."""
    study, progress = Study(tmp_path), {"done": 18_000_000, "total": 72_000_000, "per_s": 1_043_212.0}
    left(study, "7", progress=progress)
    says["7"] = JobState(phase="running")
    assert list(data_job_lines(data_job_states(study))) == [
        "prepare bigmnist  job 7  running",
        "    18,000,000 of 72,000,000 (25 %), 1,000,000/s, 52 s left, in $S/b",
    ]
    left(study, "7", progress={"done": 5})
    assert list(data_job_lines(data_job_states(study))) == ["prepare bigmnist  job 7  running  5, in $S/b"]


def test_one_that_left_no_word(tmp_path: Path, says: dict[str, JobState]) -> None:
    """Where its files are is said; a job that Slurm saw end well has made the data, though its file is not here yet."""
    study = Study(tmp_path)
    left(study, "7")
    says["7"] = JobState(phase="failed", detail="it ran out of memory", word="OUT_OF_MEMORY")
    (state,) = data_job_states(study)
    assert state.detail == f"it ran out of memory; see {study.job_dir('7')}"
    says["7"] = JobState(phase="done")
    assert [state.phase for state in data_job_states(study)] == ["done"]


def test_one_that_was_ended_has_no_time_left(tmp_path: Path, says: dict[str, JobState]) -> None:
    """It is said how far it came; its last rate is nobody's any more."""
    study = Study(tmp_path)
    left(study, "7", progress={"done": 18, "total": 72, "per_s": 2.0})
    says["7"] = JobState(phase="failed", detail="cancelled", word="CANCELLED")
    assert list(data_job_lines(data_job_states(study))) == ["prepare bigmnist  job 7  failed  18 of 72 (25 %); cancelled"]


def test_the_code_of_a_live_job_stays(tmp_path: Path, says: dict[str, JobState]) -> None:
    """`clean` takes it when the job is over."""
    study = Study(tmp_path)
    left(study, "7")
    (study.code / "0123abcd").mkdir(parents=True)
    study.job_dir("7").mkdir()
    (study.job_dir("7") / "job.sbatch").write_text("python /x/.code/0123abcd/bootstrap.py")
    says["7"] = JobState(phase="running")
    assert waste(study, []) == []
    says["7"] = JobState(phase="failed")
    assert [each.path for each in waste(study, [])] == [study.code / "0123abcd"]


def test_what_failed_once_does_not_count_when_all_runs_are_done(tmp_path: Path, says: dict[str, JobState]) -> None:
    """They did not need it; while runs are missing, or where there are none, it does."""
    study = Study(tmp_path)
    left(study, "8", end={"ok": False, "text": "the disk is full", "took_s": 3.0})
    jobs, hours = data_job_states(study), StudyHours(used=Hours(), to_come=None)

    def is_done(*phases: Phase) -> bool:
        runs = [RunState(label="n01-g1-b8-0123456789ab", run=1, phase=phase) for phase in phases]
        return StudyStatus(name="x", path=tmp_path, states=runs, hours=hours, data_jobs=jobs).is_done

    assert [is_done("done"), is_done("missing"), is_done()] == [True, False, False]
