"""Runs that share a job: one question for all of them, and what of the job is cancelled with some of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.backends.slurm import SlurmBackend
from hpcddp.backends.slurm_allocation import CANCELLED, STEPS
from hpcddp.backends.slurm_commands import longest_min
from hpcddp.backends.slurm_job_files import prepare
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.run_root import Study
from tests.backends.fake_slurm import Say, calls, stand_ins
from tests.given_one_allocation import batch_of, submission_plan


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
    """squeue knows the job alone; each of its runs has its state."""
    found = backend(tmp_path).poll(jobs)
    assert {job: state.phase for job, state in found.items()} == dict.fromkeys(jobs, "running")
    assert len(calls(tmp_path, "squeue")) == 1
    assert backend(tmp_path).poll({"12+0": "another's"})["12+0"].detail == "Slurm does not know this job any more"


@pytest.mark.parametrize(
    ("tasks", "ended"), [([2], []), ([1], ["scancel 12.3"]), ([1, 2], ["scancel 12"])], ids=["waits", "at work", "all left"]
)
def test_what_is_cancelled_with_some_runs(tmp_path: Path, jobs: dict[str, str], tasks: list[int], ended: list[str]) -> None:
    """A run that waits is passed over, one at work loses its step, and with the last of them goes the job."""
    backend(tmp_path).cancel({f"12+{task}": jobs[f"12+{task}"] for task in tasks})
    assert calls(tmp_path, "scancel") == ended
    marked = [task for task in range(3) if (tmp_path / "study" / ".jobs" / "12" / str(task) / CANCELLED).exists()]
    assert marked == tasks


def test_how_long_a_job_may_be(say: Say) -> None:
    """By the partition, else the default one; no limit, no answer and no such partition are not known."""
    say("scontrol", "echo PartitionName=a Default=NO MaxTime=01:00:00; echo PartitionName=b Default=YES MaxTime=7-00:00:00")
    assert (longest_min("a"), longest_min(None)) == (60, 10080)
    say("scontrol", "echo PartitionName=a Default=NO MaxTime=UNLIMITED")
    assert (longest_min("a"), longest_min(None)) == (None, None)
    say("scontrol", "exit 1")
    assert longest_min("a") is None
