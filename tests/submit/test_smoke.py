"""The smoke test seen from the login node."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState, Submission
from hpcddp.core.errors import HpcddpError, RefusedError
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.submit.small_jobs import SMOKE, kind_submissions, run_smoke, smoke_points
from tests.fake_backend import FakeBackend
from tests.given_one_allocation import submission_plan as two_types
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


def found(study: Study, job: str, *problems: str, host: str = "gn01") -> None:
    """What a smoke job left, as version 0.1.0 wrote it."""
    rank = {"rank": 0, "host": host, "data_root": None, "data_seen": None, "problems": list(problems)}
    write_json(study.smoke_dir(job) / "smoke.json", {"schema": 1, "ok": not problems, "problems": problems, "ranks": [rank]})


def test_every_type_of_node_is_tested(tmp_path: Path) -> None:
    """One job each, on the smallest layout of two nodes that the sweep has there, of one node where it has no other."""
    axes = "{layout.node_type: [v100, a40], layout.nodes: [1, 2]}"
    plan = two_types(tmp_path, axes=axes)
    study, points = Study(tmp_path / "runs"), smoke_points(plan)
    submissions = kind_submissions(SMOKE, study, plan, "slurm", points)
    layouts = {name: each.spec.point.layout for name, each in zip(points, submissions, strict=True)}
    assert {name: (layout.node_type, layout.nodes) for name, layout in layouts.items()} == {
        "v100": ("v100", 2),
        "a40": ("a40", 2),
    }
    assert [each.name for each in submissions] == ["smoke-v100", "smoke-a40"]
    one = two_types(tmp_path, axes="{layout.node_type: [a40], layout.nodes: [1]}")
    (submission,) = kind_submissions(SMOKE, study, one, "slurm", smoke_points(one))
    assert (list(smoke_points(one)), submission.name) == (["a40"], "smoke")


def test_what_each_type_of_node_has_is_said(tmp_path: Path) -> None:
    """A line for each that is well; what is wrong on one is told with its name, and nothing is submitted."""
    plan = two_types(tmp_path, axes="{layout.node_type: [v100, a40]}")
    study, done = Study(tmp_path / "runs"), JobState(phase="done")
    found(study, "100")
    found(study, "101")
    waits = Answers(JobState(phase="queued"), done)
    lines = run_smoke(study, plan, waits).splitlines()
    assert [line.split("   ")[:2] for line in lines] == [["smoke test on v100", "job 100"], ["smoke test on a40", "job 101"]]
    found(study, "101", "no torch on gn07")
    with pytest.raises(HpcddpError) as caught:
        run_smoke(study, plan, Answers(done))
    assert str(caught.value) == "smoke test on a40: job 101 found what would fail every run there:\n  no torch on gn07"


def test_a_job_that_is_refused_leaves_none(tmp_path: Path) -> None:
    """The first type's job is cancelled where the second type's is not taken."""
    plan, backend = two_types(tmp_path, axes="{layout.node_type: [v100, a40]}"), Answers()

    def refuse(_: Submission) -> None:
        if len(backend.queued) == 2:
            raise RefusedError("sbatch: error: QOSMaxSubmitJobPerUserLimit")

    backend.on_submit = refuse
    with pytest.raises(RefusedError):
        run_smoke(Study(tmp_path / "runs"), plan, backend)
    assert backend.cancelled == ["100"]
