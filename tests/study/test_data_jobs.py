from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.data_job import DataJob, DataTask
from hpcddp.core.hours import Hours
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.study.clean import waste
from hpcddp.study.data_jobs import data_job_lines, data_job_states, folders_of_data_jobs
from hpcddp.study.status import Phase, RunState
from hpcddp.study.study_status import StudyStatus
from hpcddp.study.used_hours import StudyHours
from tests.fake_slurm import FakeBackend

TASK = DataTask(action="prepare", data="bigmnist", options={"root": "$S/b"}, folders=("root",))


def left(study: Study, job: str, minute: int = 0, task: DataTask = TASK, **files: object) -> None:
    at = f"2026-01-01T00:{minute:02d}:00+00:00"
    record = DataJob(task=task, job=job, name=task.title, backend="slurm", submitted_at=at)
    for name, plain in {"job": encode(record), **files}.items():
        write_json(study.data_dir(job) / f"{name}.json", plain)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> dict[str, JobState]:
    states: dict[str, JobState] = {}
    backend = FakeBackend()
    monkeypatch.setattr(backend, "poll", lambda jobs: {job: states[job] for job in jobs})
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda name, *studies: backend)
    return states


def test_the_newest_job_of_a_task_counts(tmp_path: Path, says: dict[str, JobState]) -> None:
    study = Study(tmp_path)
    left(study, "8", 1, end={"ok": False, "text": "the disk is full", "took_s": 3.0})
    left(study, "9", 2, end={"ok": True, "text": "120 samples in b", "took_s": 3.0})
    left(study, "7", 3, DataTask(action="pack", data="imagenet", options={"root": "x"}))
    says["7"] = JobState(phase="queued", detail="required nodes are busy")
    assert list(data_job_lines(data_job_states(study))) == [
        "prepare bigmnist  job 9  done  120 samples in b",
        "pack imagenet  job 7  queued  required nodes are busy, in x",
    ]
    (tmp_path / "of-runs").mkdir()
    (tmp_path / "none").mkdir()
    (tmp_path / ".jobs").rename(tmp_path / "of-runs" / ".jobs")
    assert folders_of_data_jobs(tmp_path) == [Study(tmp_path / "of-runs")]


def test_how_far_it_is_and_came(tmp_path: Path, says: dict[str, JobState]) -> None:
    study, progress = Study(tmp_path), {"done": 18_000_000, "total": 72_000_000, "per_s": 1_043_212.0}
    left(study, "7", progress=progress)
    says["7"] = JobState(phase="running")
    assert list(data_job_lines(data_job_states(study))) == [
        "prepare bigmnist  job 7  running",
        "    18,000,000 of 72,000,000 (25 %), 1,000,000/s, 52 s left, in $S/b",
    ]
    left(study, "7", progress={"done": 5})
    assert list(data_job_lines(data_job_states(study))) == ["prepare bigmnist  job 7  running  5, in $S/b"]
    left(study, "7", progress={"done": 18, "total": 72, "per_s": 2.0})
    says["7"] = JobState(phase="failed", detail="cancelled", word="CANCELLED")
    assert list(data_job_lines(data_job_states(study))) == ["prepare bigmnist  job 7  failed  18 of 72 (25 %); cancelled"]


def test_one_that_left_no_word(tmp_path: Path, says: dict[str, JobState]) -> None:
    study = Study(tmp_path)
    left(study, "7")
    says["7"] = JobState(phase="failed", detail="it ran out of memory", word="OUT_OF_MEMORY")
    (state,) = data_job_states(study)
    assert state.detail == f"it ran out of memory; see {study.job_dir('7')}"
    says["7"] = JobState(phase="done")
    assert [state.phase for state in data_job_states(study)] == ["done"]


def test_the_code_of_a_live_job_stays(tmp_path: Path, says: dict[str, JobState]) -> None:
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
    study = Study(tmp_path)
    left(study, "8", end={"ok": False, "text": "the disk is full", "took_s": 3.0})
    jobs, hours = data_job_states(study), StudyHours(used=Hours(), to_come=None)

    def is_done(*phases: Phase) -> bool:
        runs = [RunState(label="n01-g1-b8-0123456789ab", run=1, phase=phase) for phase in phases]
        return StudyStatus(name="x", path=tmp_path, states=runs, hours=hours, data_jobs=jobs).is_done

    assert [is_done("done"), is_done("missing"), is_done()] == [True, False, False]


