"""Smoke test and preflight seen from the login node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState, Submission
from hpcddp.core.errors import HpcddpError, RefusedError
from hpcddp.core.preflight import PreflightRecord, RankReadings, slow_readings
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.script.render import ScriptLaunch
from hpcddp.study.study_status import newest_preflight_words, preflights_of
from hpcddp.submit.one_allocation import allocation_request, allocation_words
from hpcddp.submit.small_jobs import (
    SMOKE,
    kind_submissions,
    preflight_text,
    run_preflight,
    run_smoke,
    smoke_points,
    without_slow_nodes,
)
from tests.fake_slurm import FakeBackend
from tests.given_plan import allocation_plan, batch_of, runs_of, submission_plan


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


def test_the_wait_ends_with_the_job_or_the_user(tmp_path: Path) -> None:
    backend = Answers(JobState(phase="unknown"), JobState(phase="queued"), JobState(phase="failed", detail="a node failed"))
    with pytest.raises(HpcddpError, match="job 100 failed: a node failed"):
        run_smoke(Study(tmp_path / "runs"), submission_plan(tmp_path), backend)
    assert backend.answers == []
    backend = Answers(JobState(phase="queued"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run_smoke(Study(tmp_path / "runs"), submission_plan(tmp_path), backend)
    assert backend.cancelled == ["100"]


def test_every_problem_found_is_told(tmp_path: Path) -> None:
    study = Study(tmp_path / "runs")
    write_json(study.smoke_dir("100") / "smoke.json", {"ok": False, "problems": ["no torch on gn01", "no data on gn02"]})
    with pytest.raises(HpcddpError, match="no torch on gn01\n  no data on gn02"):
        run_smoke(study, submission_plan(tmp_path), Answers(JobState(phase="done")))


def found(study: Study, job: str, *problems: str, host: str = "gn01") -> None:
    """What a smoke job left, as version 0.1.0 wrote it."""
    rank = {"rank": 0, "host": host, "data_root": None, "data_seen": None, "problems": list(problems)}
    write_json(study.smoke_dir(job) / "smoke.json", {"schema": 1, "ok": not problems, "problems": problems, "ranks": [rank]})


def test_every_type_of_node_is_tested(tmp_path: Path) -> None:
    axes = "{layout.node_type: [v100, a40], layout.nodes: [1, 2]}"
    plan = allocation_plan(tmp_path, axes=axes)
    study, points = Study(tmp_path / "runs"), smoke_points(plan)
    submissions = kind_submissions(SMOKE, study, plan, "slurm", points)
    layouts = {name: each.spec.point.layout for name, each in zip(points, submissions, strict=True)}
    found = {name: (layout.node_type, layout.nodes) for name, layout in layouts.items()}
    assert found == {"v100": ("v100", 2), "a40": ("a40", 2)}
    assert [each.name for each in submissions] == ["smoke-v100", "smoke-a40"]
    one = allocation_plan(tmp_path, axes="{layout.node_type: [a40], layout.nodes: [1]}")
    (submission,) = kind_submissions(SMOKE, study, one, "slurm", smoke_points(one))
    assert (list(smoke_points(one)), submission.name) == (["a40"], "smoke")


def test_what_each_type_of_node_has_is_said(tmp_path: Path) -> None:
    plan = allocation_plan(tmp_path, axes="{layout.node_type: [v100, a40]}")
    study, done = Study(tmp_path / "runs"), JobState(phase="done")
    found(study, "100")
    found(study, "101")
    waits = Answers(JobState(phase="queued"), done)
    lines = run_smoke(study, plan, waits).splitlines()
    assert [line.split("   ")[:2] for line in lines] == [["smoke test on v100", "job 100"], ["smoke test on a40", "job 101"]]
    found(study, "101", "no torch on gn07")
    with pytest.raises(HpcddpError) as caught:
        run_smoke(study, plan, Answers(done))
    assert str(caught.value) == "smoke test on a40: job 101 found problems that would fail every run there:\n  no torch on gn07"


def test_a_job_that_is_refused_leaves_none(tmp_path: Path) -> None:
    plan, backend = allocation_plan(tmp_path, axes="{layout.node_type: [v100, a40]}"), Answers()

    def refuse(_: Submission) -> None:
        if len(backend.queued) == 2:
            raise RefusedError("sbatch: error: QOSMaxSubmitJobPerUserLimit")

    backend.on_submit = refuse
    with pytest.raises(RefusedError):
        run_smoke(Study(tmp_path / "runs"), plan, backend)
    assert backend.cancelled == ["100"]


def record(*products: float, job: str = "100", unix_ns: int = 1) -> PreflightRecord:
    """Of one rank a node, r0, r1 and so on."""
    ranks = tuple(RankReadings(rank=rank, host=f"r{rank}", matrix_flops_per_s=value) for rank, value in enumerate(products))
    return PreflightRecord(job=job, unix_ns=unix_ns, took_s=5.0, device="cuda", ranks=ranks, slow=slow_readings(ranks))


def write(study: Study, found: PreflightRecord) -> None:
    write_json(study.preflight_file(found.job, found.restart), encode(found))


def test_one_short_job_on_the_largest_layout(tmp_path: Path) -> None:
    plan, study = allocation_plan(tmp_path, "slurm.spare_nodes=1", "layout.launcher=torchrun"), Study(tmp_path / "runs")
    backend = Answers(JobState(phase="queued"), JobState(phase="done"))
    write(study, record(100, 99))
    assert run_preflight(study, plan, backend) == record(100, 99)
    (submission,) = backend.queued.values()
    assert (submission.name, submission.entry, submission.walltime_min) == (
        "preflight",
        "hpcddp.worker.preflight:preflight_rank",
        10,
    )
    assert submission.render_text is not None
    script = submission.render_text(ScriptLaunch(command="true"))
    assert "#SBATCH --nodes=5\n" in script
    assert "#SBATCH --time=10\n" in script
    assert submission.spec.point.layout.launcher == "direct"


def test_a_job_without_a_record_is_an_error(tmp_path: Path) -> None:
    answers = Answers(JobState(phase="failed", detail="a node failed"))
    with pytest.raises(HpcddpError, match="preflight: job 100 failed: a node failed"):
        run_preflight(Study(tmp_path / "runs"), allocation_plan(tmp_path), answers)


def test_slow_nodes_are_proposed_and_no_more(tmp_path: Path) -> None:
    plan = allocation_plan(tmp_path)
    assert preflight_text(record(100, 99, 98), plan) == ("preflight    job 100   3 nodes, none more than 10 % below the median")
    _, advice, *_ = preflight_text(record(100, 70, 101, 80, 99), plan).splitlines()
    assert advice.strip() == "exclude them with --set slurm.exclude=r1,r3, or always with --set slurm.spare_nodes=1"
    assert without_slow_nodes(plan, record(100, 70, 101)) is plan


def test_with_spare_nodes_no_job_is_given_a_slow_one(tmp_path: Path) -> None:
    plan = allocation_plan(tmp_path, "slurm.spare_nodes=1", "slurm.exclude=r9")
    assert "r1 excluded from all jobs: slurm.spare_nodes is 1" in preflight_text(record(100, 70, 101), plan)
    found = without_slow_nodes(plan, record(100, 70, 101))
    assert {request.exclude for request in found.requests.values()} == {"r9,r1"}
    assert without_slow_nodes(plan, record(100, 99, 101)) is plan


def test_one_allocation_has_its_spare_nodes(tmp_path: Path) -> None:
    plan = allocation_plan(tmp_path, "slurm.spare_nodes=1")
    assert allocation_request(plan, runs_of(plan)).nodes == 5
    assert allocation_words(plan, runs_of(plan)).startswith("one job of 5 nodes, 1 of them spare, for 180 min")
    batch = batch_of(plan, tmp_path)
    assert batch.one_allocation is not None
    assert (batch.name, batch.one_allocation.nodes) == ("n05-6runs.1f2e3d4c", 5)


def test_status_says_what_the_newest_found(tmp_path: Path) -> None:
    study = Study(tmp_path)
    assert newest_preflight_words(study) is None
    write(study, record(100, 99, job="7", unix_ns=5))
    write(study, dataclasses.replace(record(100, 70, 99, job="6", unix_ns=9), excluded=("r1",)))
    study.preflight_file("9", 0).write_text("{")
    assert [each.job for each in preflights_of(study)] == ["7", "6"]
    words = "preflight of job 6: 3 nodes, slow: r1 (matrix product 29 % below the median; left out)"
    assert newest_preflight_words(study) == words
