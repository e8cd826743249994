"""What status learns of a job that left no end.json is noted in the study, where analysis reads it: it asks nobody."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from pathlib import Path

import pytest

from hpcddp.analysis import analyze
from hpcddp.backends.base import JobState
from hpcddp.core.run_root import Study
from hpcddp.core.study_files import JobRun, read_outcomes
from hpcddp.share.unbundle import opened_study
from hpcddp.study.status import run_states
from hpcddp.study.submission_log import user_name
from tests.analysis.synthetic import point, write_study
from tests.fake_backend import FakeBackend
from tests.given_event import log_event

POINT = point(1, 1)
LABEL = POINT.label
TIMEOUT = JobState(phase="failed", word="TIMEOUT", time_limit="00:30:00", detail="TIMEOUT")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two runs that were submitted; the first has an attempt without an end."""
    study = write_study(tmp_path / "s", [POINT], repeat=2)
    for run, job in ((1, "7"), (2, "8")):
        log_event(study, LABEL, run=run, token=f"t{run}", job=job)
    study.attempt_dir(LABEL, 1, "7", 0).mkdir(parents=True)
    return study


def poll(study: Study, **states: JobState) -> None:
    run_states(study, FakeBackend({job[1:]: state for job, state in states.items()}))


def reasons(study: Study) -> list[str]:
    return [each["reason"] for each in analyze(study.folder)[0].plain["missing"]]


def test_analysis_says_what_slurm_ended(study: Study) -> None:
    """A time limit, and a job that was cancelled before it started; by the user's name, not `you`."""
    assert reasons(study) == ["attempt 7.0 has not ended", "not started"]
    poll(study, j7=TIMEOUT, j8=JobState(phase="failed", word="CANCELLED", by=user_name(), detail="CANCELLED"))
    first, second = reasons(study)
    assert first.startswith("attempt 7.0 failed: ")
    assert "time limit" in first
    assert second.startswith("not started: job 8 failed: ")
    assert f"by {user_name()}" in second


def test_it_is_noted_once(study: Study) -> None:
    """However often somebody looks."""
    for _ in range(3):
        poll(study, j7=TIMEOUT)
    assert len(study.outcomes_file.read_text().splitlines()) == 1


def test_a_requeued_job_has_not_ended(study: Study) -> None:
    """What was said before is taken back, until it ends again."""
    poll(study, j7=TIMEOUT)
    poll(study, j7=JobState(phase="running"))
    assert reasons(study)[0] == "attempt 7.0 has not ended"
    poll(study, j7=TIMEOUT)
    assert "time limit" in reasons(study)[0]


def test_jobs_that_are_at_work_are_not_noted(study: Study) -> None:
    """Nor those of which nobody knows."""
    poll(study, j7=JobState(phase="running"), j8=JobState(phase="unknown"))
    assert not study.outcomes_file.exists()


def test_a_line_that_is_torn_says_nothing() -> None:
    """Nor does one of another kind."""
    line = json.dumps({"label": LABEL, "run": 1, "job": "7", "reason": "lost", "unix_s": 1.0})
    assert read_outcomes(f"{{}}\n[1]\n{line}\n{line[:30]}".encode()) == {JobRun(LABEL, 1, "7"): "lost"}


def test_a_study_of_another_user_is_left_as_it_is(study: Study) -> None:
    """Looking at it writes nothing."""
    os.chown(study.folder, pwd.getpwnam("nobody").pw_uid, -1)
    poll(study, j7=TIMEOUT)
    assert not study.outcomes_file.exists()


def test_a_planted_link_is_not_followed(study: Study, tmp_path: Path) -> None:
    """And what status says is said all the same."""
    (tmp_path / "mine").write_text("")
    study.outcomes_file.symlink_to(tmp_path / "mine")
    poll(study, j7=TIMEOUT)
    assert (tmp_path / "mine").read_text() == ""


def test_a_bundle_takes_it_along(study: Study, tmp_path: Path) -> None:
    """Whoever analyzes it cannot ask either."""
    from hpcddp.share.bundle import write_bundle

    poll(study, j7=TIMEOUT)
    write_bundle(study, tmp_path / "b.tar.gz")
    shutil.rmtree(study.folder)
    with opened_study(tmp_path / "b.tar.gz") as folder:
        (result,) = analyze(folder, tmp_path / "out")
    assert "time limit" in result.plain["missing"][0]["reason"]
