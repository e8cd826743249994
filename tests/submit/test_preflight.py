"""Preflight seen from the login node: its job, what is shown of it, and which nodes later jobs are not given."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.errors import HpcddpError
from hpcddp.core.preflight_judgement import slow_readings
from hpcddp.core.preflight_record import PreflightRecord, RankReadings
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.script.render import ScriptLaunch
from hpcddp.study.study_status import newest_preflight_words, preflights_of
from hpcddp.submit.one_allocation import allocation_request, allocation_words
from hpcddp.submit.small_jobs import preflight_text, run_preflight, without_slow_nodes
from tests.given_one_allocation import batch_of, runs_of, submission_plan
from tests.submit.test_smoke import Answers


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def record(*products: float, job: str = "100", unix_ns: int = 1) -> PreflightRecord:
    """Of one rank a node, r0, r1 and so on."""
    ranks = tuple(RankReadings(rank=rank, host=f"r{rank}", matrix_flops_per_s=value) for rank, value in enumerate(products))
    return PreflightRecord(job=job, unix_ns=unix_ns, took_s=5.0, device="cuda", ranks=ranks, slow=slow_readings(ranks))


def write(study: Study, found: PreflightRecord) -> None:
    write_json(study.preflight_file(found.job, found.restart), encode(found))


def test_one_short_job_on_the_largest_layout(tmp_path: Path) -> None:
    """With the spare nodes, each rank started by srun; its record is what is returned."""
    plan, study = submission_plan(tmp_path, "slurm.spare_nodes=1", "layout.launcher=torchrun"), Study(tmp_path / "runs")
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
    """With what the cluster says of it; nothing more is submitted."""
    with pytest.raises(HpcddpError, match="preflight: job 100 failed: a node failed"):
        run_preflight(
            Study(tmp_path / "runs"), submission_plan(tmp_path), Answers(JobState(phase="failed", detail="a node failed"))
        )


def test_slow_nodes_are_proposed_and_no_more(tmp_path: Path) -> None:
    """Without spare nodes the user decides."""
    plan = submission_plan(tmp_path)
    assert preflight_text(record(100, 99, 98), plan) == ("preflight    job 100   3 nodes, none more than 10 % below the median")
    assert preflight_text(record(100, 70, 101, 80, 99), plan).splitlines()[1].strip() == (
        "leave them out: --set slurm.exclude=r1,r3, or always: --set slurm.spare_nodes=1"
    )
    assert without_slow_nodes(plan, record(100, 70, 101)) is plan


def test_with_spare_nodes_no_job_is_given_a_slow_one(tmp_path: Path) -> None:
    """Beside those that the sweep excludes anyway."""
    plan = submission_plan(tmp_path, "slurm.spare_nodes=1", "slurm.exclude=r9")
    assert "no job is given r1: slurm.spare_nodes is 1" in preflight_text(record(100, 70, 101), plan)
    found = without_slow_nodes(plan, record(100, 70, 101))
    assert {request.exclude for request in found.requests.values()} == {"r9,r1"}
    assert without_slow_nodes(plan, record(100, 99, 101)) is plan


def test_one_allocation_has_its_spare_nodes(tmp_path: Path) -> None:
    """Runs take as many as before; the job's name, request and words have one more."""
    plan = submission_plan(tmp_path, "slurm.spare_nodes=1")
    assert allocation_request(plan, runs_of(plan)).nodes == 5
    assert allocation_words(plan, runs_of(plan)).startswith("one job of 5 nodes, 1 of them spare, for 180 min")
    batch = batch_of(plan, tmp_path)
    assert batch.one_allocation is not None
    assert (batch.name, batch.one_allocation.nodes) == ("n05-6runs.1f2e3d4c", 5)


def test_status_says_what_the_newest_found(tmp_path: Path) -> None:
    """Of several; a damaged one is passed over, and a study without any says nothing."""
    study = Study(tmp_path)
    assert newest_preflight_words(study) is None
    write(study, record(100, 99, job="7", unix_ns=5))
    write(study, dataclasses.replace(record(100, 70, 99, job="6", unix_ns=9), excluded=("r1",)))
    study.preflight_file("9", 0).write_text("{")
    assert [each.job for each in preflights_of(study)] == ["7", "6"]
    assert newest_preflight_words(study) == (
        "preflight of job 6: 3 nodes, slow: r1 (matrix product 29 % below the median; left out)"
    )
