"""The smoke test seen from the login node."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.submit.smoke import run_smoke
from tests.fake_backend import FakeBackend
from tests.given_plan import submission_plan


class Answers(FakeBackend):
    """Gives answers one after another; a KeyboardInterrupt among them is raised."""

    def __init__(self, *answers: JobState | KeyboardInterrupt) -> None:
        super().__init__()
        self.answers = list(answers)
        self.cancelled: list[str] = []

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        answer = self.answers.pop(0)
        if isinstance(answer, KeyboardInterrupt):
            raise answer
        return dict.fromkeys(jobs, answer)

    def cancel(self, jobs: Mapping[str, str]) -> None:
        self.cancelled += jobs


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def test_controller_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    """Only the end of the job ends the wait; without a result the job's state is told."""
    backend = Answers(JobState(phase="unknown"), JobState(phase="queued"), JobState(phase="failed", detail="a node failed"))
    with pytest.raises(HpcddpError, match="job 100 failed: a node failed"):
        run_smoke(Study(tmp_path / "runs"), submission_plan(tmp_path), backend)
    assert backend.answers == []


def test_interrupted_wait_leaves_no_job(tmp_path: Path) -> None:
    """Ctrl-C while the smoke job waits cancels it: nobody is left to hear what it finds."""
    backend = Answers(JobState(phase="queued"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run_smoke(Study(tmp_path / "runs"), submission_plan(tmp_path), backend)
    assert backend.cancelled == ["100"]


def test_every_problem_found_is_told(tmp_path: Path) -> None:
    """What the ranks found stands in the error, a line each."""
    study = Study(tmp_path / "runs")
    write_json(study.smoke_dir("100") / "smoke.json", {"ok": False, "problems": ["no torch on gn01", "no data on gn02"]})
    with pytest.raises(HpcddpError, match="no torch on gn01\n  no data on gn02"):
        run_smoke(study, submission_plan(tmp_path), Answers(JobState(phase="done")))