LABEL = "n01-g1-b1-0"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A run with two attempts of three checkpoints each, and two snapshots of code."""
    study = Study(tmp_path / "s")
    for number, job in enumerate(("7", "8")):
        for step in (1, 2, 3):
            write(study.attempt_dir(LABEL, 1, job, 0) / "checkpoints" / f"{10 * number + step:08d}.ab.pt", 100)
    for code in ("aa", "bb"):
        write(study.code / code / "bootstrap.py", 10)
        (study.code / code / "bootstrap.py").chmod(0o444)
    return study


def write(file: Path, count: int = 1) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(count))
    return file


def found(study: Study, phase: Phase, job: str | None = "8") -> list[str]:
    taken = waste(study, [RunState(label=LABEL, run=1, phase=phase, job=job)])
    return [one.path.relative_to(study.folder).as_posix().removeprefix(f"{LABEL}/r1/") for one in taken]


def script(study: Study, job: str, code: str) -> None:
    (study.jobs / "x").mkdir(parents=True)
    study.job_dir(job.partition("_")[0]).symlink_to("x")
    (study.jobs / "x" / "job.sbatch").write_text(f"srun python3 -u /moved/s/.code/{code}/bootstrap.py")


@pytest.mark.parametrize("phase", ["failed", "missing"])
def test_a_run_that_is_not_done_keeps_what_it_would_go_on_from(study: Study, phase: Phase) -> None:
    write(study.attempt_dir(LABEL, 1, "8", 0) / "checkpoints" / ".00000014.ab.pt.99")
    assert found(study, phase)[:-2] == [
        *(f"7.0/checkpoints/0000000{step}.ab.pt" for step in (1, 2, 3)),
        "8.0/checkpoints/.00000014.ab.pt.99",
        "8.0/checkpoints/00000011.ab.pt",
    ]


def test_shards_stay_with_their_checkpoint(study: Study) -> None:
    folder = study.attempt_dir(LABEL, 1, "8", 0) / "checkpoints"
    for step in (11, 13):
        write(folder / f"000000{step}.shards" / "00000.ab.pt")
    assert "8.0/checkpoints/00000011.shards" in found(study, "failed")
    assert "8.0/checkpoints/00000013.shards" not in found(study, "failed")


def test_a_run_begun_anew_keeps_nothing_of_before(study: Study) -> None:
    write_json(study.attempt_dir(LABEL, 1, "8", 0) / "end.json", {"state": "done"})
    assert len(found(study, "failed")) == 6 + 2


@pytest.mark.parametrize("phase", ["queued", "running", "unknown"])
def test_of_a_job_that_may_be_at_work_nothing_goes(study: Study, phase: Phase) -> None:
    assert found(study, phase) == []
    script(study, "8", "bb")
    assert found(study, phase) == [".code/aa"]
    assert found(study, phase, job="8_3") == [".code/aa"]
    assert found(study, phase, job=None) == []


def test_records_stay_and_bytes_are_counted(study: Study) -> None:
    end = study.attempt_dir(LABEL, 1, "7", 0) / "end.json"
    write_json(end, {"state": "done"})
    taken = waste(study, [RunState(label=LABEL, run=1, phase="done", job="8")])
    assert [one.bytes for one in taken] == [300, 300, 10, 10]
    for one in taken:
        one.remove()
    assert waste(study, [RunState(label=LABEL, run=1, phase="done", job="8")]) == []
    assert json.loads(end.read_text()) == {"state": "done"}


def test_all_of_a_run_that_is_done_goes_but_what_a_link_leads_to(study: Study, tmp_path: Path) -> None:
    precious = write(tmp_path / "elsewhere" / "precious").parent
    (study.attempt_dir(LABEL, 1, "9", 0)).mkdir()
    (study.attempt_dir(LABEL, 1, "9", 0) / "checkpoints").symlink_to(precious)
    (study.code / "cc").symlink_to(precious)
    assert found(study, "done") == ["7.0/checkpoints", "8.0/checkpoints", ".code/aa", ".code/bb"]
